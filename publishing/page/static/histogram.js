// The histogram: its values, order, zoom, and the table of its numbers.
import { crowdText } from "./alerts.js";
import { barChart, colour, colourOf } from "./charts.js";
import { $, capital, element, grouped, percent, plural, silence, table, TOO_FEW } from "./dom.js";
import { explained } from "./explain.js";
import { about, asked, fileName, histogramQuery, order, path, shownValues, state, subject } from "./state.js";
import { periodOf } from "./times.js";

const WITHHELD = {
  bias: "Intervals would not cover the truth: this estimate is biased. Matrix inversion has intervals.",
  levels: "Intervals would not cover the truth: the levels' histograms differ, so an estimate over all levels can be biased.",
};
export const MOST_ROWS = 250; // largest number of rows of a table
let shown = null; // the histogram last drawn
let rows = null; // the shown part of this histogram: indices of the values, and the bars
let chosen = null; // attribute and value of the readout

// ---- which values, in which order

// Indices of the values shown, and the sum of the others (null: all values are shown, or their sum is unknown).
export function select(h) {
  const words = state.find.trim().toLowerCase();
  let kept = h.values.map((_, i) => i);
  if (words) kept = kept.filter((i) => h.labels[i].toLowerCase().includes(words));
  const n = shownValues();
  const known = h.frequencies.some((x) => x !== null);
  if (known && kept.length > n) kept = [...kept].sort((a, b) => h.frequencies[b] - h.frequencies[a] || a - b).slice(0, n);
  else if (kept.length > n) kept = kept.slice(0, n);
  if (order() === "frequency" && known) kept.sort((a, b) => h.frequencies[b] - h.frequencies[a] || a - b);
  else if (order() === "label") kept.sort((a, b) => h.labels[a].localeCompare(h.labels[b], "en", { numeric: true }));
  else kept.sort((a, b) => h.values[a] - h.values[b]);
  const inside = new Set(kept);
  const left = asked().k - kept.length;
  const others = !words && known && left && !asked().choices ? h.frequencies.reduce((sum, x, i) => (inside.has(i) ? sum : sum + x), h.others ?? 0) : null;
  return { kept, others, left };
}

function bars(h) {
  const { kept, others, left } = select(h);
  const pick = (numbers) => kept.map((i) => numbers[i]);
  const numbersOfAnswers = asked().k - (asked().choices ?? 0); // the first value that is "at most" some number of answers
  const plain = (value) => colour(value < numbersOfAnswers ? "bar" : "line");
  const made = {
    kept, left, others, values: pick(h.values), labels: pick(h.labels), frequencies: pick(h.frequencies), low: pick(h.low), high: pick(h.high),
    truth: h.truth && pick(h.truth), fills: kept.map((i) => (state.slots.has(h.values[i]) ? `${colourOf(state.slots.get(h.values[i]))}b0` : plain(h.values[i]))),
  };
  made.dashed = new Set([...kept.keys()].filter((at) => !h.named[kept[at]] && made.low[at] !== null));
  if (others !== null) {
    made.beyond = new Set([kept.length]);
    made.labels.push(`others (${grouped(left)})`);
    made.frequencies.push(others);
    made.fills.push(colour("line"));
    for (const ends of [made.low, made.high, ...(made.truth ? [made.truth] : [])]) ends.push(null);
  }
  return made;
}

// ---- words


// Fills the summary with sentences. The numbers in them are buttons with explanations.
function summary(h, known) {
  const box = $("summary");
  const intervals = h.interval_withheld ? "no intervals" : `${Math.round(100 * h.confidence)} % intervals`;
  $("when").textContent = periodOf(h);
  if (h.span === "filtered" && !known) return box.replaceChildren(h.complete ? "Nobody has reported up to this step: there is no estimate." : "No report has been counted up to this step: there is no estimate.");
  if (h.below_least) {
    const { name, least } = state.survey.cohort;
    const number = `${plural(h.reports, "report")} in this ${h.span}, which may come from fewer than ${plural(least, "person", "people")}: no histogram is published.`;
    return box.replaceChildren(explained(`${capital(name)} ${h.cohort}`, "cohort"), `: ${number}`);
  }
  if (!known) return box.replaceChildren(`${capital(silence(h.complete))} in this ${h.span}: there is no estimate.`);
  const people = `of at least ${plural(h.people_at_least, "person", "people")}`;
  const reports = explained(`${plural(h.reports, "report")} ${people}`, "reports");
  const ends = explained(intervals, "interval");
  if (h.span === "filtered") {
    const here = h.reports ? [reports, " in this step."] : [`${capital(silence(h.complete))} in this step: the curve is predicted from earlier steps.`];
    box.replaceChildren(...here, " The filtered curve is estimated from ", explained(plural(h.panes, "step"), "steps"), " so far, with ", ends, ".");
  } else {
    const who = h.cohort === null ? [] : [explained(`${capital(state.survey.cohort.name)} ${h.cohort}`, "cohort"), ": "];
    box.replaceChildren(...who, reports, " in ", explained(plural(h.panes, "step"), "steps"), ", with ", ends, ".");
  }
  return undefined;
}

