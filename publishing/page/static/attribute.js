// The page of one attribute: its charts, and the controls "for research". `page.js` loads this module and uPlot when needed.
import { fits } from "./charts.js";
import { choices, drawTable } from "./crosstable.js";
import { drawCurves } from "./curves.js";
import { $, get, keepFocus, plural } from "./dom.js";
import * as histogram from "./histogram.js";
import { offer } from "./period.js";
import { download } from "./picture.js";
import { drawLevels } from "./privacy.js";
import { drawNumbers, drawQuantiles } from "./quantiles.js";
import {
  ORDERS, about, asked, comparisonQuery, earlier, estimator, estimators, hasTable, histogramQuery, numbersQuery, order, path, seriesQuery, shownValues, state, subject, tableQuery, usagePath,
} from "./state.js";
import { duration, periodOf } from "./times.js";
import { aboutPeople, linesOf, retention } from "./usage.js";

let shown = {}; // the answers drawn: histogram, series, numbers, comparison, table, people

// Changes the state, writes the address and draws. Without `draw`, the page asks for the estimates that the state names.
let change;

const actions = {
  toggle(value) {
    const before = state.values ?? [...state.slots.keys()];
    const after = before.includes(value) ? before.filter((v) => v !== value) : [...before, value].slice(-20);
    change(true, { values: after.length ? after : null });
  },
  zoom: (view) => change(false, { zoom: view && view[1] > view[0] ? view : null }, drawValues),
  period: (steps) => change(false, { period: steps }, draw),
};

export function offerControls() {
  offer($("attribute"), state.survey.attributes.map(({ name }) => [name, name]), state.attribute);
  $("attribute-label").hidden = state.survey.attributes.length < 2;
  offer($("estimator"), estimators().map((name) => [name, about(name).label]), estimator());
  $("estimator").title = about(estimator()).meaning;
  $("estimator").disabled = estimators().length < 2;
  offer($("post"), state.survey.post_methods.map((name) => [name, name]), state.post);
  $("post").disabled = !about(estimator()).post_processed || state.survey.post_methods.length < 2;
  offer($("order"), Object.entries(ORDERS), order());
  const counts = [10, 25, 50, 100, 500].filter((n) => n < asked().k);
  if (state.show && state.show !== Infinity && !counts.includes(state.show)) counts.push(state.show);
  const all = asked().k > 2000 ? "2,000 most frequent" : "all";
  offer($("show"), [...counts.map((n) => [`${n}`, `${n} most frequent`]), ["all", all]], shownValues() === Infinity ? "all" : `${shownValues()}`);
  $("find-tools").hidden = asked().k <= 10 && !state.find;
  if (document.activeElement !== $("find")) $("find").value = state.find;
  offer($("last"), [...new Set([12, 48, 168, 1000, state.survey.retention_steps, state.last])].sort((a, b) => a - b).map((n) => [`${n}`, `${plural(n, "step")} (${duration(n * 1000 * state.survey.step_seconds)})`]), `${state.last}`);
}

// Asks for the estimates of the chosen attribute. Returns the draw, and the error of an answer that does not exist.
export async function ask(known) {
  const numbers = asked().number_spans.includes(state.span);
  const compares = state.against !== null || earlier() !== null;
  const wanted = known ? {
    histogram: path("histogram", histogramQuery()), series: path("series", seriesQuery()), ...(numbers && { numbers: path("numbers", numbersQuery()) }),
    ...(compares && { comparison: path("comparison", comparisonQuery()) }), ...(hasTable() && { table: path("table", tableQuery()) }),
    ...(asked().recipe && { people: usagePath(state.until, state.last) }),
  } : {};
  const answers = await Promise.allSettled(Object.values(wanted).map(get));
  const failed = answers.find((answer) => answer.status === "rejected")?.reason;
  if (failed && ![404, 422].includes(failed.status)) throw failed;
  const found = Object.fromEntries(Object.keys(wanted).map((name, i) => [name, answers[i].value]));
  return { failed, found };
}

