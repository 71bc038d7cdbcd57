"""Makes the two Grafana dashboards: `python deploy/grafana/dashboards.py` writes dashboards/*.json.

The dashboard *Population* shows the estimates; *Privacy and pipeline* shows the privacy loss and the state of the service.
Every panel queries time series that the processes export. Tests run every query against a real Prometheus, and draw every panel
with Grafana's own components (`tests/deploy/panels.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    ScaleDistributionConfig,
    VizLegendOptions,
)
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    GridPos,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
    VariableSort,
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
BY_VALUE = "max by (index, value)"  # `index` first: Prometheus sorts series by their labels, so values keep the survey's order
HALF = "1.96 * ldpstream_frequency_standard_error_ratio"  # half of the 95 % interval
LEAST_P = 1e-9  # end of the p-values' axis, which is logarithmic; a smaller p-value is drawn here

Shape = Callable[[], timeseries.Panel | stat.Panel | table.Panel]
Steps = tuple[tuple[float | None, str], ...]


@dataclass(frozen=True)
class Panel:
    """One panel: shape, title, description, unit, (query, legend) pairs, and size on Grafana's grid of 24 columns.

    In a table, the legend is the title of the query's column. `steps` are (lower bound, colour) pairs in increasing order; a
    first bound of None means minus infinity. Without `steps`, Grafana's default thresholds would colour every number above 80
    red. `empty` is the text without data.
    """

    shape: Shape
    title: str
    about: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    height: int = 8
    steps: Steps = ((None, "blue"),)
    empty: str = "no estimate yet"


# ---- shapes of panels


def lines() -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    return timeseries.Panel().legend(legend).fill_opacity(0)


def many_lines() -> timeseries.Panel:
    """Returns lines with the last value of each in the legend."""
    legend = VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT).show_legend(True)
    return timeseries.Panel().legend(legend.calcs(["lastNotNull"])).fill_opacity(0).min(0)


def counts() -> timeseries.Panel:
    """Returns lines of numbers that are never negative. Without the soft maximum, Grafana draws zeros on an axis up to 100."""
    return lines().min(0).axis_soft_max(0.1)


def late() -> timeseries.Panel:
    return lines().min(0).axis_soft_max(150)  # shows the threshold


def chances() -> timeseries.Panel:
    return lines().min(0).max(1)


def fits() -> timeseries.Panel:
    return lines().axis_soft_min(-7).axis_soft_max(7)  # shows the thresholds


def p_values() -> timeseries.Panel:
    scale = ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)
    return lines().scale_distribution(scale).min(LEAST_P).max(1)


def interval() -> timeseries.Panel:
    """Returns a line and its shaded interval."""
    blue = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "blue"})
    edge = [blue, DynamicConfigValue("custom.lineWidth", 0), DynamicConfigValue("custom.showPoints", "never")]
    shade = [DynamicConfigValue("custom.fillBelowTo", "95 % from"), DynamicConfigValue("custom.fillOpacity", 25)]
    return (
        lines()
        .override_by_name("estimate", [blue, DynamicConfigValue("custom.lineWidth", 2)])
        .override_by_name("95 % from", edge)
        .override_by_name("95 % to", edge + shade)
    )


def number() -> stat.Panel:
    return (
        stat.Panel()
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(BigValueGraphMode.NONE)
        .color_mode(BigValueColorMode.VALUE)
    )


def reports() -> stat.Panel:
    return number().mappings([words({"0": ("nobody reported", "orange")})])


def completeness() -> stat.Panel:
    return number().mappings([words({"1": ("complete", "green"), "0": ("reports missing", "orange")})])


def recoveries() -> stat.Panel:
    red = {"mode": "absolute", "steps": [{"value": None, "color": "green"}, {"value": 1, "color": "red"}]}
    return (
        number()
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .override_by_name("records lost", [DynamicConfigValue("thresholds", red)])
    )


def words(shown: dict[str, tuple[str, str]]) -> ValueMapping:
    """Returns a mapping from numbers to a text and its colour."""
    return ValueMap(options={key: ValueMappingResult(text=text, color=colour) for key, (text, colour) in shown.items()})


TEXT = DynamicConfigValue("unit", "string")  # otherwise Grafana would show the value "3" as 300 %
UNKNOWN = DynamicConfigValue("noValue", "–")  # for example, an interval that is withheld


def rows(sorted_by: tuple[str, ...], hidden: tuple[str, ...], named: dict[str, str]) -> table.Panel:
    """Returns a table with a row for each combination of labels, and a column for each query.

    Args:
        sorted_by: labels, the most important last.
        hidden: columns that the table does not show.
        named: titles of the columns, in order.
    """
    made = table.Panel().show_header(True).with_transformation(DataTransformerConfig(id_val="merge", options={}))
    for label in sorted_by:
        made = made.with_transformation(DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": label}]}))
    places = {name: i for i, name in enumerate(named)}
    organize = {"excludeByName": dict.fromkeys(hidden, True), "indexByName": places, "renameByName": named}
    return made.with_transformation(DataTransformerConfig(id_val="organize", options=organize))


def bar(*more: DynamicConfigValue) -> list[DynamicConfigValue]:
    """Returns the properties of a column that is drawn as bars."""
    gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return [DynamicConfigValue("custom.cellOptions", gauge), DynamicConfigValue("min", 0), *more]


def histogram() -> table.Panel:
    """Returns rows in the survey's order: sorted by the hidden column `index`. By name, 100 would be before 20."""
    named = {"value": "Value", "Value #A": "Share", "Value #B": "95 % from", "Value #C": "95 % to"}
    made = rows(("index",), ("Time", "index"), named).override_by_name("Value", [TEXT])
    made = made.override_by_name("Share", bar(UNKNOWN))
    for edge in ("95 % from", "95 % to"):
        made = made.override_by_name(edge, [UNKNOWN, DynamicConfigValue("custom.width", 100)])
    return made


