"""Surveys, their questions, and the wire format of reports.

Python loads the module of a name on the name's first use: the help of the command line needs no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldpstream.surveys.envelope import REASONS, Envelope, Reason, Rejected, check_envelope, open_envelope, seal
    from ldpstream.surveys.questions import Attribute, Cohort, Level
    from ldpstream.surveys.survey import Survey, SurveyError
    from ldpstream.surveys.survey_file import load_survey, parse_survey

__all__ = [
    "REASONS", "Attribute", "Cohort", "Envelope", "Level", "Reason", "Rejected", "Survey", "SurveyError",
    "check_envelope", "load_survey", "open_envelope", "parse_survey", "seal",
]  # fmt: skip

_HOMES = {
    "Attribute": "questions", "Cohort": "questions", "Level": "questions", "Survey": "survey", "SurveyError": "survey",
    "load_survey": "survey_file", "parse_survey": "survey_file",
}  # fmt: skip

if not TYPE_CHECKING:  # with this function, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'envelope')}"), name)
