// The mean and the percentiles of an attribute's numbers: of the chosen step, and over time.
import { colourOf, lineChart } from "./charts.js";
import { thinned } from "./curves.js";
import { $, capital, element, explained, number, silence, within } from "./dom.js";
import { asked, linkFiles, numbersQuery, state, subject } from "./state.js";
import { opens, periodOf } from "./times.js";

const NAMES = { mean: "mean", p50: "median", p90: "90th percentile", p99: "99th percentile" };
// Why the numbers do not follow from the bars of the histogram.
const SOURCE = {
  filtered: "They come from the filter's shares.",
  counts: "They come from the smooth part of the default estimate, which steadies the tails. The mean and percentiles of the bars above can differ from them.",
  wave: "The interval of the mean comes from the unbiased estimate.",
};
let shown = null;

export const named = (line) => (asked().choices ? "mean number of values" : NAMES[line.name]);
const title = () => (asked().choices ? "Mean number of values" : "Mean and percentiles");

// Draws the numbers. view: [first, last] step, or null for all. period(steps) zooms.
export function drawQuantiles(s, view, period) {
  shown = s;
  const ends = (steps) => [opens(steps[0]) / 1000, opens(steps[1] + 1) / 1000];
  const pad = 0.1 * state.survey.step_seconds;
  const [from, to] = ends(view ?? [s.steps[0], s.steps.at(-1)]);
  $("quantiles-legend").replaceChildren(...s.lines.map((line, i) => {
    const [item, key] = [element("li"), element("span", "", { class: "key line" })];
    key.style.background = colourOf(i);
    item.append(key, explained(named(line), asked().choices ? "chosen" : line.name === "mean" ? "mean" : "percentile"), " ", element("span", "", { class: "now" }));
    return item;
  }));
  const lines = s.lines.map((line, i) => ({ slot: i, label: named(line), frequencies: line.values, low: line.low, high: line.high }));
  const steps = ([first, last]) => s.steps.filter((step) => opens(step + 1) / 1000 >= first && opens(step + 1) / 1000 <= last);
  lineChart($("quantiles"), { seconds: s.steps.map((step) => opens(step + 1) / 1000), lines }, {
    view: [from - pad, to + pad], list: [], numbers: true, read: (i) => read(i ?? here()),
    zoom: (seconds) => { const kept = seconds && steps(seconds); period(kept && kept.length > 1 ? [kept[0], kept.at(-1)] : null); },
  });
  read(here());
  const known = s.lines.some((line) => line.values.some((x) => x !== null));
  $("quantiles-title").textContent = title();
  if (known && asked().choices) $("quantiles-hint").textContent = `How many values a person chooses on average, with 95 % intervals. ${thinned(s)}`;
  else $("quantiles-hint").textContent = known ? `In the attribute's unit, with 95 % intervals. ${thinned(s)}The values count the numbers of a bin as evenly spread. The intervals hold wherever the numbers lie in their bins. ${SOURCE[s.span] ?? SOURCE[asked().number_spans.includes("filtered") ? "counts" : "wave"]}` : s.cohort === null ? `${capital(silence(s.complete.every(Boolean)))} in these steps.` : "There is no estimate in these steps.";
  $("quantiles").setAttribute("aria-label", `${title()} of ${subject(s)} over time. The list and the CSV have the numbers.`);
  linkFiles("quantiles", "numbers", numbersQuery());
}

// Index of the chosen step; the last step if it is not among the steps.
function here() {
  const i = shown.steps.indexOf(state.step);
  return i < 0 ? shown.steps.length - 1 : i;
}

// The numbers of one step, in the legend.
function read(i) {
  $("quantiles-legend").querySelectorAll(".now").forEach((box, j) => {
    const line = shown.lines[j];
    box.textContent = within(line.values[i], line.low[i], line.high[i]) + (line.truth && line.truth[i] !== null ? `, truth ${number(line.truth[i])}` : "");
  });
  $("quantiles-period").textContent = periodOf({ start_ms: shown.start_ms[i], end_ms: shown.end_ms[i], step: shown.steps[i] });
}
