"""Makes the two Grafana dashboards: `python deploy/grafana/dashboards.py` writes dashboards/*.json.

The dashboard *Population* shows the estimates; *Privacy and pipeline* shows the privacy loss and the state of the service.
Every panel queries time series that the processes export. A test runs every query against a real Prometheus.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import GraphThresholdsStyleConfig, ReduceDataOptions, VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BarGaugeValueMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
OF = '{survey="$survey", attribute="$attribute"}'
SPAN = '{survey="$survey", attribute="$attribute", span="$span"}'
COUNTED = '{survey="$survey", attribute="$attribute", span!="filtered"}'
# "filter" is the only estimator of the span "filtered", and no other span has this estimator
ESTIMATE = '{survey="$survey", attribute="$attribute", span="$span", estimator=~"$estimator|filter"}'
VALUE = '{survey="$survey", attribute="$attribute", span="$span", estimator=~"$estimator|filter", value="$value"}'
LEVELS = '{survey="$survey"}'
BY_LEVEL = "max by (attribute, level)"  # standby estimators export the same values as the working estimator

MAX_BARS = 256  # largest number of an attribute's values that have time series
OUTCOMES, ACCEPTED = "sum by (outcome) (rate(ldpstream_gateway_requests_total%s[$__rate_interval]))", '{outcome="accepted"}'

Shape = Callable[[], timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel]


@dataclass(frozen=True)
class Panel:
    """One panel: kind, title, description, unit, (query, legend) pairs, and size on Grafana's grid of 24 columns.

    `steps` are (lower bound, colour) pairs in increasing order; a first bound of None means minus infinity. Without `steps`,
    Grafana's default thresholds would colour every number above 80 red.
    """

    kind: Shape
    title: str
    about: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    most: float | None = None  # value of a full bar; None: the largest value


def lines() -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.RIGHT).show_legend(True)
    return timeseries.Panel().legend(legend).fill_opacity(8)


def number() -> stat.Panel:
    return stat.Panel().reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))


def bars() -> bargauge.Panel:
    """Returns a bar for every row of a table. Sorts by the hidden column `index`: by name, 100 would be before 20."""
    return (
        bargauge.Panel()
        .orientation(VizOrientation.HORIZONTAL)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .value_mode(BarGaugeValueMode.TEXT)
        .min_viz_height(12)
        .min(0)
        .reduce_options(ReduceDataOptions().values(True).calcs(["lastNotNull"]).limit(MAX_BARS))
        .with_transformation(DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": "index"}]}))
        .with_transformation(DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True, "index": True}}))
    )


POPULATION = (
    Panel(bars, "Histogram", "Estimated share of every value that has a series, latest estimate.", "percentunit",
          ((f"max by (index, value) (ldpstream_frequency_ratio{ESTIMATE})", "{{value}}"),), 12, 12),
    Panel(bars, "Standard errors", "Of the same shares; the 95 % interval is ± 1.96 standard errors.", "percentunit",
          ((f"max by (index, value) (ldpstream_frequency_standard_error_ratio{ESTIMATE})", "{{value}}"),), 12, 12),
    Panel(lines, "Most frequent values over time", "The ten most frequent values at each moment.", "percentunit",
          ((f"topk(10, max by (value) (ldpstream_frequency_ratio{ESTIMATE}))", "{{value}}"),), 24, 9),
    Panel(lines, "$value, with its interval of 95 %", "The estimate ± 1.96 standard errors.", "percentunit",
          ((f"max(ldpstream_frequency_ratio{VALUE})", "estimate"),
           (f"max(ldpstream_frequency_ratio{VALUE} + 1.96 * ldpstream_frequency_standard_error_ratio{VALUE})", "upper"),
           (f"max(ldpstream_frequency_ratio{VALUE} - 1.96 * ldpstream_frequency_standard_error_ratio{VALUE})", "lower"))),
    Panel(lines, "Reports behind the estimate", "In the step, and in the sliding window.", "short",
          ((f"max by (span) (ldpstream_estimate_reports{COUNTED})", "{{span}}"),)),
    Panel(lines, "Drift since the last step", "Largest change of a share, in standard errors; see ldpstream_drift_p.", "none",
          ((f"max(ldpstream_drift_sigma{OF})", "standard errors"),), 8, steps=((None, "green"), (5, "orange"))),
    Panel(lines, "Jumps that the filter detected", "Jumps of a share; see ldpstream_change_size_ratio for the last size.",
          "none",
          ((f"sum(increase(ldpstream_changes_total{OF}[$__rate_interval]))", "jumps"),), 8),
    Panel(lines, "Estimate against mechanism", "z-score of the counts; beyond ±6: forged reports or a wrong survey.",
          "none",
          ((f"max by (level) (ldpstream_fit_z{OF})", "{{level}}"),), 8,
          steps=((None, "red"), (-6, "green"), (6, "red"))),
)  # fmt: skip

PRIVACY = (
    Panel(bars, "Privacy budget spent",
          "ε_t of ε∞ for an unchanged value; at a level with lifetime_reports: ε_sequence of ε_lifetime, for any values.",
          "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS} / ldpstream_privacy_eps_lifetime_nats{LEVELS} > 0"
            f" or ldpstream_privacy_eps_t_nats{LEVELS} / ldpstream_privacy_eps_inf_nats{LEVELS})",
            "{{attribute}} · {{level}}"),), 12, 9, steps=((None, "green"), (0.8, "orange")), most=1),
    Panel(lines, "Privacy loss in nats", "ε_t for an unchanged value, and its bound ε∞.", "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_t_nats{LEVELS})", "ε_t {{attribute}} · {{level}}"),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_inf_nats{LEVELS})", "ε∞ {{attribute}} · {{level}}")), 12, 9),
    Panel(lines, "Privacy loss if values change, in nats", "Between any two sequences of values: exact, or a proven bound.",
          "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS})", "{{attribute}} · {{level}}"),), 12, 8),
    Panel(number, "Reports a second", "Counted by all agents.", "short",
          (("sum(rate(ldpstream_reports_total[$__rate_interval]))", "reports/s"),), 6, 8),
    Panel(number, "Records waiting", "In the log, not yet in a count table.", "short",
          ((f"max(ldpstream_lag_records{LEVELS})", "records"),), 6, 8, steps=((None, "green"), (10_000, "red"))),
    Panel(lines, "Envelopes by outcome", "Counted, and rejected by reason.", "cps",
          (("sum(rate(ldpstream_records_total[$__rate_interval])) - sum(rate(ldpstream_rejected_total[$__rate_interval]))",
            "counted"),
           ("sum by (reason) (rate(ldpstream_rejected_total[$__rate_interval]))", "{{reason}}"))),
    Panel(lines, "Requests to the gateways", "By outcome.", "reqps",
          ((f"{OUTCOMES % ''} > 0 or {OUTCOMES % ACCEPTED}", "{{outcome}}"),)),
    Panel(lines, "Time to commit", "One partition's changes to the count store.", "s",
          (("histogram_quantile(0.5, sum by (le) (rate(ldpstream_commit_seconds_bucket[$__rate_interval])))", "p50"),
           ("histogram_quantile(0.99, sum by (le) (rate(ldpstream_commit_seconds_bucket[$__rate_interval])))", "p99"))),
    Panel(lines, "Estimate overdue", "Time since the next estimate was due; below zero: not due yet.",
          "s",
          ((f"time() - max by (survey) (ldpstream_next_estimate_due_timestamp_seconds{LEVELS})", "{{survey}}"),),
          steps=((None, "green"), (120, "red"))),
    Panel(lines, "Recoveries", "Gaps, refused commits and records delivered twice are harmless; lost records are not.",
          "short",
          (("sum(increase(ldpstream_gaps_total[$__rate_interval]))", "gaps"),
           ("sum(increase(ldpstream_refused_commits_total[$__rate_interval]))", "commits refused"),
           ("sum(increase(ldpstream_redelivered_total[$__rate_interval]))", "delivered twice"),
           ("sum(increase(ldpstream_missing_offsets_total[$__rate_interval]))", "records lost"))),
)  # fmt: skip


def thresholds(steps: tuple[tuple[float | None, str], ...]) -> ThresholdsConfig:
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(value, colour) for value, colour in steps])


def variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def choice(name: str, label: str, options: tuple[str, ...]) -> dashboard.CustomVariable:
    first = VariableOption(text=options[0], value=options[0], selected=True)
    return dashboard.CustomVariable(name).label(label).values(",".join(options)).current(first)


def build(uid: str, title: str, panels: tuple[Panel, ...], variables: tuple[object, ...]) -> str:
    """Returns a dashboard as JSON."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["ldpstream"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for each in variables:
        made = made.with_variable(each)  # type: ignore[arg-type]
    x = y = row = 0
    for number_of, panel in enumerate(panels, 1):
        if x + panel.width > 24:
            x, y, row = 0, y + row, 0
        drawn = panel.kind().id(number_of).title(panel.title).description(panel.about).datasource(SOURCE).unit(panel.unit)
        drawn = drawn.grid_pos(GridPos(h=panel.height, w=panel.width, x=x, y=y)).thresholds(thresholds(panel.steps))
        if panel.most is not None:
            drawn = drawn.max(panel.most)
        if panel.kind is lines and len(panel.steps) > 1:
            drawn = drawn.thresholds_style(GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
        for i, (query, legend) in enumerate(panel.queries):
            target = prometheus.Dataquery().ref_id("ABCDEF"[i]).expr(query).legend_format(legend).datasource(SOURCE)
            drawn = drawn.with_target(target.instant().format(PromQueryFormat.TABLE) if panel.kind is bars else target.range())
        made = made.with_panel(drawn)
        x, row = x + panel.width, max(row, panel.height)
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def dashboards() -> dict[str, str]:
    """Returns each dashboard's file name and JSON."""
    survey = variable("survey", "Survey", "label_values(ldpstream_estimate_step, survey)")
    attribute = variable("attribute", "Attribute", 'label_values(ldpstream_estimate_step{survey="$survey"}, attribute)')
    value = variable("value", "Value", f"label_values(ldpstream_frequency_ratio{OF}, value)")
    span = choice("span", "Span", ("window", "step", "filtered"))
    estimator = choice("estimator", "Estimator (window, step)", ("ibu", "mi", "mle"))
    return {
        "population.json": build(
            "ldpstream-population", "ldpstream: population", POPULATION, (survey, attribute, span, estimator, value)
        ),
        "privacy.json": build("ldpstream-privacy", "ldpstream: privacy and pipeline", PRIVACY, (survey,)),
    }


def main() -> None:
    """Write the files for Grafana."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in dashboards().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
