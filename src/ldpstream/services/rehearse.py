"""A rehearsal: a copy of a survey that starts now and has short steps, to try the services out."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from ldpstream.runtime.files import write_file
from ldpstream.surveys import Survey, SurveyError, load_survey, parse_survey
from ldpstream.surveys.survey import RELAY_LATENESS
from ldpstream.surveys.survey_file import read_survey

STRING = r'"""(?s:.)*?"""|\'\'\'(?s:.)*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
COMMENT = re.compile(rf"({STRING})|[ \t]*#.*")  # matches a string first: a string may contain #


def rehearse(source: Path, out: Path, step_seconds: int, now_s: float, relay: bool = False) -> Survey:
    """Writes a copy of `source` to `out` with another name, `start` and `step_seconds`.

    The copy ends after as many steps as the survey. If `out` holds an earlier rehearsal of the survey, the copy's `replaces`
    names that rehearsal. The copy lacks the survey's own `replaces`, and the comments.

    Args:
        now_s: the new start, in seconds since 1970 UTC; the function rounds it down.
        relay: true for a copy that requires a relay. Its `lateness_steps` is then at least 2.

    Raises:
        SurveyError: if the source is not a survey, or cannot be changed in this way.
    """
    original, text = read_survey(source)
    if out.exists() and out.samefile(source):
        raise SurveyError(f"{out}: is the survey itself; give another file to write")
    start = datetime.fromtimestamp(int(now_s), UTC)
    name = f"{original.name[:54]}-rehearsal"
    text = COMMENT.sub(r"\1", text).lstrip()
    keys = {"name": f'"{name}"', "start": f"{start:%Y-%m-%dT%H:%M:%SZ}", "step_seconds": str(step_seconds)}
    if original.n_steps is not None:
        keys["ends"] = str(original.n_steps)
    if relay:
        keys["lateness_steps"] = str(max(RELAY_LATENESS, original.lateness_steps))
    for key, value in keys.items():
        text = re.sub(rf"(?m)^\s*{key}\s*=.*$", f"{key} = {value}", text, count=1)
    text = re.sub(r"(?m)^[ \t]*replaces[ \t]*=.*\n?", "", text, count=1)
    replaces = _earlier(out, name)
    if replaces is not None:
        text = f'replaces = "{replaces}"\n{text}'
    if relay and original.relay is None:
        text = f'relay = "required"\n{text}'
    refusal = SurveyError(
        f"{source}: name, start, step_seconds, ends and replaces must each be on a separate line to be replaced"
    )
    try:
        changed = parse_survey(tomllib.loads(text), str(out))
    except tomllib.TOMLDecodeError:  # for example, a text of several lines
        raise refusal from None
    wanted = (name, start, step_seconds, original.n_steps, replaces)
    if (changed.name, changed.start, changed.step_seconds, changed.n_steps, changed.replaces) != wanted:
        raise refusal
    write_file(out, text.encode())
    return changed


def _earlier(out: Path, name: str) -> str | None:
    if not out.is_file():
        return None
    try:
        earlier = load_survey(out)
    except SurveyError:
        return None
    return earlier.fingerprint.hex() if earlier.name == name else None
