"""The survey, its time steps, and the envelope in which reports travel."""

from surveys.envelope import REASONS, Envelope, Reason, Rejected, check_envelope, open_envelope, seal
from surveys.survey import Attribute, Level, Survey, SurveyError, load_survey, parse_survey

__all__ = [
    "REASONS", "Attribute", "Envelope", "Level", "Reason", "Rejected", "Survey", "SurveyError",
    "check_envelope", "load_survey", "open_envelope", "parse_survey", "seal",
]  # fmt: skip
