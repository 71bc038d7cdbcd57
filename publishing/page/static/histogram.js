// The histogram of an attribute, the differences below it in the same bars, and the table of their numbers.
import { crowdText } from "./alerts.js";
import { barChart, colour, colourOf } from "./charts.js";
import { change, drawChanges } from "./comparison.js";
import { $, capital, element, explained, grouped, heading, isolated, percent, plural, points, range, silence, table, TOO_FEW } from "./dom.js";
import { about, asked, histogramQuery, linkFiles, order, shownValues, state, subject } from "./state.js";
import { periodOf } from "./times.js";

const WITHHELD = {
  bias: "Intervals would not cover the truth: this estimate is biased. Matrix inversion has intervals.",
  levels: "Intervals would not cover the truth: the levels' histograms differ, so an estimate over all levels can be biased.",
};
const MOST_ROWS = 250; // largest number of rows of a table
let shown = null; // the histogram last drawn
let compared = null; // its comparison, or null
let rows = null; // the shown part of this histogram: indices of the values, and the bars
let chosen = null; // attribute and value of the readout

// ---- which values, in which order

// Indices of the values shown, and the sum of the others (null: all values are shown, or their sum is unknown).
function select(h) {
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
  const made = {
    kept, left, others, values: pick(h.values), labels: pick(h.labels), frequencies: pick(h.frequencies), low: pick(h.low), high: pick(h.high),
    truth: h.truth && pick(h.truth), fills: kept.map((i) => (state.slots.has(h.values[i]) ? `${colourOf(state.slots.get(h.values[i]))}b0` : colour("idle"))),
  };
  made.dashed = new Set([...kept.keys()].filter((at) => !h.named[kept[at]] && made.low[at] !== null));
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
  if (choices) box.append(` People choose up to ${plural(choices, "value")}, so the `, explained("shares", "several"), " do not sum to 100 %. The last bars tell how many values people choose.");
  if (h.truth) box.append(" ", element("span", "", { class: "ring" }), " is the ", explained("truth", "truth"), ".");
  if (!known) return;
  const { kept, others, left } = rows;
  const grey = rows.values.filter((value) => !state.slots.has(value)).length;
  if (grey) box.append(` Grey bars have no curve: click a bar to add its curve${state.values || h.too_few ? "" : `; at first, the ${plural(state.slots.size, "most frequent value has", "most frequent values have")} one`}.`);
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

// Draws the histogram h and its comparison c (or null). actions: toggle(value) adds or removes a curve, zoom(view) zooms to
// positions.
export function drawHistogram(h, c, actions) {
  [shown, compared] = [h, c];
  rows = bars(h);
  const known = h.frequencies.some((x) => x !== null);
  summary(h, known);
  remarks(h, known);
  const n = rows.labels.length;
  const view = state.zoom && state.zoom[0] < n ? [state.zoom[0], Math.min(n - 1, state.zoom[1])] : null;
  $("zoom-all").hidden = !view;
  const name = `Histogram of ${subject(h)}, ${known ? plural(rows.values.length, "value") : nothing(h)}`;
  $("histogram").setAttribute("aria-label", `${name}. Arrow keys read single values; Enter adds a value to the curves.`);
  const at = h.attribute === chosen?.attribute ? rows.values.indexOf(chosen.value) : -1;
  const does = {
    view, read, at,
    choose: (i) => actions.toggle(rows.values[i]),
    zoom: (ends) => actions.zoom(ends && [Math.max(0, Math.ceil(ends[0] - 0.4)), Math.min(n - 1, Math.floor(ends[1] + 0.4))]),
  };
  barChart($("histogram"), rows, does);
  drawChanges(c, rows, does);
  if (at >= 0) read(at);
  else unread();
  if ($("numbers").open) drawNumbers();
  linkFiles("histogram", "histogram", histogramQuery(), h.step);
}

const UNREAD = "Arrow keys read single values. Drag to zoom. Click a bar to add its value to the curves, or to remove it.";

function unread() {
  chosen = null;
  $("readout").textContent = UNREAD;
}

const nothing = (h) => {
  if (h.below_least) return "the cohort is below the least size";
  return h.reports ? "no estimate from these counts" : silence(h.complete);
};

function read(i) {
  chosen = { attribute: shown.attribute, value: rows.values[i] };
  const truth = rows.truth ? `, truth ${percent(rows.truth[i])}` : "";
  let said = `no estimate, since ${nothing(shown)}`;
  if (rows.frequencies[i] !== null) {
    said = `${percent(rows.frequencies[i], rows.low[i], rows.high[i])}, ${rows.low[i] === null ? "without an interval" : `between ${range(rows.low[i], rows.high[i])}${rows.dashed?.has(i) ? " (holds on average)" : ""}`}`;
  }
  $("readout").textContent = `${rows.labels[i]}: ${said}${truth}${change(compared, rows.values[i])}`;
}

// The table of the values shown, in the chart's order.
export function drawNumbers() {
  const h = shown;
  const heads = [["Share", "interval"], ["Standard error", "error"], ["From", "interval"], ["To", "interval"], ...(h.truth ? [["Truth", "truth"]] : []),
    ...(compared ? [["Difference", "difference"], ["From", "ends"], ["To", "ends"], ["Clear", "clear"]] : [])];
  const head = [element("th", "Value", { scope: "col" }), ...heads.map(([text, why]) => heading(text, why, "number"))];
  const at = new Map((compared?.values ?? []).map((value, i) => [value, i]));
  const made = rows.kept.slice(0, MOST_ROWS).map((i) => {
    const ends = [h.low[i], h.high[i]];
    const numbers = [percent(h.frequencies[i], ...ends), percent(h.standard_errors[i]), ...ends.map((x) => percent(x, ...ends)), ...(h.truth ? [percent(h.truth[i])] : [])];
    if (compared) {
      const [c, j] = [compared, at.get(h.values[i])];
      const size = c.differences[j] ?? 0;
      numbers.push(...[c.differences[j], c.low[j], c.high[j]].map((x) => (x === null || x === undefined ? "–" : points(x, size))), (c.differences[j] ?? null) === null ? "–" : c.clear[j] ? "yes" : "no");
    }
    return element("tr", [element("th", isolated(h.labels[i]), { scope: "row" }), ...numbers.map((text) => element("td", text, { class: "number" }))]);
  });
  if (rows.kept.length > MOST_ROWS) {
    made.push(element("tr", element("td", `and ${grouped(rows.kept.length - MOST_ROWS)} more: find a value above, or download the CSV.`, { colspan: head.length })));
  }
  table($("values"), head, made);
}
