"""From a population to the log: a step's reports sealed in envelopes and sent, at once or as the steps go by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    survey: Survey,
    population: Population,
    sink: Sink,
    step: int,
    envelope_bytes: int = ENVELOPE_BYTES,
    turn: int | None = None,
) -> dict[tuple[int, int], StepTruth]:
    """Send all reports of a step; returns when the sink has acknowledged every one.

    Args:
        survey: the survey that the population answers.
        population: the devices.
        sink: where the envelopes go.
        step: the survey's time step that the envelopes name.
        envelope_bytes: about the size of an envelope; one that can't hold a single report is exceeded.
        turn: the population's step that is reported; None if it is the survey's.

    Returns:
        (attribute, level) -> what was reported; without those that nobody answered.

    Raises:
        SinkError: if the sink fails. Some of the step's reports may have arrived by then.
    """
    sent = {}
    for batch in population.batches(step if turn is None else turn):
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
    """Send the reports of every step of the population, each in a step of the survey, as soon as that begins.

    The people join at the survey's current step, or at step 0 if it is still to come. Where sending takes longer than a step,
    the steps that have gone by meanwhile stay without reports.

    Args:
        survey, population, sink, envelope_bytes: as for `produce_step`.
        now_ms: the time, in milliseconds since 1970 UTC.
        sleep: waits so many seconds, 0 or more; true asks for the end, which comes after the step that has been sent.

    Yields:
        A step of the survey, once all its reports are acknowledged, and what `produce_step` returns for it.

    Raises:
        SurveyError: if a step has closed before all its reports were sent: the service rejects the later ones.
        SinkError: if the sink fails.
    """
    step = -1
    for turn in range(population.n_steps):
        step = max(step + 1, survey.step_at(now_ms()))
        while not sleep(max(0, survey.opens_ms(step) - now_ms()) / 1000):
            if now_ms() >= survey.opens_ms(step):
                break
        else:
            return
        sent = produce_step(survey, population, sink, step, envelope_bytes, turn)
        if survey.too_old(step, now_ms()):
            late_s = (now_ms() - survey.closes_ms(step)) / 1000
            raise SurveyError(
                f"survey {survey.name}: step {step} closed {late_s:.1f} s before all its reports were sent; either a step of "
                f"{survey.step_seconds} s is too short for so many reports, or the producer stood still"
            )
        yield step, sent