def promises() -> table.Panel:
    named = {
        "attribute": "Attribute", "level": "Level", "Value #A": NO_REPORT, "Value #B": UNCHANGED, "Value #C": CHANGING,
        "Value #D": USED, "Value #E": "ε_t", "Value #F": "ε∞", "Value #G": "ε_sequence",
    }  # fmt: skip
    whole, nats = DynamicConfigValue("max", 1), [DynamicConfigValue("unit", "none"), DynamicConfigValue("decimals", 2), UNKNOWN]
    orange = {"mode": "absolute", "steps": [{"value": None, "color": "blue"}, {"value": 0.8, "color": "orange"}]}
    made = rows(("level", "attribute"), ("Time",), named)
    for column in ("Attribute", "Level"):
        made = made.override_by_name(column, [TEXT])
    for column in (UNCHANGED, CHANGING):
        made = made.override_by_name(column, bar(whole))
    made = made.override_by_name(USED, bar(whole, UNKNOWN, DynamicConfigValue("thresholds", orange)))
    for column in ("ε_t", "ε∞", "ε_sequence"):
        made = made.override_by_name(column, [*nats, DynamicConfigValue("custom.width", 100)])
    return made


# ---- the panels

NO_REPORT, UNCHANGED, CHANGING = "Without a report", "Value never changed", "Value may change: at most"
USED = "Part of the bound used"
GUESS = 'max(ldpstream_privacy_guess_%s_ratio{survey="$survey", attribute="$attribute"})'
RIGHT = "Chance that somebody who sees all reports of a participant so far guesses the value"
# the values that were most frequent last, in the time shown; the estimates of a stopped estimator remain
TOP = f"topk(10, max by (value) (last_over_time(ldpstream_frequency_ratio{ESTIMATE}[$__range] @ end())))"
OUTCOMES, ACCEPTED = "sum by (outcome) (rate(ldpstream_gateway_requests_total%s[$__rate_interval]))", '{outcome="accepted"}'


def happened(counter: str) -> str:
    """Returns a query: how often a counter has counted in the time shown."""
    return f"round(sum(increase({counter}[$__range])))"


