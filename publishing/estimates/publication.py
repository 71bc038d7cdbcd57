"""The publication of one attribute, step and span: its estimates, privacy losses and diagnostics."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ldpstream.engines.formats import check_format
from ldpstream.estimators.smooth.ordered import MAX_ORDERED
from ldpstream.mechanisms import Mechanism
from ldpstream.promises.outlook import Privacy
from ldpstream.publishing.estimates.catalogue import MAX_FILTERED, is_numeric
from ldpstream.publishing.estimates.cross_table import CrossTable
from ldpstream.publishing.estimates.frequencies import NUMBERS, Frequencies, NumberEstimate
from ldpstream.surveys import Attribute, Survey

FORMAT = 2  # publication's format; raise it if a field changes its name or meaning, not for a new field with a default
Span = Literal["step", "window", "filtered"]
COHORT_SPANS: tuple[Span, ...] = ("step", "window")  # spans of the histograms of a cohort


class LevelEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Matrix inversion from the reports of one level only. If there are no reports, the numbers are None."""

    reports: int
    frequencies: list[float | None]
    standard_errors: list[float | None]


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """The crowd behind which a report of one step hides, in a survey with `crowd`.

    The service cannot tell honest people from forged reports.

    Attributes:
        assumed: the survey's `crowd` at the time of the publication.
        reports: by level, the number of reports counted at this step. In a survey with cohorts, it is the smallest number of a
            cohort with reports; in the publication of a cohort, the number of this cohort.
        reached: true if every number in `reports` is 0 or at least `assumed`. If false, the service does not claim the promise
            behind the relay for this step.
        memoized: the memoized levels in `reports`. Their promise also needs the same people at all steps, with unchanged values
            and memos. The service cannot check this, so `reached` does not claim the promise. One step with fewer reports ends
            the promise for all reports of the people who reported at this step.
    """

    assumed: int
    reports: dict[str, int]
    reached: bool
    memoized: list[str] = []


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """Diagnostics of an estimate: fit of the counts, drift, and differences between levels. Missing numbers are None.

    Attributes:
        mass_below_zero: sum of the negative frequencies of the raw inversion, as a positive number.
        fit_z, fit_p, fit_sign: by level, agreement of the counts with the mechanism (`estimators.diagnostics.Fit`). A normal
            score beyond ±6 means forged reports or a wrong survey.
        drift_sigma: the largest change of a frequency of the raw inversion since the previous step, in standard errors. None
            for the span "window".
        drift_value: index of the value with this change.
        drift_p: upper bound on the probability that some value changes this much without drift, for many reports.
        levels_sigma, levels_value, levels_pair: the least probable difference between two levels, in standard errors, its
            value, and the levels.
        levels_p: upper bound on the probability of a difference this large if all levels have the same histogram. If `levels_p`
            is small, people probably chose a level by their value.
        failed: names of the parts that could not be calculated.
    """

    mass_below_zero: float | None
    fit_z: dict[str, float | None]
    fit_p: dict[str, float | None] = {}
    fit_sign: dict[str, str | None] = {}
    drift_sigma: float | None = None
    drift_value: int | None = None
    drift_p: float | None = None
    levels_sigma: float | None = None
    levels_value: int | None = None
    levels_pair: list[str] | None = None
    levels_p: float | None = None
    failed: tuple[str, ...] = ()


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """A jump of a value's share that was detected at the publication's step.

    Attributes:
        changed_at: the first time step at the new level.
        size: estimated jump of the share.
        low, high: 95 % interval of `size`, if `changed_at` is right.
        sigma: |size| in standard errors.
    """

    changed_at: int
    value: int
    size: float
    low: float
    high: float
    sigma: float


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The histogram of one attribute after one step, for one of three spans, of all people or of one cohort.

        step        that step alone
        window      the sliding window that ends with the step
        filtered    the share at that step, estimated from all steps so far (`publishing.estimates.filtering`); not for
                    attributes with more than 10 000 values

    A later publication replaces an earlier publication with the same key.

    Attributes:
        cohort: the cohort whose reports were counted; None for the reports of all people. A cohort has only the default
            estimator and the raw inversion, and no diagnostics.
        below_least: true for a cohort whose reports may come from fewer people than its least size. Then no share is published,
            only numbers of reports.
        panes: number of steps with reports in the span. For the span "filtered", number of steps that the filter has observed.
        reports: number of reports counted in the span; for the span "filtered", in the step alone. If 0, the numbers of the
            estimators other than "filter" are None. "filter" then predicts from earlier steps.
        complete: true if no report could be missing when the publication was made. For the span "filtered", true if no report
            of the step could be missing.
        estimators: each estimator's result by name, for all levels together. "eb" is the default, the empirical-Bayes estimate.
            "mi" is matrix inversion, "mle" the maximum likelihood. "ibu" is expectation maximisation (EM) from uniform. "ibu"
            and "mle" are missing for more than 10 000 values. The span "filtered" has the estimator "filter" alone. It
            also uses all earlier steps. With Square Wave, the estimators are "eb", "ems" (without intervals) and "mi".
        privacy: privacy losses by level.
        numbers: mean and percentiles ("mean", "p50", "p90", "p99"), for an attribute with `bins`, or with `size` and `ordered`.
            For an attribute with `choices`, "mean" is the mean number of values of a person, and shares are shares of people.
            `numbers` is empty for other attributes, for more than 10 000 values, and without reports. For the span "filtered"
            they come from the filter's shares, also for a later step without reports; empty for Square Wave.
        levels: the estimates of single levels, for all people and the spans "step" and "window". Empty for one level, or if
            levels times values exceed `conclusions.MAX_LEVEL_NUMBERS`.
        crowd: the crowd at the step, for the span "step" of a survey with `crowd`; otherwise the JSON has no such key.
        change: the jump that the filter detected at this step; None without a jump.
        table: the cross table of a pair, for all people and the spans "step" and "window". For other publications, the JSON has
            no such key.
    """

    survey: str
    fingerprint: str
    attribute: str
    step: int
    span: Span
    cohort: str | None = None
    below_least: bool = False
    panes: int
    reports: int
    complete: bool
    estimators: dict[str, Frequencies]
    privacy: dict[str, Privacy]
    diagnostics: Diagnostics
    numbers: dict[str, NumberEstimate] = {}
    levels: dict[str, LevelEstimate] = {}
    crowd: Crowd | UnsetType = UNSET
    change: Jump | None = None
    table: CrossTable | UnsetType | None = UNSET
    format: int = FORMAT

    @property
    def main(self) -> str:
        """Name of the estimator that is shown by default: the first. There is none if `below_least`."""
        return next(iter(self.estimators))

    @property
    def key(self) -> str:
        """Key of the publication, unique within a survey: attribute, span, step, and the cohort if there is one."""
        return publication_key(self.attribute, self.span, self.step, self.cohort)


class Stated(msgspec.Struct):
    format: int = 1


stated, _publication = msgspec.json.Decoder(Stated), msgspec.json.Decoder(Publication)


def decode_publication(raw: bytes | str, where: str) -> Publication:
    """Returns a stored publication.

    Raises:
        OtherFormat: if the publication has another format.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: if `raw` is not a publication.
    """
    check_format(f"{where}: a publication", stated.decode(raw).format, FORMAT, "run the version that wrote it")
    return _publication.decode(raw)


def publication_key(attribute: str, span: Span, step: int, cohort: str | None = None) -> str:
    return f"{attribute}|{span}|{step}" if cohort is None else f"{attribute}|{span}|{step}|{cohort}"


def publication_keys(survey: Survey, step: int) -> list[str]:
    """Returns the keys of a step: for every attribute its spans, then for every attribute and cohort the cohort's spans."""
    keys = [publication_key(attribute.name, span, step) for attribute in survey.attributes for span in spans(attribute)]
    cohorts = () if survey.cohort is None else survey.cohort.values
    names = [attribute.name for attribute in survey.attributes]
    return keys + [publication_key(name, span, step, c) for name in names for c in cohorts for span in COHORT_SPANS]


def spans(attribute: Attribute) -> tuple[Span, ...]:
    return ("step", "window", "filtered") if attribute.k <= MAX_FILTERED else ("step", "window")


def number_names(attribute: Attribute, mechanisms: Sequence[Mechanism], span: Span) -> tuple[str, ...]:
    """Returns the names of a span's published numbers: `NUMBERS` for numeric values, "mean" for `choices`, else none."""
    if attribute.most is not None:
        return ("mean",)
    return () if edges_of(attribute, mechanisms, span) is None else NUMBERS


def edges_of(attribute: Attribute, mechanisms: Sequence[Mechanism], span: Span) -> tuple[float, ...] | None:
    """Returns the edges of the values' numbers; None if no mean and percentiles are published for the span."""
    return None if attribute.k > MAX_ORDERED or (span == "filtered" and is_numeric(mechanisms)) else attribute.edges
