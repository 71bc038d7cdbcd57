// The curves over time, the jumps, and the numbers of reports.
import { jumpText } from "./alerts.js";
import { colour, colourOf, dashOf, lineChart, stepsChart } from "./charts.js";
import { $, capital, element, grouped, percent, table } from "./dom.js";
import { ESTIMATORS } from "./histogram.js";
import { path, seriesQuery, state } from "./state.js";
import { opens, periodOf, stepAt, withZone } from "./times.js";

let shown = null;

const end = (step) => opens(step + 1) / 1000; // a point stands at the end of its step

function ends(s) {
  const [first, last] = state.period ?? [s.steps[0], s.steps.at(-1)];
  return [end(first - 1) - 0.1 * (end(0) - end(-1)), end(last) + 0.1 * (end(0) - end(-1))];
}

// A dragged selection, in seconds, as [first, last] step.
function steps(s, seconds) {
  const from = Math.max(s.steps[0], Math.floor(stepAt(1000 * seconds[0])));
  const to = Math.min(s.steps.at(-1), Math.ceil(stepAt(1000 * seconds[1])) - 1);
  return to > from ? [from, to] : null;
}

// Draws the curves. actions: toggle(value) removes a curve, period(steps) zooms.
export function drawCurves(s, actions) {
  shown = s;
  state.curves = s.lines.map((line) => line.value);
  const known = s.lines.length > 0;
  const withTimes = { ...s, seconds: s.steps.map(end) };
  const view = ends(s);
  const zoom = (seconds) => actions.period(seconds && steps(s, seconds));
  const jumps = s.changes.filter((change) => state.curves.includes(change.value)).map((change) => [end(change.changed_at), colourOf(change.value)]);
  const here = [[state.step, "soft"], [state.before, "accent"]].filter(([step]) => step !== null && step !== s.steps.at(-1))
    .map(([step, name]) => [end(step), colour(name)]);
  const read = (i) => readCurves(i ?? s.steps.length - 1);
  drawLegend(s, actions);
  lineChart($("series"), withTimes, { view, zoom, list: [...here, ...jumps], read });
  stepsChart($("reports"), withTimes, { view, zoom });
  readCurves(s.steps.length - 1);
  drawJumps(s);
  $("whole-period").hidden = !state.period;
  $("series").setAttribute("aria-label", known ? `Shares over time of ${s.lines.map((line) => line.label).join(", ")}. The legend and the CSV have the numbers.` : "Nobody reported in these steps");
  $("reports").setAttribute("aria-label", `Reports of ${s.attribute} in each step. The CSV has the numbers.`);
  words(s, jumps.length, here.length);
  const query = seriesQuery();
  $("series-csv").href = path("series.csv", withZone(query));
  $("series-json").href = path("series", query);
}

function words(s, jumps, here) {
  const each = s.span === "filtered" ? "in each step" : `used by the estimate of each step${s.span === "window" ? ", from its whole window" : ""}`;
  $("reports-hint").textContent = `Reports of ${s.attribute} ${each}.`;
  if (!s.lines.length) {
    $("series-hint").textContent = "Nobody reported in these steps.";
    return;
  }
  const name = capital(ESTIMATORS[s.estimator] ?? s.estimator);
  const now = s.lines.some((line) => line.frequencies.at(-1) !== null) ? "" : "in the last step with reports";
  const which = state.values ? "the chosen values" : `the ${s.lines.length} most frequent values ${now}`.trim();
  const trusted = s.interval_withheld.some(Boolean) ? " where they can be trusted" : "";
  const gap = s.span === "filtered" ? "A step without reports is predicted from earlier steps." : "In a gap nobody reported.";
  const marked = `${jumps ? " A dashed line in a value's colour marks a jump." : ""}${here ? " A grey or blue dashed line marks the times shown above." : ""}`;
  $("series-hint").textContent = `${name}, ${which}, with ${Math.round(100 * s.confidence)} % intervals${trusted}. Each point stands at the end of its step. ${gap}${marked}`;
}

function key(value) {
  const made = element("span", "", { class: "key line" });
  const dash = dashOf(value);
  made.style.background = dash.length ? `repeating-linear-gradient(90deg, ${colourOf(value)} 0 ${dash[0]}px, transparent ${dash[0]}px ${dash[0] + dash[1]}px)` : colourOf(value);
  return made;
}

function drawLegend(s, actions) {
  $("legend").replaceChildren(...s.lines.map((line) => {
    const item = element("li");
    const remove = element("button", "×", { type: "button", class: "link", "aria-label": `remove ${line.label} from the curves` });
    remove.addEventListener("click", () => actions.toggle(line.value));
    item.append(key(line.value), `${line.label} `, element("span", "", { class: "now" }), " ", remove);
    return item;
  }));
  $("default-curves").hidden = !state.values;
}

// The numbers of one step, in the legend.
function readCurves(i) {
  const s = shown;
  $("legend").querySelectorAll(".now").forEach((box, j) => {
    const line = s.lines[j];
    const interval = line.low[i] === null ? "" : ` (${percent(line.low[i], 1)} to ${percent(line.high[i], 1)})`;
    box.textContent = `${percent(line.frequencies[i], 1)}${interval}`;
  });
  $("legend-when").hidden = !s.lines.length;
  $("legend-period").textContent = periodOf({ start_ms: s.start_ms[i], end_ms: s.end_ms[i], step: s.steps[i] });
}

// Lists the jumps of all values, also of the values without a curve.
function drawJumps(s) {
  const items = s.changes.map((change, i) => {
    const { moved, interval, at } = jumpText(s.change_labels[i], change);
    const item = element("li");
    item.append(state.curves.includes(change.value) ? key(change.value) : element("span", "", { class: "key line" }), `${moved} (${interval}) ${at}`);
    return item;
  });
  if (s.span === "filtered" && !items.length) items.push(element("li", "No jump was detected in these steps."));
  $("changes").replaceChildren(...items);
}

export function drawRejected(rejected) {
  const found = Object.entries(rejected).filter(([, n]) => n > 0);
  $("rejected-title").hidden = !found.length;
  if (!found.length) return $("rejected").replaceChildren(element("caption", "No envelope was rejected."));
  const rows = found.map(([reason, n]) => {
    const row = element("tr");
    row.append(element("td", reason), element("td", grouped(n), { class: "number" }));
    return row;
  });
  return table($("rejected"), [element("th", "Reason", { scope: "col" }), element("th", "Envelopes", { scope: "col", class: "number" })], rows);
}

export function caption() {
  const s = shown;
  return {
    title: `${state.survey.name}: ${s.attribute} over time`,
    lines: [`${periodOf({ start_ms: s.start_ms[0], end_ms: s.end_ms.at(-1), step: `${s.steps[0]} to ${s.steps.at(-1)}` })}`, $("series-hint").textContent],
    name: `${state.survey.name}-${s.attribute}-steps-${s.steps[0]}-${s.steps.at(-1)}`,
    keys: s.lines.map((line) => [`${line.label} ${percent(line.frequencies.at(-1), 1)}`, colourOf(line.value), dashOf(line.value)]),
  };
}