POPULATION = (
    Panel(reports, "Reports", "Reports in the latest estimate.", "locale",
          ((f"max(ldpstream_estimate_reports{SPAN})", "reports"),), 4, 4),
    Panel(completeness, "Complete?", "Whether no report can be missing from the latest estimate.", "none",
          ((f"max(ldpstream_estimate_complete{SPAN})", "complete"),), 4, 4),
    Panel(number, "Right guess: unchanged value",
          f"{RIGHT}, if it never changed. The level with the weakest promise.", "percentunit",
          ((GUESS % "unchanged", "chance"),), 4, 4),
    Panel(number, "Right guess: changing value",
          f"{RIGHT} at one step, if it may change: at most this. The level with the weakest promise.", "percentunit",
          ((GUESS % "changing", "chance"),), 4, 4),
    Panel(number, "Jumps in the time shown", "Lasting changes of a share that the filter detected.", "none",
          ((happened(f"ldpstream_changes_total{OF}"), "jumps"),), 4, 4, ((None, "blue"), (1, "orange")), "no filter"),
    Panel(number, "Last jump, percentage points", "Change of the share; the page and the API name the value and the step.",
          "suffix: points", ((f"100 * max(ldpstream_change_size_ratio{OF})", "size"),), 4, 4, empty="no jump"),
    Panel(histogram, "Histogram",
          "Estimated share of every value that has a series, latest estimate, with its 95 % interval.", "percentunit",
          ((f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE})", "Share"),
           (f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE} - {HALF}{ESTIMATE})", "95 % from"),
           (f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE} + {HALF}{ESTIMATE})", "95 % to")), 12, 14),
    Panel(interval, "$value, with its interval of 95 %", "The estimate ± 1.96 standard errors.", "percentunit",
          ((f"max(ldpstream_frequency_ratio{VALUE})", "estimate"),
           (f"max(ldpstream_frequency_ratio{VALUE} - {HALF}{VALUE})", "95 % from"),
           (f"max(ldpstream_frequency_ratio{VALUE} + {HALF}{VALUE})", "95 % to")), 12, 14),
    Panel(many_lines, "Most frequent values over time", "The ten most frequent values of the latest estimate.", "percentunit",
          ((f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE}) and on (value) {TOP}", "{{value}}"),), 24, 10),
    Panel(counts, "Reports behind the estimate", "In the step, and in the sliding window.", "locale",
          ((f"max by (span) (ldpstream_estimate_reports{COUNTED})", "{{span}}"),), 8),
    Panel(p_values, "Significance of differences (p-value)",
          "Chance of so large a difference without drift, or if all levels agree. Below 5.7e-7 the alerts fire.", "sci",
          ((f"clamp_min(min(ldpstream_drift_p{OF}), {LEAST_P:g})", "since the last step"),
           (f"clamp_min(min by (span) (ldpstream_levels_p{OF}), {LEAST_P:g})", "between levels, {{span}}")), 8,
          steps=((None, "orange"), (5.7e-7, "transparent"))),
    Panel(fits, "Estimate against mechanism", "z-score of the counts; beyond ±6: forged reports or a wrong survey.", "none",
          ((f"max by (level) (ldpstream_fit_z{OF})", "{{level}}"),), 8,
          steps=((None, "red"), (-6, "transparent"), (6, "red"))),
)  # fmt: skip

