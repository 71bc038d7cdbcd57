"""Stores the last accepted survey of each name."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.folder import SurveyFolder, SurveyText, change_refused
from ldpstream.surveys.life.lineage import changes_open
from ldpstream.surveys.survey_file import toml_document


class OpenSurveyChanged(UserError):
    """A survey file changed an open survey while no process watched the file."""


class KeptUnreadable(UserError):
    """This version cannot read a stored survey, or reads it as another survey."""


class NotCounted(UserError):
    """Agents count another survey of this name, and refuse the reports of this one. They may accept it later."""


class Kept(NamedTuple):
    """A stored survey: its fingerprint in hexadecimal digits, and the text of its file."""

    fingerprint: str
    toml: str


class SurveyKeeper(ABC):
    """Compares surveys with the last accepted surveys of their names."""

    def __init__(self, watch: SurveyFolder) -> None:
        self._watch = watch

    def check(self, survey: Survey, write: bool = False) -> None:
        """Checks that a survey does not change an open survey.

        Args:
            write: true to store the survey if it is accepted.

        Raises:
            OpenSurveyChanged: if the survey changes an open survey of its name.
            KeptUnreadable: as for `kept_survey`, if the stored survey is another one that this survey does not replace.
        """
        text = self._watch.surveys.get(survey.fingerprint)
        kept = self._read(survey)
        if kept is not None and kept.fingerprint not in (survey.fingerprint.hex(), survey.replaces):
            earlier = kept_survey(self._place(survey), kept)
            if changes_open(earlier, survey, self._watch.now_ms()):
                self._watch.keep(survey, SurveyText(earlier, Path(self._place(survey)), kept.toml))
                raise OpenSurveyChanged(f"survey {survey.name}: the file {change_refused(earlier)}")
        if write and text is not None and (new := Kept(survey.fingerprint.hex(), text.text)) != kept:
            self._write(survey, new)

    def check_counted(self, survey: Survey) -> None:
        """Checks that agents, if they have begun to count, count this survey and not another one of its name.

        Raises:
            NotCounted: if the stored survey is another one.
        """
        kept = self._read(survey)
        if kept is not None and kept.fingerprint != survey.fingerprint.hex():
            raise NotCounted(
                f"survey {survey.name}: the agents count survey {kept.fingerprint} of this name and refuse reports of "
                f"{survey.fingerprint.hex()}; give the agents this survey's file first"
            )

    def forget(self, survey: Survey) -> None:
        """Deletes the stored survey of a removed file, unless another survey of this name is stored."""
        kept = self._read(survey)
        if kept is not None and kept.fingerprint == survey.fingerprint.hex():
            self._write(survey, None)

    @abstractmethod
    def _place(self, survey: Survey) -> str:
        """Returns the place where the survey is stored, for messages."""

    @abstractmethod
    def _read(self, survey: Survey) -> Kept | None:
        """Returns the stored survey of this survey's name, or None."""

    @abstractmethod
    def _write(self, survey: Survey, kept: Kept | None) -> None:
        """Stores a survey under this survey's name; None deletes the stored one."""


def kept_survey(place: str, kept: Kept) -> Survey:
    """Parses the stored survey.

    Raises:
        KeptUnreadable: if this version cannot read the text, or reads it as another survey.
    """
    try:
        survey = parse_survey(toml_document(kept.toml), place)
    except (ValueError, RecursionError) as error:
        raise KeptUnreadable(f"{place} holds survey {kept.fingerprint}, which this version cannot read: {error}") from None
    if survey.fingerprint.hex() != kept.fingerprint:
        raise KeptUnreadable(
            f"{place} holds survey {kept.fingerprint}, which this version reads as {survey.fingerprint.hex()}: "
            f'if a level has mechanism = "auto", name its former mechanism; or write replaces = "{kept.fingerprint}" into the '
            "survey's file to end it"
        )
    return survey
