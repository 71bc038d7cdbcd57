"""The privacy promises of a survey: every number and every sentence about privacy that people are told."""
