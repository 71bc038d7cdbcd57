// The comparison of two times or of two cohorts: differences with their intervals.
import { barChart, colour } from "./charts.js";
import { $, capital, element, grouped, percent, points, table } from "./dom.js";
import { explained } from "./explain.js";
import { MOST_ROWS, select } from "./histogram.js";
import { named, value } from "./quantiles.js";
import { about, asked, comparisonQuery, fileName, path, state, subject } from "./state.js";
import { periodOf } from "./times.js";

const BASIS = {
  inversion: "The service does not know who reported on both sides. The interval is wide enough for people whose values alternate, and for memos that both sides share; if people keep their values, it is wider than necessary.",
  separate: "A device reports in one cohort at a step, so the two estimates are independent of each other.",
  any: "The service does not know how the errors of the two estimates depend on each other. The interval adds both standard errors. It is wide enough for any dependence, and often wider than necessary.",
};
const WINDOWS = "The interval adds both standard errors. It is wide enough even if people move between the cohorts within the window, and often wider than necessary. A single step has shorter intervals.";
const MOST_LISTED = 8;
let shown = null;
let bars = null;

const sides = (c) => (c.before.cohort === c.after.cohort ? `From ${periodOf(c.before)} to ${periodOf(c.after)}`
  : `${capital(state.survey.cohort.name)} ${c.after.cohort} minus ${c.before.cohort}, ${periodOf(c.after)}`);

// The size of a difference in standard errors.
const evidence = (c, i) => Math.abs(c.differences[i]) / c.standard_errors[i];

// The values of the comparison, chosen and ordered as in the histogram h.
function pick(c, h) {
  const at = new Map(c.values.map((value, i) => [value, i]));
  const kept = select(h).kept.map((i) => at.get(h.values[i])).filter((i) => i !== undefined);
  const of = (numbers) => kept.map((i) => numbers[i]);
  return {
    kept, labels: of(c.labels), frequencies: of(c.differences), low: of(c.low), high: of(c.high), truth: c.truth && of(c.truth),
    fills: kept.map((i) => (c.clear[i] ? colour("accent") : colour("bar"))),
  };
}

export function drawComparison(c, h) {
  shown = c;
  bars = pick(c, h);
  const clear = c.differences.map((_, i) => i).filter((i) => c.clear[i]).sort((a, b) => evidence(c, b) - evidence(c, a));
  const known = c.differences.some((x) => x !== null);
  const box = $("comparison-summary");
  const times = c.before.cohort === c.after.cohort; // else two cohorts
  const two = times ? "two times" : "two cohorts";
  $("comparison-title").textContent = `Difference between ${two}`;
  box.replaceChildren(`${sides(c)}, ${about(c.estimator).label}${about(c.estimator).post_processed && state.post !== "none" ? " without post-processing" : ""}. `);
  if (!known) box.append(`There is no estimate of one of the ${two}.`);
  else if (c.interval_withheld) box.append(element("span", "No intervals: one of the two estimates may be biased, so its intervals are withheld.", { class: "late" }));
  else {
    const compared = c.values.length < asked().k ? `the ${grouped(c.values.length)} values with the clearest differences` : `${grouped(c.values.length)} values`;
    box.append(`${clear.length ? grouped(clear.length) : "None"} of ${compared} ${times ? "changed" : clear.length === 1 ? "differs" : "differ"} `, explained("clearly", "clear"), ". ", times || c.basis !== "any" ? BASIS[c.basis] : WINDOWS);
    if (c.overlap && times) box.append(" The two windows share steps, so the difference is usually smaller than the change of the shares. Choose times that lie a window apart to see the whole change.");
  }
  if (!c.before.complete || !c.after.complete) box.append(" ", element("span", "Incomplete: reports may be missing.", { class: "late" }));
  $("comparison-list").replaceChildren(...clear.slice(0, MOST_LISTED).map((i) => element("li", sentence(c, i))));
  if (known) $("comparison-list").append(...Object.entries(c.numbers).map(([name, x]) => element("li", numberSentence(name, x, c.true_numbers[name]))));
  if (clear.length > MOST_LISTED) $("comparison-list").append(element("li", `and ${clear.length - MOST_LISTED} more (see the table)`));
  $("differences").setAttribute("aria-label", `Differences of ${subject(c)} between ${two}. Arrow keys read single values.`);
  barChart($("differences"), bars, { view: null, read, zoom: () => {}, unit: "" });
  $("comparison-readout").textContent = "Differences in percentage points. Arrow keys read single values. Bars in strong colour differ clearly.";
  if ($("comparison-numbers").open) drawDifferences();
  const query = comparisonQuery();
  query.set("step", c.after.step);
  query.delete("top"); // the files have all values
  $("comparison-csv").href = path("comparison.csv", query);
  $("comparison-json").href = path("comparison", query);
}

function sentence(c, i) {
  const at = (x) => points(x, c.differences[i]);
  const interval = c.low[i] === null ? "no interval" : `95 % interval ${at(c.low[i])} to ${at(c.high[i])}`;
  const truth = c.truth ? `, truth ${at(c.truth[i])}` : "";
  return `${c.labels[i]}: ${at(c.differences[i])} percentage points, ${interval}${truth} (${percent(c.before.frequencies[i])} to ${percent(c.after.frequencies[i])})`.replaceAll(" %", "\u00a0%");
}

function numberSentence(name, { value: size, low, high }, truth) {
  const signed = (x) => `${x > 0 ? "+" : ""}${value(x)}`;
  return `${capital(named({ name }))}: ${signed(size)}${low === null ? "" : `, 95 % interval ${signed(low)} to ${signed(high)}`}${truth === undefined ? "" : `, truth ${signed(truth)}`}`;
}

function read(i) {
  if (shown.differences[bars.kept[i]] !== null) $("comparison-readout").textContent = sentence(shown, bars.kept[i]);
}

export function drawDifferences() {
  const c = shown;
  const heading = (text, why) => {
    const cell = element("th", "", { scope: "col", class: "number" });
    cell.append(explained(text, why));
    return cell;
  };
  const head = [element("th", "Value", { scope: "col" }), ...(c.before.cohort === c.after.cohort ? ["Before", "After"] : [c.before.cohort, c.after.cohort]).map((name) => heading(name, "share")), heading("Difference", "difference"),
    heading("From", "ends"), heading("To", "ends"), heading("Clear", "clear"), ...(c.truth ? [heading("Truth", "truth")] : [])];
  table($("difference-values"), head, bars.kept.slice(0, MOST_ROWS).map((i) => {
    const size = c.differences[i] ?? 0;
    const at = (x) => (x === null ? "–" : points(x, size));
    const row = element("tr");
    const cells = [percent(c.before.frequencies[i]), percent(c.after.frequencies[i]), at(c.differences[i]), at(c.low[i]), at(c.high[i]), c.clear[i] ? "yes" : "no",
      ...(c.truth ? [at(c.truth[i])] : [])];
    row.append(element("th", c.labels[i], { scope: "row" }), ...cells.map((text) => element("td", text, { class: "number" })));
    return row;
  }));
}

export function caption() {
  return {
    title: `${state.survey.name}: ${subject(shown)}, differences in percentage points`,
    lines: [sides(shown), `${about(shown.estimator).label}; 95 % intervals; bars in strong colour differ clearly`],
    name: fileName(shown, ...(shown.before.cohort === shown.after.cohort ? [shown.before.step] : ["minus", shown.before.cohort]), shown.after.step),
    keys: [],
  };
}
