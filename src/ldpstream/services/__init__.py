"""Processes of the service on this machine, and the trial of a survey with them."""
