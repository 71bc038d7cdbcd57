"""The time for which the log keeps reports."""

from typing import Final

from ldpstream.surveys import Survey

KEPT_MS: Final = 7 * 86_400_000  # shortest time for which the log keeps a report


def kept_ms(survey: Survey) -> int:
    """Returns the log's retention, in ms: a week, or longer if a window needs more steps."""
    return max(KEPT_MS, (survey.window_steps + survey.lateness_steps + 2) * survey.step_ms)