export function show(found, status) {
  shown = found;
  $("cross").hidden = !shown.table;
  $("estimate").hidden = !shown.histogram; // never the numbers of another step
  $("over-time").hidden = !shown.series;
  $("quantiles-card").hidden = !shown.numbers;
  $("people-card").hidden = !shown.people;
  $("attribute-title").textContent = shown.histogram ? subject(shown.histogram) : state.attribute;
  $("when").textContent = shown.histogram ? periodOf(shown.histogram) : "";
  draw();
  keepFocus(() => drawLevels(status.attributes.find((overview) => overview.attribute === state.attribute)));
}

function drawValues() {
  if (shown.histogram) keepFocus(() => histogram.drawHistogram(shown.histogram, shown.comparison ?? null, actions));
}

function drawPeople() {
  drawNumbers("people", shown.people, linesOf(shown.people), state.period, actions.period, true);
  $("people-hint").textContent = `People ${aboutPeople(shown.people)}, with 95 % intervals.`;
  $("people-back").replaceChildren(...(shown.people.retention.length ? [retention(shown.people)] : []));
  const query = usagePath(state.until, state.last).split("?")[1];
  for (const kind of ["csv", "json"]) $(`people-${kind}`).href = `api/v1/usage${kind === "csv" ? ".csv" : ""}?${query}`;
}

function drawCross() {
  if (!shown.table) return;
  offer($("cross-part"), choices(shown.table), state.table);
  keepFocus(() => drawTable(shown.table));
}

// Draws all charts again, as after a change of the theme or of the window's size.
export function draw() {
  if (state.attribute === null) return;
  drawCross();
  keepFocus(() => {
    if (shown.series) drawCurves(shown.series, actions);
    if (shown.numbers) drawQuantiles(shown.numbers, state.period, actions.period);
    if (shown.people) drawPeople();
  });
  drawValues();
}

// Starts the controls. changed(push, draw): writes the address, shows the controls and draws. go(attribute) shows an attribute.
export function start(changed, go) {
  change = (push, what, drawing) => {
    Object.assign(state, what);
    changed(push, drawing);
  };
  const on = (id, kind, act) => $(id).addEventListener(kind, act);
  const of = (id) => $(id).value;
  on("attribute", "change", () => go(of("attribute")));
  on("estimator", "change", () => change(true, { estimator: of("estimator") }));
  on("post", "change", () => change(true, { post: of("post") }));
  on("cross-part", "change", () => change(true, { table: of("cross-part") }, drawCross));
  on("order", "change", () => change(true, { order: of("order"), zoom: null }, drawValues));
  on("show", "change", () => change(true, { show: of("show") === "all" ? Infinity : Number(of("show")), zoom: null }, drawValues));
  on("find", "input", () => change(false, { find: of("find"), zoom: null }, drawValues));
  on("find", "keydown", (event) => { if (event.key === "Enter") $("histogram").focus(); });
  on("last", "change", () => change(true, { last: Number(of("last")), period: null }));
  on("numbers", "toggle", () => { if ($("numbers").open && shown.histogram) histogram.drawNumbers(); });
  on("zoom-all", "click", () => actions.zoom(null));
  on("whole-period", "click", () => actions.period(null));
  on("default-curves", "click", () => change(true, { values: null }));
  const last = ({ steps }) => `step-${steps[0]}-${steps.at(-1)}`;
  on("histogram-png", "click", () => download($("histogram"), shown.histogram, "histogram", `step-${shown.histogram.step}`));
  on("comparison-png", "click", () => download($("differences"), shown.comparison, "difference", `step-${shown.comparison.before.step}-${shown.comparison.after.step}`));
  on("series-png", "click", () => download($("series"), shown.series, "over time", last(shown.series)));
  on("reports-png", "click", () => download($("reports"), { ...shown.series, estimator: null }, "reports", last(shown.series)));
  on("people-png", "click", () => download($("people"), { ...shown.people, estimator: null }, "people", last(shown.people)));
  on("quantiles-png", "click", () => download($("quantiles"), shown.numbers, "numbers", last(shown.numbers)));
  new ResizeObserver(() => { if (!fits($("histogram"))) draw(); }).observe($("histogram"));
}
