"""Sends a population's reports to the log in envelopes, either one step at once, or each step when the step begins."""

from collections.abc import Callable, Iterator

from ldpstream.producers.population import PaneReports, Population
from ldpstream.producers.sinks import Sink, TooLateError
from ldpstream.surveys import Survey, SurveyError, seal
from ldpstream.surveys.envelope import reports_per_envelope

ENVELOPE_BYTES = 16_384


def produce_step(
    survey: Survey,
    population: Population,
    sink: Sink,
    step: int,
    turn: int | None = None,
    envelope_bytes: int = ENVELOPE_BYTES,
) -> list[PaneReports]:
    """Sends all reports of a step; returns them when the sink has acknowledged every report.

    Args:
        turn: the population's step whose reports are sent; None if it equals the survey's step.
        envelope_bytes: approximate size of an envelope; larger if a single report needs more.

    Raises:
        SinkError: if a report cannot be sent, or was not acknowledged.
    """
    sent = list(population.reports(step if turn is None else turn))
    for pane in sent:
        row_bytes = survey.mechanisms[pane.attribute][pane.level].row_bytes
        size = reports_per_envelope(row_bytes, envelope_bytes)
        for first in range(0, len(pane.reports), size):
            sink.send(seal(survey, pane.attribute, pane.level, step, pane.reports[first : first + size], pane.cohort))
    sink.flush()
    return sent


def produce_live(
    survey: Survey,
    population: Population,
    sink: Sink,
    now_ms: Callable[[], int],
    sleep: Callable[[float], bool],
    told: Callable[[str], object],
    envelope_bytes: int = ENVELOPE_BYTES,
) -> Iterator[tuple[int, list[PaneReports]]]:
    """At the beginning of each step of the survey, sends all reports of one step of the population.

    The population's step 0 is sent at the survey's current step, or at the survey's step 0 if the survey has not begun. If
    sending takes longer than a step, the steps that pass meanwhile get no reports. No step after the survey's last step is
    sent.

    Args:
        sleep: waits the given seconds, 0 or more; returns true to stop before the next step.
        told: called with a line about each step that closed too early.

    Yields:
        A step of the survey whose reports were all acknowledged before the step closed, and the result of `produce_step`.

    Raises:
        SurveyError: if the survey has already ended.
        SinkError: as for `produce_step`, except a `TooLateError`.
    """
    step = -1
    for turn in range(population.n_steps):
        step = max(step + 1, survey.step_at(now_ms()))
        if survey.ended(step):
            if turn == 0:
                last = (survey.n_steps or 0) - 1
                raise SurveyError(f"survey {survey.name} has ended: the present step is {step}, the last step was {last}")
            return
        while not sleep(max(0, survey.opens_ms(step) - now_ms()) / 1000):
            if now_ms() >= survey.opens_ms(step):
                break
        else:
            return
        try:
            sent = produce_step(survey, population, sink, step, turn, envelope_bytes)
        except TooLateError:
            sent = None
        left_s = (survey.closes_ms(step) - now_ms()) / 1000
        if sent is not None and left_s > 0:
            yield step, sent
        else:
            told(
                f"survey {survey.name}: step {step} closed before all its reports were sent, so some are lost; a step of "
                f"{survey.step_seconds} s is too short for so many reports, the producer stalled, or the service's clock is "
                f"ahead: by the clock here {left_s:.1f} s are left"
            )
