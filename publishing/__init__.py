"""Turns stored tables into published histograms: the schedule, the publishers, the API and the live page."""
