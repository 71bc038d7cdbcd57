"""Makes the three Grafana dashboards: `python deploy/grafana/dashboards.py` writes dashboards/*.json."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import GraphThresholdsStyleConfig
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphThresholdsStyleMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from panel_shapes import (
    CHANGING,
    LEAST_P,
    NO_REPORT,
    UNCHANGED,
    USED,
    chances,
    completeness,
    counts,
    fits,
    histogram,
    interval,
    late,
    lines,
    losses,
    many_lines,
    number,
    p_values,
    percentiles,
    promises,
    recoveries,
    reports,
    with_ends,
)

from ldpstream.publishing.estimates.catalogue import ESTIMATORS
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, FIT_LIMIT, LAG_LIMIT, OVERDUE_MS, REJECTED_LIMIT

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
OF = '{survey="$survey", attribute="$attribute"}'
SPAN = '{survey="$survey", attribute="$attribute", span="$span"}'
WINDOW = '{survey="$survey", attribute="$attribute", span="window"}'
COUNTED = '{survey="$survey", attribute="$attribute", span!="filtered"}'
# "filter" is the only estimator of the span "filtered", and no other span has this estimator
ESTIMATE = '{survey="$survey", attribute="$attribute", span="$span", estimator=~"$estimator|filter"}'
VALUE = '{survey="$survey", attribute="$attribute", span="$span", estimator=~"$estimator|filter", value="$value"}'
LEVELS = '{survey="$survey"}'
BY_LEVEL = "max by (attribute, level)"  # standby estimators export the same values as the working estimator
BY_VALUE = "max by (index, value)"  # `index` first: Prometheus sorts series by their labels, so values keep the survey's order

Shape = Callable[[], timeseries.Panel | stat.Panel | table.Panel]
Variable = dashboard.QueryVariable | dashboard.CustomVariable
Steps = tuple[tuple[float | None, str], ...]


@dataclass(frozen=True)
class Panel:
    """`steps` are (lower bound, colour) pairs in increasing order; a first bound of None means minus infinity. `empty` is the
    text without data."""

    shape: Shape
    title: str
    about: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    height: int = 8
    steps: Steps = ((None, "blue"),)
    empty: str = "no estimate yet"


# ---- the panels

GUESS = 'max(ldpstream_privacy_guess_%s_ratio{survey="$survey", attribute="$attribute"})'
WHOLE = "{{attribute}} · {{level}}, whole device"
RIGHT = (
    "Of 100 people, how many the best guesser gets right, from all reports of this attribute so far "
    "(whole device: of all attributes, with the strongest possible hints; at first, all values are equally likely)"
)
# the most frequent values of the last estimate within the time shown, even if the estimator has stopped since
TOP = f"topk(7, max by (value) (last_over_time(ldpstream_frequency_ratio{ESTIMATE}[$__range] @ end())))"
OUTCOMES, ACCEPTED = "sum by (outcome) (rate(ldpstream_gateway_requests_total%s[$__rate_interval]))", '{outcome="accepted"}'


def happened(counter: str) -> str:
    return f"round(sum(increase({counter}[$__range])))"


POPULATION = (
    Panel(reports, "Reports", "Reports in the latest estimate.", "locale",
          ((f"max(ldpstream_estimate_reports{SPAN})", "reports"),), 3, 4),
    Panel(completeness, "Complete?", "Complete means that no report can be missing from the latest estimate.", "none",
          ((f"max(ldpstream_estimate_complete{SPAN})", "complete"),), 3, 4),
    Panel(number, "Right guess: unchanged",
          f"{RIGHT}, if the value never changed. Shown for the level with the weakest promise.", "percentunit",
          ((GUESS % "unchanged", "chance"),), 5, 4),
    Panel(number, "Right guess: changing",
          f"{RIGHT}: the value at one step, if values may change. Shown for the level with the weakest promise.", "percentunit",
          ((GUESS % "changing", "chance"),), 5, 4),
    Panel(number, "Jumps in this time", "Lasting changes of a share that the filter detected.", "none",
          ((happened(f"ldpstream_changes_total{OF}"), "jumps"),), 4, 4, ((None, "blue"), (1, "orange")), "no filter"),
    Panel(number, "Last jump of a share",
          "In percentage points, negative for a fall; the page and the API name the value and the step.",
          "suffix: points", ((f"100 * max(ldpstream_change_size_ratio{OF})", "size"),), 4, 4, empty="no jump"),
    Panel(histogram, "Histogram",
          "Estimated share of every value that has a series, latest estimate, with its 95 % interval.", "percentunit",
          ((f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE})", "Share"),
           (f"{BY_VALUE} (ldpstream_frequency_low_ratio{ESTIMATE})", "95 % from"),
           (f"{BY_VALUE} (ldpstream_frequency_high_ratio{ESTIMATE})", "95 % to")), 12, 14),
    Panel(interval, "$value, with its interval of 95 %", "The estimated share and its interval.", "percentunit",
          ((f"max(ldpstream_frequency_ratio{VALUE})", "estimate"),
           (f"max(ldpstream_frequency_low_ratio{VALUE})", "95 % from"),
           (f"max(ldpstream_frequency_high_ratio{VALUE})", "95 % to")), 12, 14),
    Panel(many_lines, "Most frequent values over time", "The seven most frequent values of the latest estimate.", "percentunit",
          ((f"{BY_VALUE} (ldpstream_frequency_ratio{ESTIMATE}) and on (value) {TOP}", "{{value}}"),), 24, 10),
    Panel(percentiles, "Mean and percentiles of the numbers, with intervals of 95 %",
          "For an attribute with bins or ordered numbers, in the numbers' unit. Assumes numbers spread evenly within a bin.",
          "none",
          ((f"max(ldpstream_mean{SPAN})", "mean"),
           (f"max(ldpstream_mean_low{SPAN})", "mean from"),
           (f"max(ldpstream_mean_high{SPAN})", "mean to"),
           (f"max by (percentile) (ldpstream_quantile{SPAN})", "p{{percentile}}"),
           (f"max by (percentile) (ldpstream_quantile_low{SPAN})", "p{{percentile}} from"),
           (f"max by (percentile) (ldpstream_quantile_high{SPAN})", "p{{percentile}} to")), 24, 10,
          empty="no numbers: this attribute has neither bins nor ordered numbers"),
    Panel(with_ends, "People who use the application", "In the latest step, with intervals of 95 % where noise adds to them.",
          "locale",
          ((f"max by (period) (ldpstream_people{LEVELS})", "{{period}}"),
           (f"max by (period) (ldpstream_people_low{LEVELS})", "{{period}} from"),
           (f"max by (period) (ldpstream_people_high{LEVELS})", "{{period}} to")), empty="this survey counts no use"),
    Panel(with_ends, "New people who came back",
          "After so many steps, of the latest new people of whom this is known, with intervals of 95 %.", "percentunit",
          ((f"max by (steps) (ldpstream_returned_ratio{LEVELS})", "after {{steps}}"),
           (f"max by (steps) (ldpstream_returned_ratio_low{LEVELS})", "after {{steps}} from"),
           (f"max by (steps) (ldpstream_returned_ratio_high{LEVELS})", "after {{steps}} to")),
          empty="this survey counts no use, or too few people"),
    Panel(counts, "Reports behind the estimate", "In the step, and in the sliding window.", "locale",
          ((f"max by (span) (ldpstream_estimate_reports{COUNTED})", "{{span}}"),), 8),
    Panel(p_values, "Significance of differences (p-value)",
          "Chance of such a difference without drift, or if all levels agree. Below the line, an alert fires.", "sci",
          ((f"clamp_min(min(ldpstream_drift_p{OF}), {LEAST_P:g})", "since the last step"),
           (f"clamp_min(min by (span) (ldpstream_levels_p{OF}), {LEAST_P:g})", "between levels, {{span}}")), 8,
          steps=((None, "orange"), (ALARM_CHANCE, "transparent"))),
    Panel(fits, "Estimate against mechanism",
          "z-score of the counts. Beyond the lines: forged reports, or another survey or version.", "none",
          ((f"max by (level) (ldpstream_fit_z{OF})", "{{level}}"),), 8,
          steps=((None, "red"), (-FIT_LIMIT, "transparent"), (FIT_LIMIT, "red"))),
    Panel(counts, "Reports of each cohort", "In the sliding window; the page and the API have the cohorts' histograms.",
          "locale", ((f"max by (cohort) (ldpstream_cohort_reports{WINDOW})", "{{cohort}}"),), 24,
          empty="this survey has no cohorts"),
)  # fmt: skip

PRIVACY = (
    Panel(promises, "Chance of a right guess, and privacy loss in nats",
          f"{RIGHT}. Bound used: ε_t / ε∞, for an unchanged value; "
          "at a level with lifetime_reports: ε_sequence / ε_lifetime, for any values.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_without_report_ratio{LEVELS})", NO_REPORT),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_unchanged_ratio{LEVELS})", UNCHANGED),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_changing_ratio{LEVELS})", CHANGING),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS} / ldpstream_privacy_eps_lifetime_nats{LEVELS} > 0"
            f" or ldpstream_privacy_eps_t_nats{LEVELS} / ldpstream_privacy_eps_inf_nats{LEVELS} > 0)", USED),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_t_nats{LEVELS})", "ε_t"),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_inf_nats{LEVELS}) < +Inf", "ε∞"),
           (f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS})", "ε_sequence")), 24, 7),
    Panel(chances, "Chance of a right guess: value never changed", f"{RIGHT}, if the value never changed.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_unchanged_ratio{LEVELS})", "{{attribute}} · {{level}}"),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_device_unchanged_ratio{LEVELS})", WHOLE))),
    Panel(chances, "Chance of a right guess: value may change", f"{RIGHT}: the value at one step.", "percentunit",
          ((f"{BY_LEVEL} (ldpstream_privacy_guess_changing_ratio{LEVELS})", "{{attribute}} · {{level}}"),
           (f"{BY_LEVEL} (ldpstream_privacy_guess_device_changing_ratio{LEVELS})", WHOLE))),
    Panel(losses, "Privacy loss in nats: value never changed", "ε_t; the table shows its bound ε∞.", "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_t_nats{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(losses, "Privacy loss in nats: value may change", "Between any two sequences of values: exact, or a proven bound.",
          "none",
          ((f"{BY_LEVEL} (ldpstream_privacy_eps_sequence_nats{LEVELS})", "{{attribute}} · {{level}}"),)),
    Panel(number, "Reports a second", "Counted by all agents.", "short",
          (("sum(rate(ldpstream_reports_total[$__rate_interval]))", "reports/s"),), 6, 4, empty="no agent"),
    Panel(number, "Records waiting", "In the log, not yet in a count table.", "short",
          ((f"max(ldpstream_lag_records{LEVELS})", "records"),), 6, 4, ((None, "green"), (LAG_LIMIT, "red")), "no estimator"),
    Panel(number, "Envelopes rejected", "Of the envelopes of the last 15 minutes.", "percentunit",
          (("sum(rate(ldpstream_rejected_total[15m])) / sum(rate(ldpstream_records_total[15m]))", "rejected"),), 6, 4,
          ((None, "green"), (REJECTED_LIMIT, "red")), "no envelopes"),
    Panel(number, "Agents that count", "Agents with at least one partition.", "none",
          (("count(ldpstream_partitions > 0) or vector(0)", "agents"),), 6, 4, ((None, "red"), (1, "green"))),
    Panel(counts, "Envelopes by outcome", "Counted (with duplicates and empty records), and rejected by reason.", "suffix:/s",
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
          steps=((None, "transparent"), (OVERDUE_MS // 1000, "red")), empty="no estimator"),
    Panel(recoveries, "Recoveries in the time shown",
          "Gaps, refused commits and records delivered twice are harmless; lost records are not.", "locale",
          ((happened("ldpstream_gaps_total"), "gaps"),
           (happened("ldpstream_refused_commits_total"), "commits refused"),
           (happened("ldpstream_redelivered_total"), "delivered twice"),
           (happened("ldpstream_missing_offsets_total"), "records lost")), 24, 4, ((None, "green"),), "no agent"),
    Panel(counts, "Crowd behind the relay",
          "Reports of each level in the step, in the cohort with the fewest. "
          "Above 0 and below the assumed crowd, an alert fires.",
          "locale",
          ((f"{BY_LEVEL} (ldpstream_crowd_reports{LEVELS})", "{{attribute}} · {{level}}"),
           (f"max(ldpstream_crowd_assumed_reports{LEVELS})", "assumed")), 24,
          empty="this survey assumes no crowd"),
)  # fmt: skip

ALL = {panel.title: panel for panel in (*POPULATION, *PRIVACY)}
FIRST = (
    *(replace(ALL[title], width=4) for title in ("Reports", "Complete?", "Jumps in this time")),
    replace(ALL["Estimate overdue"], shape=number, width=4, height=4, steps=((None, "green"), (OVERDUE_MS // 1000, "red"))),
    *(replace(ALL[title], width=4) for title in ("Records waiting", "Envelopes rejected")),
    replace(ALL["Histogram"], height=12), replace(ALL["Most frequent values over time"], width=12, height=12),
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


def choice(name: str, label: str, options: dict[str, str]) -> dashboard.CustomVariable:
    value, text = next(iter(options.items()))
    listed = ", ".join(f"{text} : {value}" for value, text in options.items())
    return (
        dashboard.CustomVariable(name)
        .label(label)
        .values(listed)
        .current(VariableOption(text=text, value=value, selected=True))
    )


def build(uid: str, title: str, panels: tuple[Panel, ...], variables: tuple[Variable, ...]) -> str:
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
        made = made.with_variable(each)
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
    survey = variable("survey", "Survey", "label_values(ldpstream_estimate_step, survey)")
    attribute = variable("attribute", "Attribute", 'label_values(ldpstream_estimate_step{survey="$survey"}, attribute)')
    value = variable("value", "Value", f"label_values(ldpstream_frequency_ratio{OF}, value)")
    span = choice("span", "Span", {"window": "sliding window", "step": "one step", "filtered": "filtered curve"})
    labels = {row.name: row.label for row in ESTIMATORS if row.make is not None}
    estimator = choice("estimator", "Estimator (window, step)", labels)
    return {
        "first.json": build("ldpstream-first", "ldpstream: first look", FIRST, (survey, attribute, span, estimator)),
        "population.json": build(
            "ldpstream-population", "ldpstream: population", POPULATION, (survey, attribute, span, estimator, value)
        ),
        "privacy.json": build("ldpstream-privacy", "ldpstream: privacy and pipeline", PRIVACY, (survey,)),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in dashboards().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
