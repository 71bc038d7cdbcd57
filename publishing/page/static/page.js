// The live page: reads the API of this host, draws, and asks for new estimates every two seconds.
import { drawAlerts, isLate } from "./alerts.js";
import { fits } from "./charts.js";
import * as comparison from "./comparison.js";
import { choices, drawTable } from "./crosstable.js";
import * as curves from "./curves.js";
import { $, capital, element, forget, get, plural } from "./dom.js";
import { keepFocus, startExplaining } from "./explain.js";
import * as histogram from "./histogram.js";
import { drawOverview } from "./overview.js";
import { download } from "./picture.js";
import * as quantiles from "./quantiles.js";
import {
  ORDERS, SPANS, aDay, about, address, asked, chooseStep, compareWith, comparisonQuery, estimator, estimators, followLatest, hasTable, histogramQuery, numbersQuery, order, path, readAddress, seriesQuery,
  shownValues, spans, state, tableQuery, writeAddress,
} from "./state.js";
import { LOCAL, duration, fieldText, fieldTime, moment, nextZone, opens, periodOfStep, stepAt, useSurvey, zoneName } from "./times.js";

const shown = { status: null, histogram: null, series: null, numbers: null, comparison: null, table: null };
const POLL_MS = 2000;
let problem = null; // text about the parts of the address that the page cannot show
let connected = true;
let ahead = 0; // the server's clock minus ours, in ms
const now = () => Date.now() + ahead;

// ---- actions of the controls

const actions = {
  choose(name) {
    if (name === state.attribute) return;
    histogram.unread();
    Object.assign(state, { attribute: name, values: null, zoom: null, find: "", show: null });
    if (!spans().includes(state.span)) state.span = "window";
    change(true);
  },
  toggle(value) {
    const before = state.values ?? [...state.slots.keys()];
    const after = before.includes(value) ? before.filter((v) => v !== value) : [...before, value].slice(-20);
    state.values = after.length ? after : null;
    change(true);
  },
  order(name) {
    Object.assign(state, { order: name, zoom: null });
    change(true, redrawValues);
  },
  zoom(view) {
    state.zoom = view && view[1] > view[0] ? view : null;
    change(false, redrawValues);
  },
  period(steps) {
    state.period = steps;
    change(false, redraw);
  },
};

// Writes the address and the controls, then draws.
function change(push, draw = refresh) {
  if (push) problem = null;
  writeAddress(push);
  offerControls();
  draw();
}

// Fills a select with these options.
function offer(select, options, chosen) {
  const text = JSON.stringify(options);
  if (select.dataset.options !== text) {
    select.dataset.options = text;
    select.replaceChildren(...options.map(([value, name]) => element("option", name, { value })));
  }
  select.value = chosen;
}

function offerControls() {
  const { attributes, cohort } = state.survey;
  offer($("attribute"), attributes.map(({ name }) => [name, name]), state.attribute);
  $("cohort-label").hidden = !cohort;
  if (cohort) {
    $("cohort-name").textContent = capital(cohort.name);
    offer($("cohort"), [["", "all people"], ...cohort.values.map((name, i) => [`${i}`, name])], state.cohort === null ? "" : `${cohort.values.indexOf(state.cohort)}`);
    const others = cohort.values.map((name, i) => [`${i}`, name]).filter(([, name]) => name !== state.cohort);
    offer($("against"), [["", "no other"], ...others], state.against === null ? "" : `${cohort.values.indexOf(state.against)}`);
  }
  $("against-label").hidden = state.cohort === null;
  offer($("span"), Object.entries(SPANS).filter(([span]) => spans().includes(span)), state.span);
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
  if (document.activeElement !== $("find")) $("find").value = state.find;
  offer($("last"), [...new Set([12, 48, 168, 1000, state.survey.retention_steps, state.last])].sort((a, b) => a - b).map((n) => [`${n}`, `${plural(n, "step")} (${duration(n * 1000 * state.survey.step_seconds)})`]), `${state.last}`);
  $("follow").checked = state.follow;
  $("to-latest").hidden = state.step === null || state.follow;
  $("to-latest").href = address(false);
  $("compare").disabled = !(state.step > state.first);
  $("compare").checked = state.before !== null;
  $("yesterday").hidden = state.survey.step_seconds > 86400;
  $("yesterday").disabled = !(state.step - aDay() >= state.first);
  $("before-label").hidden = $("before-date-label").hidden = state.before === null;
  $("comparison").hidden = state.before === null && state.against === null;
  for (const [slider, text, step] of [["step", "step-text", state.step], ["before", "before-text", state.before]]) {
    Object.assign($(slider), { min: state.first, max: slider === "before" ? Math.max(state.first, state.step - 1) : state.latest ?? 0 });
    if (step === null) continue;
    $(slider).value = step;
    $(text).textContent = moment(opens(step + 1));
    if (document.activeElement !== $(`${slider}-date`)) $(`${slider}-date`).value = fieldText(opens(step + 1));
    $(slider).setAttribute("aria-valuetext", periodOfStep(step));
  }
}

