"""From a population to the log: a step's reports sealed in envelopes and sent, at once or as the steps go by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from mechanisms.arguments import IntArray
from producers.population import Population
from producers.sinks import Sink
from surveys import Survey, SurveyError, seal
from surveys.envelope import reports_per_envelope

ENVELOPE_BYTES = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class StepTruth:
    """What the people who reported an attribute at a level in a step really had.

    Attributes:
        reports: number of reports, at least 1.
        truth: (k,) int64, how many of these people have each value.
    """

    reports: int
    truth: IntArray


def produce_step(
    survey: Survey, population: Population, sink: Sink, step: int, envelope_bytes: int = ENVELOPE_BYTES
) -> dict[tuple[int, int], StepTruth]:
    """Send all reports of a step; returns when the sink has acknowledged every one.

    Args:
        survey: the survey that the population answers.
        population: the devices.
        sink: where the envelopes go.
        step: the time step.
        envelope_bytes: about the size of an envelope; one that can't hold a single report is exceeded.

    Returns:
        (attribute, level) -> what was reported; without those that nobody answered.

    Raises:
        SinkError: if the sink fails. Some of the step's reports may have arrived by then.
    """
    sent = {}
    for batch in population.batches(step):
        row_bytes = survey.mechanisms[batch.attribute][batch.level].report_dtype.itemsize
        size = reports_per_envelope(row_bytes, envelope_bytes)
        for first in range(0, len(batch.reports), size):
            sink.send(seal(survey, batch.attribute, batch.level, step, batch.reports[first : first + size]))
        sent[batch.attribute, batch.level] = StepTruth(len(batch.reports), batch.truth)
    sink.flush()
    return sent


def produce_live(
    survey: Survey,
    population: Population,
    sink: Sink,
    now_ms: Callable[[], int],
    sleep: Callable[[float], bool],
    envelope_bytes: int = ENVELOPE_BYTES,
) -> Iterator[tuple[int, dict[tuple[int, int], StepTruth]]]:
    """Send the reports of every step, from step 0 on, as soon as the step begins.

    Args:
        survey, population, sink, envelope_bytes: as for `produce_step`.
        now_ms: the time, in milliseconds since 1970 UTC.
        sleep: waits so many seconds, 0 or more; true asks for the end, which comes after the step that has been sent.

    Yields:
        A step, once all its reports are acknowledged, and what `produce_step` returns for it.

    Raises:
        SurveyError: if step 0 is over before the first report, or a step has closed before its turn came: the service
            would reject the reports.
        SinkError: if the sink fails.
    """
    if now_ms() >= survey.opens_ms(1):
        raise SurveyError(_too_late(survey, population.n_steps, now_ms()))
    for step in range(population.n_steps):
        while not sleep(max(0, survey.opens_ms(step) - now_ms()) / 1000):
            if now_ms() >= survey.opens_ms(step):
                break
        else:
            return
        if survey.too_old(step, now_ms()):
            late_s = (now_ms() - survey.closes_ms(step)) / 1000
            raise SurveyError(
                f"survey {survey.name}: step {step} closed {late_s:.1f} s before its reports could be sent; either a step of "
                f"{survey.step_seconds} s is too short for so many reports, or the producer stood still"
            )
        yield step, produce_step(survey, population, sink, step, envelope_bytes)


def _too_late(survey: Survey, n_steps: int, now_ms: int) -> str:
    start = datetime.fromtimestamp(survey.start_ms / 1000, UTC)
    last = "" if now_ms < survey.opens_ms(n_steps) else f" and the last one to report, {n_steps - 1}, is over"
    return (
        f"survey {survey.name}: start must be in the future, or less than a step ago; got {start:%Y-%m-%dT%H:%M:%SZ}, "
        f"so it is in step {survey.step_at(now_ms)}{last}"
    )
