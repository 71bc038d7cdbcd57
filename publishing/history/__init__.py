"""Estimates for years, as files for data tools."""
