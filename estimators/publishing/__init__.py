"""From stored tables to published histograms: the schedule, the publishers, the API and the live page."""