// ---- drawing

// Draws the charts that depend on the choice of values and their order.
function drawValues() {
  if (shown.histogram) histogram.drawHistogram(shown.histogram, actions);
  if (shown.comparison && shown.histogram && (state.before !== null || state.against !== null)) comparison.drawComparison(shown.comparison, shown.histogram);
}

function drawCross() {
  if (!shown.table) return;
  offer($("cross-part"), choices(shown.table), state.table);
  drawTable(shown.table);
}

function drawCharts() {
  drawCross();
  if (shown.series) curves.drawCurves(shown.series, actions);
  if (shown.numbers) quantiles.drawQuantiles(shown.numbers, state.period, actions.period);
  drawValues();
}

const redrawValues = () => keepFocus(drawValues);
const redraw = () => keepFocus(drawCharts);

function notice(text) {
  $("notice").hidden = !text;
  $("notice-text").textContent = text;
}

let [busy, again] = [false, false];

// Reads the estimates that the state names, and draws them. Only one refresh runs at a time; a call meanwhile causes one more.
async function refresh() {
  again = busy;
  if (busy) return;
  busy = true;
  try {
    await update();
    connected = true;
  } catch (error) {
    connected = false;
    say(error.status ? error.message : "the service does not answer");
  }
  busy = false;
  if (again) await refresh();
}

const kept = (step) => step >= state.first && step <= state.latest;

// The reason why a step has no estimate, or null.
function missing(step) {
  if (step === null || state.latest === null || kept(step)) return null;
  return `There is no estimate of step ${step}${step > state.latest ? " yet" : `: the estimates begin at ${moment(opens(state.first))}`}.`;
}

async function update() {
  const status = await get(`api/v1/status?span=${state.span}`);
  if (shown.status !== status) ahead = status.now_ms - Date.now();
  [state.latest, state.first] = [status.latest_step, status.first_step ?? 0];
  followLatest();
  const compares = state.against !== null || (state.before !== null && state.before !== state.step && kept(state.before));
  const [numbers, crossed] = [asked().number_spans.includes(state.span), hasTable()];
  const wanted = status.latest_step === null || !kept(state.step) ? [] : [path("histogram", histogramQuery()), path("series", seriesQuery()),
    ...(numbers ? [path("numbers", numbersQuery())] : []), ...(compares ? [path("comparison", comparisonQuery())] : []), ...(crossed ? [path("table", tableQuery())] : [])];
  const answers = await Promise.allSettled(wanted.map(get));
  if (again && answers[0]?.value?.attribute !== state.attribute) return;
  const failed = answers.find((answer) => answer.status === "rejected")?.reason;
  if (failed && ![404, 422].includes(failed.status)) throw failed;
  notice([problem, failed?.message, ...[state.step, state.before].map(missing)].filter(Boolean).join(" "));
  shown.status = status;
  [shown.histogram, shown.series, shown.numbers, shown.comparison] = [0, 1, numbers ? 2 : -1, numbers ? 3 : 2].map((i) => answers[i]?.value ?? null);
  if (!compares) shown.comparison = null;
  shown.table = (crossed && answers.at(-1)?.value) || null;
  writeAddress(false);
  offerControls();
  $("comparison").hidden = !shown.comparison;
  $("cross").hidden = !shown.table;
  $("estimate").hidden = !shown.histogram; // never the numbers of another step
  $("over-time").hidden = !shown.series;
  $("quantiles-card").hidden = !shown.numbers;
  if (!shown.histogram) $("when").textContent = "";
  redraw();
  keepFocus(() => drawOverview(status, actions.choose));
  curves.drawRejected(status.rejected);
  curves.drawLargestClient(status.largest_client);
  connected = true;
  tick();
  document.documentElement.dataset.ready = "yes";
}

