// Cards with numbers and their intervals, of the chosen step and over time: an attribute's mean and percentiles, and people.
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

export const named = (line) => (asked().choices ? "mean number of values" : NAMES[line.name]);
const title = () => (asked().choices ? "Mean number of values" : "Mean and percentiles");

// Draws lines (label, values, low, high, and perhaps why and truth) of the steps of s in the boxes whose ids begin with `box`.
// view: [first, last] step, or null for all. period(steps) zooms. people: the lines are numbers of people.
export function drawNumbers(box, s, lines, view, period, people = false) {
  const seconds = s.steps.map((step) => opens(step + 1) / 1000);
  const [first, last] = view ?? [s.steps[0], s.steps.at(-1)];
  const pad = 0.1 * state.survey.step_seconds;
  $(`${box}-legend`).replaceChildren(...lines.map(({ label, why }, i) => {
    const key = element("span", "", { class: "key line" });
    key.style.background = colourOf(i);
    return element("li", [key, why ? explained(label, why) : label, " ", element("span", "", { class: "now" })]);
  }));
  const read = (at) => {
    const i = at ?? (s.steps.includes(state.step) ? s.steps.indexOf(state.step) : s.steps.length - 1);
    $(`${box}-legend`).querySelectorAll(".now").forEach((now, j) => {
      const { values, low, high, truth } = lines[j];
      now.textContent = within(values[i], low[i], high[i]) + (truth && truth[i] !== null ? `, truth ${number(truth[i])}` : "");
    });
    $(`${box}-period`).textContent = periodOf({ start_ms: s.start_ms[i], end_ms: s.end_ms[i], step: s.steps[i] });
  };
  lineChart($(box), { seconds, lines: lines.map((line, i) => ({ ...line, slot: i, frequencies: line.values })) }, {
    view: [opens(first) / 1000 - pad, opens(last + 1) / 1000 + pad], list: [], numbers: people ? "people" : "numbers", read,
    zoom: (ends) => { const kept = ends && s.steps.filter((_, i) => seconds[i] >= ends[0] && seconds[i] <= ends[1]); period(kept && kept.length > 1 ? [kept[0], kept.at(-1)] : null); },
  });
  read(null);
}

export function drawQuantiles(s, view, period) {
  drawNumbers("quantiles", s, s.lines.map((line) => ({ ...line, label: named(line), why: asked().choices ? "chosen" : line.name === "mean" ? "mean" : "percentile" })), view, period);
  const known = s.lines.some((line) => line.values.some((x) => x !== null));
  $("quantiles-title").textContent = title();
  if (known && asked().choices) $("quantiles-hint").textContent = `How many values a person chooses on average, with 95 % intervals. ${thinned(s)}`;
  else $("quantiles-hint").textContent = known ? `In the attribute's unit, with 95 % intervals. ${thinned(s)}The values count the numbers of a bin as evenly spread. The intervals hold wherever the numbers lie in their bins. ${SOURCE[s.span] ?? SOURCE[asked().number_spans.includes("filtered") ? "counts" : "wave"]}` : s.cohort === null ? `${capital(silence(s.complete.every(Boolean)))} in these steps.` : "There is no estimate in these steps.";
  $("quantiles").setAttribute("aria-label", `${title()} of ${subject(s)} over time. The list and the CSV have the numbers.`);
  linkFiles("quantiles", "numbers", numbersQuery());
}