function remarks(h, known) {
  const box = $("summary");
  if (h.interval_withheld) box.append(" ", element("span", WITHHELD[h.interval_withheld], { class: "late" }));
  if (rows.dashed.size) box.append(" Solid whiskers hold for each value, dashed ones only ", explained("on average", "interval"), " over the values.");
  if (h.too_few) box.append(" ", element("strong", TOO_FEW));
  if (h.diagnostics.failed.length) box.append(" ", element("span", `Could not be calculated from these counts: ${h.diagnostics.failed.join(", ")}.`, { class: "late" }));
  const sampled = asked().levels.filter((level) => level.every_steps > 1);
  if (h.reports && h.span !== "window" && sampled.length) {
    const shares = sampled.map((level) => `at most about one device in ${level.every_steps} at level ${level.name}`).join(", ");
    box.append(` A step counts ${shares}; the intervals hold for all people.`);
  }
  if (!h.complete) box.append(" ", element("span", "Incomplete: reports may be missing.", { class: "late" }));
  if (h.crowd !== null && !h.crowd.reached) box.append(" ", element("span", `${capital(crowdText(h.crowd))} in this step.`, { class: "late" }));
  const { choices } = asked();
  if (choices) box.append(` People choose up to ${plural(choices, "value")}, so the `, explained("shares", "several"), " do not sum to 100 %. Grey bars tell how many values people choose.");
  if (h.truth) box.append(" ", element("span", "", { class: "ring" }), " is the ", explained("truth", "truth"), ".");
  if (!known) return;
  const { kept, others, left } = rows;
  if (state.find.trim()) {
    const searched = h.values.length < asked().k ? `the ${grouped(h.values.length)} most frequent` : grouped(asked().k);
    box.append(` ${plural(kept.length, "value")} of ${searched} with “${state.find.trim()}”.`);
  }
  else if (left) {
    box.append(h.too_few ? ` The ${grouped(kept.length)} largest estimates of ${grouped(asked().k)} values` : ` The ${grouped(kept.length)} most frequent of ${grouped(asked().k)} values`);
    if (others !== null) box.append("; the ", explained("others", "others"), ` have ${percent(others)} together`);
    box.append(".");
  }
}

// ---- drawing

// Draws the histogram. actions: toggle(value) adds or removes a curve, zoom(view) zooms to positions, order(name) sorts.
export function drawHistogram(h, actions) {
  shown = h;
  rows = bars(h);
  const known = h.frequencies.some((x) => x !== null);
  $("histogram-title").textContent = subject(h);
  summary(h, known);
  remarks(h, known);
  const n = rows.labels.length;
  const view = state.zoom && state.zoom[0] < n ? [state.zoom[0], Math.min(n - 1, state.zoom[1])] : null;
  $("zoom-out").disabled = $("zoom-all").disabled = !view;
  $("zoom-in").disabled = n < 3;
  const name = `Histogram of ${subject(h)}, ${known ? plural(rows.values.length, "value") : nothing(h)}`;
  $("histogram").setAttribute("aria-label", `${name}. Arrow keys read single values; Enter adds a value to the curves.`);
  const at = h.attribute === chosen?.attribute ? rows.values.indexOf(chosen.value) : -1;
  barChart($("histogram"), rows, {
    view, read, at,
    choose: (i) => { if (i < rows.values.length) actions.toggle(rows.values[i]); },
    zoom: (ends) => actions.zoom(ends && [Math.max(0, Math.ceil(ends[0] - 0.4)), Math.min(n - 1, Math.floor(ends[1] + 0.4))]),
  });
  if (at >= 0) read(at);
  else unread();
  if ($("numbers").open) drawNumbers(actions);
  const query = histogramQuery();
  query.set("step", h.step);
  query.delete("top"); // the files have all values
  $("histogram-csv").href = path("histogram.csv", query);
  $("histogram-json").href = path("histogram", query);
}