// ---- the status line

function say(text, how = "lost") {
  if ($("state-text").textContent !== text) $("state-text").textContent = text;
  $("dot").className = `dot ${how}`;
}

// Shows the age of the numbers and the time of the next estimate.
function tick() {
  const { status } = shown;
  if (!status || !connected) return;
  keepFocus(() => drawAlerts(status, now(), actions.choose));
  const due = status.due_ms === null ? "" : `, next estimate ${status.due_ms > now() ? `due ${moment(status.due_ms)}` : "due now"}`;
  if (status.latest_step === null) return say(`Waiting for the first step to close${due}`, isLate(status, now()) ? "late" : "live");
  const end = opens(status.latest_step + 1);
  const age = state.survey.simulated ? "simulated time" : `${duration(Math.max(0, now() - end))} ago`;
  const silent = status.attributes.every((overview) => overview.step_reports === 0);
  say(`Latest step ended ${moment(end)} ${zoneName()} (${age}; step ${status.latest_step})${due}`, isLate(status, now()) || silent ? "late" : "live");
}

let seen; // the ETag of the estimates shown

// Asks whether there are new estimates. The browser sends the ETag of the answer that it has, and then gets no body.
async function poll() {
  const answer = await fetch(`api/v1/status?span=${state.span}`).catch(() => null);
  const tag = answer?.headers.get("ETag") ?? null;
  if (tag !== seen || !connected) { forget(); await refresh(); }
  seen = tag;
  tick();
  setTimeout(poll, POLL_MS);
}

// ---- theme, time zone, links

function remembered() {
  try { return localStorage.getItem("theme") ?? "system"; } catch { return "system"; }
}

function theme(wanted) {
  const dark = wanted === "dark" || (wanted === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = `Theme: ${remembered()}`;
  redraw();
}

function startHeader() {
  theme(remembered());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(remembered()));
  $("theme").addEventListener("click", () => {
    const order = ["system", "light", "dark"];
    const next = order[(order.indexOf(remembered()) + 1) % 3];
    try { localStorage.setItem("theme", next); } catch { /* without storage, the choice lasts until the page is closed */ }
    theme(next);
  });
  const showZone = () => { $("zone").textContent = `Times: ${zoneName()}`; };
  showZone();
  $("zone").hidden = LOCAL === "UTC";
  $("zone").addEventListener("click", () => { nextZone(); showZone(); offerControls(); refresh(); });
  for (const [id, name, pinned] of [["copy", "Copy link", true], ["copy-latest", "Copy link to latest", false]]) {
    $(id).addEventListener("click", async () => {
      const link = `${location.origin}${location.pathname}${address(pinned)}`;
      try {
        await navigator.clipboard.writeText(link);
        $(id).textContent = "Link copied";
      } catch {
        prompt("Copy this link:", link);
      }
      setTimeout(() => { $(id).textContent = name; }, 3000);
    });
  }
  addEventListener("beforeprint", () => theme("light"));
  addEventListener("afterprint", () => theme(remembered()));
}

// ---- controls

// Starts a slider. A whole drag makes one entry in the history.
function slide(id, act) {
  let dragged = false;
  $(id).addEventListener("input", () => {
    act(Number($(id).value));
    change(!dragged);
    dragged = true;
  });
  $(id).addEventListener("change", () => { dragged = false; });
}

// The date field of a slider: chooses the last step that ended by then.
function pickDate(id, act) {
  const field = $(`${id}-date`);
  field.addEventListener("change", () => {
    const step = Math.floor(stepAt(fieldTime(field.value))) - 1;
    if (!Number.isFinite(step)) return;
    act(Math.max(Number($(id).min), Math.min(Number($(id).max), step)));
    change(true);
  });
  field.addEventListener("blur", () => setTimeout(offerControls)); // shows the end of the chosen step
}

