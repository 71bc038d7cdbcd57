"""Estimates for years: the topic of estimates as files for data tools."""
