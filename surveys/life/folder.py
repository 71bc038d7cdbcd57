"""The surveys in files and folders, by fingerprint, and the changes since the last look.

A folder's surveys are its files ``*.toml``, without hidden names and sub-folders, as in a mount of a Kubernetes ConfigMap.

`SurveyFolder.look` compares the stamp of each file (inode, size, times of change) with the last one, and reads changed files:

    a new file                          its survey is added
    a file with another survey          the old survey is removed and the new one added, unless the old survey is open
    a file with the same fingerprint    the survey is updated: in comments, or in keys that devices need not know
    a missing file                      its survey is removed
    a broken file or folder             reported once; the last good survey stays
    a second file with a survey of      broken, unless the fingerprint is the same: then both files hold one survey
    the same name

A new, changed or missing file takes effect when two looks in a row find it in the same state.

A survey is open here if a report of it may count now (`life.lineage.takes_reports`). If the file of an open survey gets another
survey, the old survey stays, and the file counts as broken, until one of these events:

- the new survey names the old survey in `replaces`;
- the old file is back, or another file holds the old survey;
- the file is removed;
- the old survey takes no more reports.
"""

import os.path
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.lineage import changes_open
from ldpstream.surveys.survey import Survey, SurveyError
from ldpstream.surveys.survey_file import read_survey

Stamp = tuple[int, int, int, int]  # inode, size, times in ns: of the last write, and of the last change of rights or name


class SurveyFolderError(UserError):
    """Raised at the start if there is no survey, or two different surveys have one name."""


class SurveyText(NamedTuple):
    """A survey, the file that it comes from, and the file's text."""

    survey: Survey
    path: Path
    text: str


class Changes(NamedTuple):
    """The result of a look.

    Attributes:
        added: surveys to serve from now on.
        removed: surveys to serve no longer.
        updated: surveys with a known fingerprint and a new text.
        broken: newly broken files and folders, and the reason, in one line.
        mended: files and folders that are no longer broken.
    """

    added: tuple[SurveyText, ...]
    removed: tuple[SurveyText, ...]
    updated: tuple[SurveyText, ...]
    broken: Mapping[Path, str]
    mended: tuple[Path, ...]


@dataclass(slots=True)
class _File:
    seen: Stamp | None = None  # the stamp in the last look; None if the file was missing
    read: Stamp | None = None  # the stamp at the last reading; None if the system refused to read: each look tries again
    good: SurveyText | None = None  # the last survey that could be read and was not refused
    refused: SurveyText | None = None  # another survey that the file holds now, while `good` is open
    why: str = ""  # the reason why the file is broken; "" if it is not