function startControls() {
  const on = (id, kind, act) => $(id).addEventListener(kind, act);
  on("attribute", "change", () => actions.choose($("attribute").value));
  on("span", "change", () => { state.span = $("span").value; change(true); });
  on("cohort", "change", () => {
    state.cohort = state.survey.cohort.values[$("cohort").value] ?? null;
    if (!spans().includes(state.span)) state.span = "window";
    if (state.cohort === null || state.cohort === state.against) state.against = null;
    change(true);
  });
  on("against", "change", () => { compareWith({ against: state.survey.cohort.values[$("against").value] ?? null }); change(true); });
  on("estimator", "change", () => { state.estimator = $("estimator").value; change(true); });
  on("post", "change", () => { state.post = $("post").value; change(true); });
  on("cross-part", "change", () => { state.table = $("cross-part").value; change(true, () => keepFocus(drawCross)); });
  on("order", "change", () => actions.order($("order").value));
  on("show", "change", () => { Object.assign(state, { show: $("show").value === "all" ? Infinity : Number($("show").value), zoom: null }); change(true, redrawValues); });
  on("find", "input", () => { Object.assign(state, { find: $("find").value, zoom: null }); change(false, redrawValues); });
  on("last", "change", () => { Object.assign(state, { last: Number($("last").value), period: null }); change(true); });
  on("follow", "change", () => { if (!$("follow").checked) chooseStep(state.step); else state.follow = true; followLatest(); change(true); });
  slide("step", chooseStep);
  slide("before", (step) => compareWith({ before: step }));
  pickDate("step", chooseStep);
  pickDate("before", (step) => compareWith({ before: step }));
  on("yesterday", "click", () => { compareWith({ ago: aDay() }); change(true); });
  on("compare", "change", () => {
    const apart = state.span === "window" ? state.survey.window_steps : 1;
    compareWith($("compare").checked ? { before: Math.max(state.first, state.step - apart) } : {});
    change(true);
  });
  on("numbers", "toggle", () => { if ($("numbers").open && shown.histogram) histogram.drawNumbers(actions); });
  on("comparison-numbers", "toggle", () => { if ($("comparison-numbers").open && shown.comparison) comparison.drawDifferences(); });
  on("controls", "submit", (event) => { event.preventDefault(); $("histogram").focus(); }); // Enter in "Find a value"
  on("zoom-in", "click", () => actions.zoom(histogram.zoomed(0.5)));
  on("zoom-out", "click", () => actions.zoom(histogram.zoomed(2)));
  on("zoom-all", "click", () => actions.zoom(null));
  on("whole-period", "click", () => actions.period(null));
  on("default-curves", "click", () => { state.values = null; change(true); });
  for (const id of ["notice-latest", "to-latest"]) {
    on(id, "click", (event) => {
      event.preventDefault();
      Object.assign(state, { follow: true, period: null });
      compareWith();
      followLatest();
      change(true);
    });
  }
  on("histogram-png", "click", () => download($("histogram"), histogram.caption()));
  on("series-png", "click", () => download($("series"), curves.caption()));
  on("comparison-png", "click", () => download($("differences"), comparison.caption()));
  on("quantiles-png", "click", () => download($("quantiles"), quantiles.caption()));
  on("reports-png", "click", () => download($("reports"), curves.reportsCaption()));
}

function readState() {
  problem = readAddress();
  followLatest();
  offerControls();
}

async function start() {
  startExplaining();
  startHeader();
  try {
    state.survey = await get("api/v1/survey");
  } catch {
    say("the service does not answer; retrying");
    return setTimeout(() => location.reload(), 3000);
  }
  useSurvey(state.survey);
  const { name, title, description, purpose, owner, contact } = state.survey;
  document.title = `${title ?? name} · ldpstream`;
  $("title").textContent = title ?? name;
  $("whose").replaceChildren(...[description, purpose && `Purpose: ${purpose}`, owner && `Owner: ${owner}`, contact && `Contact: ${contact}`]
    .filter(Boolean).map((text) => element("span", text)));
  const steps = `steps of ${duration(1000 * state.survey.step_seconds)}, windows of ${plural(state.survey.window_steps, "step")}`;
  $("about").textContent = `${title === null ? "" : `${name} · `}${state.survey.simulated ? "Simulated participants · " : ""}${steps} · fingerprint ${state.survey.fingerprint}`;
  $("numbers").open = $("settings").open = innerWidth >= 1100;
  startControls();
  readState();
  addEventListener("popstate", () => { histogram.unread(); readState(); refresh(); });
  new ResizeObserver(() => { if (!fits($("histogram"))) redraw(); }).observe($("histogram"));
  return poll();
}

start();
