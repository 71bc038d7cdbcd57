"""The queries of the API: one model for each kind of answer."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ldpstream.estimators.estimate import LEAST_LEVEL, MOST_LEVEL
from ldpstream.publishing.estimates.catalogue import ESTIMATORS, INVERSION
from ldpstream.publishing.estimates.publication import Span

Step = Annotated[int | None, Field(ge=0, le=2**53)]
Cohort = Annotated[str | None, Field(max_length=200)]
Top = Annotated[
    int | None,
    Field(ge=1, le=100_000, description="number of values to return: the most frequent, or in a comparison the clearest"),
]


class StatusQuery(BaseModel):
    """Selects a span."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    span: Span = Field("window", description="one step alone, the window that ends with this step, or the filtered curve")


class TableQuery(StatusQuery):
    """Selects a span and its last step."""

    step: Step = Field(None, description="last step of the span; default: the latest published step")


class CohortQuery(TableQuery):
    """Also selects a cohort."""

    cohort: Cohort = Field(None, description="a cohort of the survey, for the spans step and window; default: all people")


class UsageQuery(BaseModel):
    """Selects several steps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: Step = Field(None, description="the last step; default: the latest published step")
    last: int = Field(52, ge=1, le=1000, description="number of steps, up to `step`")


class IntervalQuery(CohortQuery):
    """Also selects an estimator, and the confidence of its intervals."""

    estimator: str | None = Field(
        None, max_length=16, description=f"one of {', '.join(row.name for row in ESTIMATORS)}; default: the attribute's"
    )
    confidence: float = Field(0.95, ge=LEAST_LEVEL, le=MOST_LEVEL, description="confidence level of the intervals")


class HistogramQuery(IntervalQuery):
    """Selects one estimate."""

    post: str = Field("none", max_length=16, description=f"post-processing of {INVERSION}")
    top: Top = None


class PeriodQuery(CohortQuery):
    """Selects two spans, or two cohorts."""

    before: Step = Field(
        None, description="last step of the earlier span; default: the span of this length that ends before it"
    )
    against: Cohort = Field(
        None, description="in place of `before`: the cohort that is subtracted from `cohort`; empty for all people"
    )


class OverviewQuery(PeriodQuery):
    """Also selects values."""

    top: int = Field(8, ge=1, le=100_000, description="number of values of each attribute, and of changes")
    find: str | None = Field(None, max_length=200, description="only attributes and values whose text contains this")


class ComparisonQuery(PeriodQuery, IntervalQuery):
    """Selects two estimates of one attribute."""

    top: Top = None


class NumbersQuery(CohortQuery):
    """Selects the estimates of several steps."""

    last: int = Field(
        48, ge=1, le=100_000,
        description="number of steps, up to `step`; of more than 1000 steps, one in `every` is returned",
    )  # fmt: skip


class SeriesQuery(NumbersQuery, IntervalQuery):
    """Selects values of several steps."""

    values: str | None = Field(
        None, max_length=4000, description="comma-separated labels or indices of values; default: the five most frequent"
    )
