"""Surveys, their questions, and the wire format of reports."""

from ldpstream.surveys.envelope import REASONS, Envelope, Reason, Rejected, check_envelope, open_envelope, seal
from ldpstream.surveys.questions import Attribute, Cohort, Level
from ldpstream.surveys.survey import Survey, SurveyError
from ldpstream.surveys.survey_file import load_survey, parse_survey

__all__ = [
    "REASONS", "Attribute", "Cohort", "Envelope", "Level", "Reason", "Rejected", "Survey", "SurveyError",
    "check_envelope", "load_survey", "open_envelope", "parse_survey", "seal",
]  # fmt: skip
