// The differences of two times or of two cohorts: a chart below the histogram in its bars, and sentences.
import { barChart, colour } from "./charts.js";
import { $, capital, element, explained, grouped, isolated, number, percent, points, within } from "./dom.js";
import { named } from "./quantiles.js";
import { about, asked, comparisonQuery, earlier, linkFiles, state, subject } from "./state.js";
import { periodOf } from "./times.js";

const MOST_LISTED = 8;
const ofTimes = (c) => c.before.cohort === c.after.cohort; // else of two cohorts
const whose = ({ cohort }) => (cohort === null ? "all people" : cohort);
const sides = (c) => (ofTimes(c) ? `From ${periodOf(c.before)} to ${periodOf(c.after)}`
  : `${capital(state.survey.cohort.name)} ${whose(c.after)} minus ${whose(c.before)}, ${periodOf(c.after)}`);

// The size of a difference in standard errors.
const evidence = (c, i) => Math.abs(c.differences[i]) / c.standard_errors[i];

// Draws the differences c (or null) of the histogram's bars `rows`. `does`: as for the histogram's chart.
export function drawChanges(c, rows, does) {
  $("comparison").hidden = !c;
  const start = state.against === null && state.step !== null && earlier() === null;
  $("no-comparison").textContent = start ? "There is no earlier period to compare with." : "";
  if (!c) return;
  const at = new Map(c.values.map((each, i) => [each, i]));
  const places = rows.labels.map((_, i) => at.get(rows.values[i]));
  const of = (numbers) => places.map((i) => numbers[i] ?? null);
  const fills = places.map((i) => colour(c.clear[i] ? "accent" : "idle"));
  barChart($("differences"), { labels: rows.labels, frequencies: of(c.differences), low: of(c.low), high: of(c.high), truth: c.truth && of(c.truth), fills }, { ...does, below: true });
  $("differences").setAttribute("aria-label", `Differences of ${subject(c)} between two ${ofTimes(c) ? "times" : "cohorts"}, in the bars of the histogram. Arrow keys read single values.`);
  words(c);
  linkFiles("comparison", "comparison", comparisonQuery(), c.after.step);
}

function words(c) {
  const clear = c.differences.map((_, i) => i).filter((i) => c.clear[i]).sort((a, b) => evidence(c, b) - evidence(c, a));
  const known = c.differences.some((x) => x !== null);
  const box = $("comparison-summary");
  const times = ofTimes(c);
  $("comparison-title").textContent = times ? "Change, in percentage points" : "Difference, in percentage points";
  box.replaceChildren(`${sides(c)}, ${about(c.estimator).label}${about(c.estimator).post_processed && state.post !== "none" ? " without post-processing" : ""}. `);
  if (!known) box.append(`There is no estimate of one of the two ${times ? "times" : "cohorts"}.`);
  else if (c.interval_withheld) box.append(element("span", "No intervals: one of the two estimates may be biased, so its intervals are withheld.", { class: "late" }));
  else {
    const compared = c.values.length < asked().k ? `the ${grouped(c.values.length)} values with the clearest differences` : `${grouped(c.values.length)} values`;
    box.append(`${clear.length ? grouped(clear.length) : "None"} of ${compared} ${times ? "changed" : clear.length === 1 ? "differs" : "differ"} `, explained("beyond chance", "clear"), ", with ", explained("95 % intervals", times || c.basis !== "any" ? c.basis : "windows"), ". Bars in strong colour are clear.");
    if (c.overlap && times) box.append(" The two windows share steps, so the difference is usually smaller than the change of the shares. Choose times that lie a window apart to see the whole change.");
  }
  if (!c.before.complete || !c.after.complete) box.append(" ", element("span", "Incomplete: reports may be missing.", { class: "late" }));
  const items = clear.slice(0, MOST_LISTED)
    .map((i) => element("li", [isolated(c.labels[i]), change(c, c.values[i]).replace(/^, \w+ /, ": "), ` (${percent(c.before.frequencies[i])} to ${percent(c.after.frequencies[i])})`]));
  if (known) items.push(...Object.entries(c.numbers).map(([name, x]) => element("li", `${capital(named({ name }))}: ${within(x.value, x.low, x.high, true)}${c.true_numbers[name] === undefined ? "" : `, truth ${number(c.true_numbers[name])}`}`)));
  if (clear.length > MOST_LISTED) items.push(element("li", `and ${clear.length - MOST_LISTED} more (see the table)`));
  $("comparison-list").replaceChildren(...items);
}

// The difference of a value as the end of a sentence; nothing if it is unknown.
export function change(c, of) {
  const i = c ? c.values.indexOf(of) : -1;
  if (i < 0 || c.differences[i] === null) return "";
  const at = (x) => points(x, c.differences[i]);
  const interval = c.low[i] === null ? "no interval" : `95 % interval ${at(c.low[i])} to ${at(c.high[i])}`;
  return `, ${ofTimes(c) ? "change" : "difference"} ${at(c.differences[i])} points, ${interval}${c.truth ? `, truth ${at(c.truth[i])}` : ""}`;
}
