"""The shapes of the dashboards' panels: lines, numbers, tables, and their colours and axes."""

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, ScaleDistributionConfig, VizLegendOptions
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
)
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

LEAST_P = 1e-9  # end of the p-values' axis, which is logarithmic; a smaller p-value is drawn here
NO_REPORT, UNCHANGED, CHANGING, USED = "No report", "Value unchanged", "Value changing", "Bound used"
TEXT = DynamicConfigValue("unit", "string")  # otherwise Grafana would show the value "3" as 300 %
UNKNOWN = DynamicConfigValue("noValue", "–")  # for example, an interval that is withheld


def lines() -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    return timeseries.Panel().legend(legend).fill_opacity(0)


def many_lines() -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT).show_legend(True)
    return timeseries.Panel().legend(legend.calcs(["lastNotNull"])).fill_opacity(0).min(0)


def counts() -> timeseries.Panel:
    return lines().min(0).axis_soft_max(0.1)


def with_ends() -> timeseries.Panel:
    """Lines, of people or of those who came back after so many steps. Their intervals are dashed lines in the same colours."""
    dashed = DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 6]})
    hidden = DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False})
    made = counts().override_by_regexp("/ (from|to)$/", [dashed, hidden])
    for begin, colour in (("day|after 1", "blue"), ("step|after 2", "orange"), (r"\d+ steps|after 3", "green")):
        made = made.override_by_regexp(
            rf"/^({begin})\b/", [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    return made


def late() -> timeseries.Panel:
    return lines().min(0).axis_soft_max(150)  # shows the threshold


def chances() -> timeseries.Panel:
    dashed = DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 8]})
    return lines().min(0).max(1).override_by_regexp("/whole device/", [dashed])


def losses() -> timeseries.Panel:
    return lines().scale_distribution(ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))


def fits() -> timeseries.Panel:
    return lines().axis_soft_min(-7).axis_soft_max(7)  # shows the thresholds


def p_values() -> timeseries.Panel:
    scale = ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)
    return lines().scale_distribution(scale).min(LEAST_P).max(1)


def interval() -> timeseries.Panel:
    blue = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "blue"})
    hidden = DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False})
    edge = [blue, hidden, DynamicConfigValue("custom.lineWidth", 0), DynamicConfigValue("custom.showPoints", "never")]
    shade = [DynamicConfigValue("custom.fillBelowTo", "95 % from"), DynamicConfigValue("custom.fillOpacity", 25)]
    return (
        lines()
        .override_by_name("estimate", [blue, DynamicConfigValue("custom.lineWidth", 2)])
        .override_by_name("95 % from", edge)
        .override_by_name("95 % to", edge + shade)
    )


def percentiles() -> timeseries.Panel:
    made = lines()
    for name, colour in (("mean", "blue"), ("p50", "orange"), ("p90", "green"), ("p99", "purple")):
        fixed = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})
        hidden = DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False})
        edge = [fixed, hidden, DynamicConfigValue("custom.lineWidth", 0), DynamicConfigValue("custom.showPoints", "never")]
        shade = [DynamicConfigValue("custom.fillBelowTo", f"{name} from"), DynamicConfigValue("custom.fillOpacity", 15)]
        made = made.override_by_name(name, [fixed, DynamicConfigValue("custom.lineWidth", 2)])
        made = made.override_by_name(f"{name} from", edge).override_by_name(f"{name} to", edge + shade)
    return made


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
    return ValueMap(options={key: ValueMappingResult(text=text, color=colour) for key, (text, colour) in shown.items()})


def rows(sorted_by: tuple[str, ...], hidden: tuple[str, ...], named: dict[str, str]) -> table.Panel:
    made = table.Panel().show_header(True).with_transformation(DataTransformerConfig(id_val="merge", options={}))
    for label in sorted_by:
        made = made.with_transformation(DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": label}]}))
    places = {name: i for i, name in enumerate(named)}
    organize = {"excludeByName": dict.fromkeys(hidden, True), "indexByName": places, "renameByName": named}
    return made.with_transformation(DataTransformerConfig(id_val="organize", options=organize))


def bar(*more: DynamicConfigValue) -> list[DynamicConfigValue]:
    gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return [DynamicConfigValue("custom.cellOptions", gauge), DynamicConfigValue("min", 0), *more]


def histogram() -> table.Panel:
    """Rows in the order of the hidden column `index`, which is the survey's order."""
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
    made = rows(("level", "attribute"), ("Time",), named)
    for column in ("Attribute", "Level"):
        made = made.override_by_name(column, [TEXT])
    made = made.override_by_name(NO_REPORT, [DynamicConfigValue("custom.width", 110)])
    for column in (UNCHANGED, CHANGING):
        made = made.override_by_name(column, bar(whole))
    made = made.override_by_name(USED, bar(whole, UNKNOWN))
    for column in ("ε_t", "ε∞", "ε_sequence"):
        made = made.override_by_name(column, [*nats, DynamicConfigValue("custom.width", 100)])
    return made
