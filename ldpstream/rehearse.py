"""A rehearsal: the same questions with a start now and short steps, to try the services out."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from surveys import Survey, SurveyError, load_survey, parse_survey


def rehearse(source: Path, out: Path, step_seconds: int, now_s: float) -> Survey:
    """Write `source` to `out` with another name, `start` and `step_seconds`, and nothing else changed.

    The name gets "-rehearsal" at its end, so that a rehearsal has topics and counts of its own.

    Args:
        source: the survey file.
        out: the file to write, another one.
        step_seconds: the new length of a step.
        now_s: the new start, in seconds since 1970 UTC; whole seconds count.

    Raises:
        SurveyError: if the source is not a survey, or cannot be changed like that; nothing is written then.
    """
    original = load_survey(source)
    if out.exists() and out.samefile(source):
        raise SurveyError(f"{out}: is the survey itself; name another file to write")
    start = datetime.fromtimestamp(int(now_s), UTC)
    name = f"{original.name[:54]}-rehearsal"
    text = source.read_text(encoding="utf-8")
    for key, value in (("name", f'"{name}"'), ("start", f"{start:%Y-%m-%dT%H:%M:%SZ}"), ("step_seconds", str(step_seconds))):
        text = re.sub(rf"(?m)^\s*{key}\s*=.*$", f"{key} = {value}", text, count=1)
    changed = parse_survey(tomllib.loads(text), str(out))
    if (changed.name, changed.start, changed.step_seconds) != (name, start, step_seconds):
        raise SurveyError(f"{source}: name, start and step_seconds must stand on lines of their own to be replaced")
    out.write_text(text, encoding="utf-8")
    return changed