class SurveyFolder:
    """The surveys in files and folders.

    Args:
        paths: survey files, and folders of survey files; at least one path.
        now_ms: returns the present time in Unix milliseconds.

    Attributes:
        surveys: the surveys to serve, by fingerprint, in the order of the paths and of the names in a folder.
        broken: broken files and folders, each with the reason.
        changed: files that now hold another survey, while the survey that they held before is open.
        incomplete: true if a broken or changed file or folder may hold a survey that is not in `surveys`.
        only_file: the path, if there is only one path and it is not a folder; otherwise None.

    Raises:
        SurveyError: if a path does not exist, or the only file is broken.
        SurveyFolderError: if there is no survey, or two files hold different surveys with one name.
    """

    def __init__(self, paths: Sequence[Path], now_ms: Callable[[], int] = lambda: time.time_ns() // 10**6) -> None:
        self._paths, self.now_ms = tuple(paths), now_ms
        self._folders = {path for path in self._paths if os.path.isdir(path)}  # unlike `Path.is_dir`, raises no error
        self._files: dict[Path, _File] = {}
        self.surveys: dict[bytes, SurveyText] = {}
        self.broken: dict[Path, str] = {}
        self.changed: set[Path] = set()
        self.incomplete = False
        self.only_file = self._paths[0] if len(self._paths) == 1 and not self._folders else None
        for path in self._paths:
            if path == self.only_file or not os.path.exists(path):
                read_survey(path)  # raises the error of a broken or missing file
        self._read(at_once=True)
        for path, why in self._named_twice().items():
            raise SurveyFolderError(f"{path}: {why}")
        self._settle({})
        if not self.surveys:
            reason = next((f"{path}: {why}" for path, why in self.broken.items()), "a folder's surveys are its files *.toml")
            raise SurveyFolderError(f"{' '.join(map(str, self._paths))}: no survey found; {reason}")

    def listed(self) -> list[Survey]:
        return [text.survey for text in self.surveys.values()]

    def look(self) -> Changes:
        """Looks for changes."""
        return self._settle(self._read(at_once=False))

    def keep(self, survey: Survey, kept: SurveyText) -> None:
        """From the next look on, serves `kept`, an open survey of the same name, in place of this survey of a file."""
        for path, known in self._files.items():
            if known.good is not None and known.good.survey.fingerprint == survey.fingerprint:
                known.good, known.refused = kept._replace(path=path), known.good
                known.why = change_refused(kept.survey)

    def _read(self, at_once: bool) -> dict[Path, str]:
        unreadable: dict[Path, str] = {}
        files: dict[Path, _File] = {}
        for path in self._paths:
            try:
                found = survey_files(path) if path in self._folders else [path]
            except OSError as error:
                unreadable[path] = f"cannot be read: {error.strerror}"
                files |= {file: known for file, known in self._files.items() if file.parent == path}
                continue
            found += [file for file in self._files if file.parent == path and file not in found]
            for file in found:
                if file in files:
                    continue
                known = self._files.get(file, _File())
                try:
                    stamp = stamp_of(file)
                except OSError as error:
                    files[file] = known
                    known.read, known.why = None, f"cannot be read: {error.strerror}"
                    continue
                settled, known.seen = at_once or (file in self._files and stamp == known.seen), stamp
                if stamp is None and settled:
                    continue
                files[file] = known
                if stamp is not None and settled and stamp != known.read:
                    _read_file(file, known, stamp)
        self._files = files
        self._decide()
        return unreadable

    def _decide(self) -> None:
        held = [(known.refused or known.good, known) for known in self._files.values()]
        for known in self._files.values():
            if (new := known.refused) is None:
                continue
            old = None if known.good is None else known.good.survey
            moved = old is not None and any(
                text.survey.fingerprint == old.fingerprint for text, other in held if text is not None and other is not known
            )
            if old is not None and not moved and changes_open(old, new.survey, self.now_ms()):
                known.why = change_refused(old)
            else:
                known.good, known.refused, known.why = new, None, ""

    def _named_twice(self) -> dict[Path, str]:
        good = [known.good for known in self._files.values() if known.good is not None]
        first: dict[str, SurveyText] = {}
        for text in sorted(good, key=lambda text: text.survey.fingerprint not in self.surveys):  # a stable sort
            first.setdefault(text.survey.name, text)
        return {
            text.path: f"two different surveys are named {text.survey.name}: {first[text.survey.name].path} has this name too"
            for text in good
            if first[text.survey.name].survey.fingerprint != text.survey.fingerprint
        }

    def _settle(self, unreadable: Mapping[Path, str]) -> Changes:
        twice = self._named_twice()
        old_surveys, old_broken = self.surveys, self.broken
        surveys: dict[bytes, SurveyText] = {}
        for path, known in self._files.items():
            if known.good is not None and path not in twice:
                surveys.setdefault(known.good.survey.fingerprint, known.good)
        self.surveys = surveys  # replaced at once: other threads read it
        self.changed = {path for path, known in self._files.items() if known.refused is not None}
        lost = bool(self.changed) or any(known.why and known.good is None for known in self._files.values())
        self.incomplete = lost or bool(unreadable) or bool(twice)
        self.broken = {**unreadable, **{path: known.why for path, known in self._files.items() if known.why}, **twice}
        return Changes(
            added=tuple(text for key, text in self.surveys.items() if key not in old_surveys),
            removed=tuple(text for key, text in old_surveys.items() if key not in self.surveys),
            updated=tuple(
                text for key, text in self.surveys.items() if key in old_surveys and old_surveys[key].text != text.text
            ),
            broken={path: why for path, why in self.broken.items() if old_broken.get(path) != why},
            mended=tuple(path for path in old_broken if path not in self.broken),
        )


def survey_files(folder: Path) -> list[Path]:
    files = sorted(folder.iterdir())
    return [file for file in files if file.suffix == ".toml" and not file.name.startswith(".") and not os.path.isdir(file)]


def stamp_of(file: Path) -> Stamp | None:
    """Returns the stamp of a file; None if the file is missing. Raises OSError if the system refuses the request."""
    try:
        about = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _read_file(file: Path, known: _File, stamp: Stamp) -> None:
    known.read, known.why = stamp, ""
    known.refused = None
    try:
        survey, text = read_survey(file)
    except SurveyError as error:
        if isinstance(error.__cause__, OSError):
            known.read = None  # the cause may end without a change of the stamp: each look tries again
        known.why = str(error).removeprefix(f"{file}: ")
    else:
        known.refused = SurveyText(survey, file, text)  # `SurveyFolder._decide` may accept it


def change_refused(kept: Survey) -> str:
    """Returns the reason why a changed file takes no effect."""
    fingerprint = kept.fingerprint.hex()
    return (
        f"holds another survey, but survey {kept.name} with the fingerprint {fingerprint} is open and stays: restore its text, "
        f'or write replaces = "{fingerprint}" to end it'
    )