PRIVACY = (
    Panel(promises, "Chance of a right guess, and privacy loss in nats",
          f"{RIGHT}, from a uniform prior. Bound used: ε_t of ε∞, for an unchanged value; at a level with lifetime_reports: "
          "ε_sequence of ε_lifetime, for any values.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_without_report_ratio{LEVELS})", NO_REPORT),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_unchanged_ratio{LEVELS})", UNCHANGED),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_changing_ratio{LEVELS})", CHANGING),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS} / ldpstream_privacy_eps_lifetime_nats{LEVELS} > 0"
            f" or ldpstream_privacy_eps_t_nats{LEVELS} / ldpstream_privacy_eps_inf_nats{LEVELS} > 0)", USED),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_t_nats{LEVELS})", "ε_t"),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_inf_nats{LEVELS}) < +Inf", "ε∞"),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS})", "ε_sequence")), 24, 7),
    Panel(chances, "Chance of a right guess: value never changed", f"{RIGHT}, if it never changed.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_unchanged_ratio{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(chances, "Chance of a right guess: value may change", f"{RIGHT} at one step: at most this.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_changing_ratio{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(counts, "Privacy loss in nats: value never changed", "ε_t; the table shows its bound ε∞.", "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_t_nats{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(counts, "Privacy loss in nats: value may change", "Between any two sequences of values: exact, or a proven bound.",
          "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(number, "Reports a second", "Counted by all agents.", "short",
          (("sum(rate(ldpstream_reports_total[$__rate_interval]))", "reports/s"),), 6, 4, empty="no agent"),
    Panel(number, "Records waiting", "In the log, not yet in a count table.", "short",
          ((f"max(ldpstream_lag_records{LEVELS})", "records"),), 6, 4, ((None, "green"), (10_000, "red")), "no estimator"),
    Panel(number, "Envelopes rejected", "Of the envelopes of the last 15 minutes.", "percentunit",
          (("sum(rate(ldpstream_rejected_total[15m])) / sum(rate(ldpstream_records_total[15m]))", "rejected"),), 6, 4,
          ((None, "green"), (0.05, "red")), "no envelopes"),
    Panel(number, "Agents that count", "Agents with at least one partition.", "none",
          (("count(ldpstream_partitions > 0) or vector(0)", "agents"),), 6, 4, ((None, "red"), (1, "green"))),
    Panel(counts, "Envelopes by outcome", "Counted, and rejected by reason.", "suffix:/s",
          (("sum(rate(ldpstream_records_total[$__rate_interval])) - sum(rate(ldpstream_rejected_total[$__rate_interval]))",
            "counted"),
           ("sum by (reason) (rate(ldpstream_rejected_total[$__rate_interval])) > 0", "{{reason}}")), empty="no agent"),
    Panel(counts, "Requests to the gateways", "By outcome.", "suffix:/s",
          ((f"{OUTCOMES % ''} > 0 or {OUTCOMES % ACCEPTED}", "{{outcome}}"),), empty="no gateway"),
    Panel(lines, "Time to commit", "One partition's changes to the count store.", "s",
          (("histogram_quantile(0.5, sum by (le) (rate(ldpstream_commit_seconds_bucket[$__rate_interval])))", "p50"),
           ("histogram_quantile(0.99, sum by (le) (rate(ldpstream_commit_seconds_bucket[$__rate_interval])))", "p99")),
          empty="no agent"),
    Panel(late, "Estimate overdue", "Time since the next estimate was due; 0: not due yet.", "s",
          ((f"clamp_min(time() - max by (survey) (ldpstream_next_estimate_due_timestamp_seconds{LEVELS}), 0)", "{{survey}}"),),
          steps=((None, "transparent"), (120, "red")), empty="no estimator"),
    Panel(recoveries, "Recoveries in the time shown",
          "Gaps, refused commits and records delivered twice are harmless; lost records are not.", "locale",
          ((happened("ldpstream_gaps_total"), "gaps"),
           (happened("ldpstream_refused_commits_total"), "commits refused"),
           (happened("ldpstream_redelivered_total"), "delivered twice"),
           (happened("ldpstream_missing_offsets_total"), "records lost")), 24, 4, ((None, "green"),), "no agent"),
)  # fmt: skip


def variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.NUMERICAL_ASC)
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
        drawn = panel.shape().id(number_of).title(panel.title).description(panel.about).datasource(SOURCE).unit(panel.unit)
        steps = [Threshold(value, colour) for value, colour in panel.steps]
        drawn = drawn.thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        drawn = drawn.grid_pos(GridPos(h=panel.height, w=panel.width, x=x, y=y)).no_value(panel.empty)
        if isinstance(drawn, timeseries.Panel) and len(panel.steps) > 1:
            drawn = drawn.thresholds_style(GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
        for i, (query, legend) in enumerate(panel.queries):
            target = prometheus.Dataquery().ref_id("ABCDEFG"[i]).expr(query).legend_format(legend).datasource(SOURCE)
            if isinstance(drawn, timeseries.Panel):
                drawn = drawn.with_target(target.range())
            else:
                form = PromQueryFormat.TABLE if isinstance(drawn, table.Panel) else PromQueryFormat.TIME_SERIES
                drawn = drawn.with_target(target.instant().format(form))
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
