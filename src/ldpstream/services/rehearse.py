"""A rehearsal: a copy of a survey that starts now and has short steps, to try the services out."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

from ldpstream.planning.toml_text import document_text
from ldpstream.runtime.files import write_file
from ldpstream.surveys import Survey, SurveyError, load_survey, parse_survey
from ldpstream.surveys.survey import RELAY_LATENESS
from ldpstream.surveys.survey_file import read_survey, toml_document


def rehearse(source: Path, out: Path, step_seconds: int, now_s: float, relay: bool = False) -> Survey:
    """Writes a copy of `source` to `out` with another name, `start` and `step_seconds`.

    The copy ends after as many steps as the survey. If `out` holds an earlier rehearsal of the survey, the copy's `replaces`
    names that rehearsal. The copy lacks the survey's own `replaces`, and the comments.

    Args:
        now_s: the new start, in seconds since 1970 UTC; the function rounds it down.
        relay: true for a copy that requires a relay. Its `lateness_steps` is then at least 2.

    Raises:
        SurveyError: if the source is not a survey, or `out` is the source.
    """
    original, toml = read_survey(source)
    if out.exists() and out.samefile(source):
        raise SurveyError(f"{out}: is the survey itself; give another file to write")
    document = {key: value for key, value in toml_document(toml).items() if key != "replaces"}
    name, start = f"{original.name[:54]}-rehearsal", datetime.fromtimestamp(int(now_s), UTC)
    document |= {"name": name, "start": start, "step_seconds": step_seconds}
    if original.n_steps is not None:
        document["ends"] = original.n_steps
    if relay:
        document |= {"relay": "required", "lateness_steps": max(RELAY_LATENESS, original.lateness_steps)}
    if (replaces := _earlier(out, name)) is not None:
        document["replaces"] = replaces
    text = document_text(document)
    changed = parse_survey(tomllib.loads(text), str(out))
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