// The positions after a press on a zoom button, or null for all.
export function zoomed(by) {
  const n = rows?.labels.length ?? 0;
  const [first, last] = state.zoom ?? [0, n - 1];
  const width = Math.max(2, Math.round((last - first + 1) * by));
  if (width >= n) return null;
  const begin = Math.max(0, Math.min(n - width, Math.round((first + last - width + 1) / 2)));
  return [begin, begin + width - 1];
}

const UNREAD = "Arrow keys read single values. Drag to zoom. Click a bar to add its value to the curves, or to remove it.";

export function unread() {
  chosen = null;
  $("readout").textContent = UNREAD;
}

const nothing = (h) => {
  if (h.below_least) return "the cohort is below the least size";
  return h.reports ? "no estimate from these counts" : silence(h.complete);
};

function read(i) {
  if (i >= rows.values.length) {
    if (rows.others !== null) $("readout").textContent = `${rows.labels[i]}: ${percent(rows.others)} together`;
    return;
  }
  chosen = { attribute: shown.attribute, value: rows.values[i] };
  const truth = rows.truth ? `, truth ${percent(rows.truth[i])}` : "";
  if (rows.frequencies[i] === null) $("readout").textContent = `${rows.labels[i]}: no estimate, since ${nothing(shown)}${truth}`;
  else {
    const interval = rows.low[i] === null ? "without an interval" : `between ${percent(rows.low[i])} and ${percent(rows.high[i])}${rows.dashed?.has(i) ? " (holds on average)" : ""}`;
    $("readout").textContent = `${rows.labels[i]}: ${percent(rows.frequencies[i])}, ${interval}${truth}`;
  }
}

// The table of the values shown, in the chart's order.
export function drawNumbers(actions) {
  const h = shown;
  const sortable = (text, by) => {
    const cell = element("th", "", { scope: "col", "aria-sort": order() === by ? (by === "frequency" ? "descending" : "ascending") : "none" });
    const button = element("button", text, { type: "button", class: "link" });
    button.addEventListener("click", () => actions.order(by));
    cell.append(button);
    return cell;
  };
  const heading = (text, why) => {
    const cell = element("th", "", { scope: "col", class: "number" });
    cell.append(explained(text, why));
    return cell;
  };
  const share = sortable("Share", "frequency");
  share.className = "number";
  const head = [sortable("Value", "label"), share, heading("Standard error", "error"), heading("From", "interval"), heading("To", "interval"),
    ...(h.truth ? [heading("Truth", "truth")] : [])];
  const made = rows.kept.slice(0, MOST_ROWS).map((i) => {
    const row = element("tr");
    const numbers = [h.frequencies[i], h.standard_errors[i], h.low[i], h.high[i], ...(h.truth ? [h.truth[i]] : [])];
    row.append(element("th", h.labels[i], { scope: "row" }), ...numbers.map((x) => element("td", percent(x), { class: "number" })));
    return row;
  });
  if (rows.kept.length > MOST_ROWS) {
    const rest = element("tr");
    rest.append(element("td", `and ${grouped(rows.kept.length - MOST_ROWS)} more: find a value above, or download the CSV.`, { colspan: head.length }));
    made.push(rest);
  }
  table($("values"), head, made);
}

// Title and lines above a picture of the histogram.
export function caption() {
  const h = shown;
  const people = `${plural(h.reports, "report")} of at least ${plural(h.people_at_least, "person", "people")} in ${plural(h.panes, "step")}`;
  const post = h.post === "none" ? "" : `, ${h.post}`;
  return {
    title: `${state.survey.name}: ${subject(h)}`,
    lines: [
      `${periodOf(h)}, ${h.span === "filtered" ? "filtered curve" : h.span === "step" ? "one step" : "sliding window"}`,
      `${capital(about(h.estimator).label)}${post}; ${people}; ${h.interval_withheld ? "no intervals" : `${Math.round(100 * h.confidence)} % intervals`}`,
    ],
    name: fileName(h, h.step),
    keys: h.truth ? [["truth", colour("truth"), []]] : [],
  };
}
