// The live page: reads the API of this host, draws with uPlot, and listens for publications.
import { barChart, lineChart, lineOf, stepsChart, palette } from "./charts.js";

const $ = (id) => document.getElementById(id);
const MOST_BARS = 2000;
const [FIT_LIMIT, ALARM_CHANCE] = [6, 5.7e-7]; // thresholds of the alerts
const WITHHELD = {
  bias: "Intervals would not cover the truth: with few reports and many values this estimator is biased. Matrix inversion has intervals.",
  levels: "Intervals would not cover the truth: the levels' histograms differ, so an estimate over all levels is biased.",
};
const SPANS = { window: "sliding window", step: "one step", filtered: "filtered curve" };
const ESTIMATORS = { ibu: "IBU (likelihood)", mle: "maximum likelihood", mi: "matrix inversion (unbiased)", filter: "filter (all steps)" };
const state = { survey: null, attribute: null, estimator: null, latest: null, shown: null, series: null, read: null };
const UNREAD = document.getElementById("readout").textContent;

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail), { status: answer.status });
  return body;
}

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const percent = (x, digits = 2) => (x === null ? "–" : `${(100 * x).toFixed(digits)} %`);
const nats = (x) => (x === null ? "∞" : Number(x.toPrecision(4)).toString());
const grouped = (x) => x.toLocaleString("en");
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Text of a jump: size in percentage points, interval, and step. A small size has more decimals.
function jump(label, change) {
  const digits = Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(100 * Math.abs(change.size)))));
  const points = (x) => `${x > 0 ? "+" : ""}${(100 * x).toFixed(digits)}`;
  return {
    moved: `${label} jumped by ${points(change.size)} percentage points`,
    interval: `${points(change.low)} to ${points(change.high)}`,
    at: `at step ${change.changed_at}`,
  };
}

// ---- queries

function asked() {
  return state.survey.attributes.find((attribute) => attribute.name === state.attribute);
}

function histogramQuery() {
  const query = new URLSearchParams({ span: $("span").value, estimator: $("estimator").value });
  if ($("estimator").value === "mi") query.set("post", $("post").value);
  if (!$("follow").checked) query.set("step", $("step").value);
  if ($("order").value === "frequency" || asked().k > MOST_BARS) query.set("top", Math.min(asked().k, MOST_BARS));
  return query;
}

const path = (what, query) => `/api/v1/attributes/${encodeURIComponent(state.attribute)}/${what}?${query}`;

// ---- the overview: privacy first

function guesses(attribute, name) {
  const { k, levels } = state.survey.attributes.find((asked) => asked.name === attribute);
  const { guess_1: once, guess_inf: forever, guess_year: year, every_steps: w } = levels.find((level) => level.name === name);
  const confined = w > 1 ? ` (also from all reports, if the value depends only on values of this attribute within ${w} steps)` : "";
  return `chance of a right guess among ${grouped(k)} values: ${percent(once, 1)} from one report${confined}, ` +
    `${percent(forever, 1)} from all, up to ${percent(year, 1)} after a year of changes`;
}

function budget(attribute, name, level) {
  const box = element("div", "", { class: "budget" });
  const bounded = level.eps_inf !== null;
  box.append(element("span", `${name}, after ${level.t} report${level.t === 1 ? "" : "s"}`, { class: "name" }));
  if (bounded) {
    const meter = element("meter", "", { min: 0, max: level.eps_inf, value: level.eps_t, high: 0.8 * level.eps_inf, optimum: 0 });
    meter.setAttribute("aria-label", `privacy loss at level ${name}, value unchanged`);
    box.append(meter, element("span", `${nats(level.eps_t)} of ${nats(level.eps_inf)}`));
  } else if (level.eps_lifetime !== null) {
    const meter = element("meter", "", { min: 0, max: level.eps_lifetime, value: level.eps_sequence, optimum: 0 });
    meter.setAttribute("aria-label", `privacy loss at level ${name}, any values`);
    box.append(meter, element("span", `${nats(level.eps_sequence)} of ${nats(level.eps_lifetime)}, whatever the values`));
  } else {
    box.append(element("span", `${nats(level.eps_t)}, and ${nats(level.eps_1)} more with each report`, { class: "late" }));
  }
  if (level.every_steps > 1) {
    box.append(element("span", `at most ${nats(level.eps_window)} within any ${level.every_steps} steps, whatever the values`));
  }
  box.append(element("span", guesses(attribute, name), { class: "name" }));
  return box;
}

function warnings(overview) {
  const said = Object.entries(overview.fit_z).filter(([, z]) => Math.abs(z) > FIT_LIMIT)
    .map(([name, z]) => `${name}: forged reports or a wrong survey (z = ${z.toFixed(1)})`);
  if (overview.drift_p !== null && overview.drift_p < ALARM_CHANCE) said.push(`${overview.drift_label} moved by ${overview.drift_sigma.toFixed(1)} standard errors in a step`);
  if (overview.change !== null) {
    const { moved, interval, at } = jump(overview.change_label, overview.change);
    said.push(`${moved} ${at} (95 % interval ${interval})`);
  }
  if (overview.levels_p !== null && overview.levels_p < ALARM_CHANCE) {
    const [one, other] = overview.levels_pair;
    said.push(`${one} and ${other} differ in ${overview.levels_label} by ${overview.levels_sigma.toFixed(1)} standard errors: the estimate over both is biased`);
  }
  return said.map((text) => element("p", text, { class: "warning late" }));
}

function drawOverview(status) {
  const rows = status.attributes.flatMap((overview) => {
    const row = element("tr");
    if (overview.attribute === state.attribute) row.className = "chosen";
    const button = element("button", overview.attribute, { type: "button", "data-attribute": overview.attribute });
    button.setAttribute("aria-pressed", overview.attribute === state.attribute);
    button.addEventListener("click", () => choose(overview.attribute));
    const cells = [element("th", "", { scope: "row" }), element("td"), element("td", grouped(overview.reports), { class: "number" })];
    cells[0].append(button);
    cells[1].append(...Object.entries(overview.privacy).map(([name, level]) => budget(overview.attribute, name, level)));
    const top = overview.top.length ? overview.top.map((share) => `${share.label} ${percent(share.frequency, 1)}`) : ["nobody reported"];
    row.append(...cells, element("td", top.join(", ")));
    const said = warnings(overview);
    if (!said.length) return [row];
    const below = element("tr", "", { class: "warnings" });
    below.append(element("td", "", { colspan: 4 }));
    below.lastChild.append(...said);
    return [row, below];
  });
  const focused = document.activeElement?.dataset?.attribute;
  $("attributes").tBodies[0].replaceChildren(...rows);
  if (focused) document.querySelector(`[data-attribute="${CSS.escape(focused)}"]`)?.focus();
  const chosen = status.attributes.find((overview) => overview.attribute === state.attribute);
  $("sequence").textContent = chosen
    ? Object.entries(chosen.privacy).map(([name, level]) =>
        `${state.attribute}, ${name}: at most ${nats(level.eps_sequence)} nats after ${level.t} reports of any values` +
        (level.eps_sequence_exact ? " (exact)." : ".")).join(" ")
    : "";
}

function drawRejected(rejected) {
  const found = Object.entries(rejected).filter(([, n]) => n > 0);
  const table = $("rejected");
  if (!found.length) return table.replaceChildren(element("caption", "No envelope was rejected."));
  const head = element("tr");
  head.append(element("th", "Rejection reason", { scope: "col" }), element("th", "Envelopes", { scope: "col", class: "number" }));
  const rows = found.map(([reason, n]) => {
    const row = element("tr");
    row.append(element("td", reason), element("td", grouped(n), { class: "number" }));
    return row;
  });
  return table.replaceChildren(head, ...rows);
}

// ---- one estimate

function summary(h, known) {
  const intervals = h.interval_withheld ? "no intervals" : `${Math.round(100 * h.confidence)} % intervals`;
  if (h.span === "filtered") {
    if (!known) return `Nobody has reported up to step ${h.step}: there is no estimate.`;
    const reports = h.reports ? `${grouped(h.reports)} reports in step ${h.step}.`
      : `Nobody reported in step ${h.step}: the curve is predicted from earlier steps.`;
    return `${reports} The filtered curve is estimated from all steps so far, with ${intervals}.`;
  }
  if (!known) return `Nobody reported in ${h.span === "step" ? "step" : "the window that ends with step"} ${h.step}: there is no estimate.`;
  const width = h.span === "step" ? `step ${h.step}` : `${h.panes} step${h.panes === 1 ? "" : "s"} up to step ${h.step}`;
  return `${grouped(h.reports)} reports in ${width}, ${intervals}.`;
}

function drawHistogram(h) {
  state.shown = h;
  const known = h.frequencies.some((x) => x !== null);
  $("histogram-title").textContent = h.attribute;
  $("summary").replaceChildren(summary(h, known));
  if (h.interval_withheld) $("summary").append(" ", element("span", WITHHELD[h.interval_withheld], { class: "late" }));
  const sampled = asked().levels.filter((level) => level.every_steps > 1);
  if (h.reports && h.span !== "window" && sampled.length) {
    const shares = sampled.map((level) => `at most about one device in ${level.every_steps} at level ${level.name}`).join(", ");
    $("summary").append(` A step counts ${shares}; the intervals hold for all people.`);
  }
  if (!h.complete) $("summary").append(" ", element("span", "Incomplete: reports may be missing.", { class: "late" }));
  if (h.truth) $("summary").append(" ", element("span", "", { class: "ring" }), " is the truth.");
  if (known && h.values.length < asked().k) $("summary").append(` The ${grouped(h.values.length)} most frequent of ${grouped(asked().k)} values.`);
  $("step-text").textContent = h.step;
  $("step").value = h.step;
  $("histogram").setAttribute("aria-label", `Histogram of ${h.attribute}, ${known ? `${h.values.length} values` : "nobody reported"}`);
  const at = h.attribute === state.read?.attribute ? h.values.indexOf(state.read.value) : -1;
  barChart($("histogram"), h, read, at);
  if (at >= 0) read(at);
  else unread();
  if ($("numbers").open) drawNumbers();
  const query = histogramQuery();
  query.set("step", h.step);
  $("histogram-csv").href = path("histogram.csv", query);
  $("histogram-json").href = path("histogram", query);
}

function unread() {
  state.read = null;
  $("readout").textContent = UNREAD;
}

function read(i) {
  const h = state.shown;
  state.read = { attribute: h.attribute, value: h.values[i] };
  const truth = h.truth ? `, truth ${percent(h.truth[i])}` : "";
  if (h.frequencies[i] === null) $("readout").textContent = `${h.labels[i]}: no estimate, since nobody reported${truth}`;
  else {
    const interval = h.low[i] === null ? "without an interval" : `between ${percent(h.low[i])} and ${percent(h.high[i])}`;
    $("readout").textContent = `${h.labels[i]}: ${percent(h.frequencies[i])}, ${interval}${truth}`;
  }
}

function drawNumbers() {
  const h = state.shown;
  const names = ["Value", "Frequency", "Standard error", "From", "To", ...(h.truth ? ["Truth"] : [])];
  const head = element("tr");
  head.append(...names.map((name, i) => element("th", name, { scope: "col", ...(i ? { class: "number" } : {}) })));
  const rows = h.values.map((_, i) => {
    const row = element("tr");
    const numbers = [h.frequencies[i], h.standard_errors[i], h.low[i], h.high[i], ...(h.truth ? [h.truth[i]] : [])];
    row.append(element("th", h.labels[i], { scope: "row" }), ...numbers.map((x) => element("td", percent(x), { class: "number" })));
    return row;
  });
  $("values").replaceChildren(head, ...rows);
}

// ---- over time

function drawSeries(s) {
  state.series = s;
  const colours = palette();
  lineChart($("series"), s);
  $("legend").replaceChildren(...s.lines.map((line, i) => {
    const item = element("li");
    const key = element("span", "", { class: "key" });
    key.style.background = colours[i % colours.length];
    item.append(key, `${line.label} ${percent(line.frequencies.at(-1), 1)}`);
    return item;
  }));
  drawJumps(s, colours);
  stepsChart($("reports"), s);
  $("reports-hint").textContent = s.span === "filtered" ? `Reports of ${state.attribute} in each step.`
    : `Reports of ${state.attribute} used by the estimate of each step${s.span === "window" ? ", from its whole window" : ""}.`;
  const name = capital(ESTIMATORS[s.estimator] ?? s.estimator);
  const when = s.lines.some((line) => line.frequencies.at(-1) !== null) ? "now" : "in the last step with reports";
  const gap = s.span === "filtered" ? "A step without reports is predicted from earlier steps." : "In a gap nobody reported.";
  const marked = s.changes.some((change) => lineOf(s, change) >= 0) ? " A dashed line marks a jump." : "";
  $("series-hint").textContent = s.lines.length
    ? `${name}, the ${s.lines.length} values that are most frequent ${when}, with ${Math.round(100 * s.confidence)} % intervals${s.interval_withheld.some(Boolean) ? " where they can be trusted" : ""}. ${gap}${marked}`
    : "Nobody reported in these steps.";
  const query = seriesQuery();
  $("series-csv").href = path("series.csv", query);
  $("series-json").href = path("series", query);
}

// Lists the jumps of all values, also of the values without a line.
function drawJumps(s, colours) {
  const items = s.changes.map((change, i) => {
    const line = lineOf(s, change);
    const { moved, interval, at } = jump(s.change_labels[i], change);
    const item = element("li");
    const key = element("span", "", { class: "key" });
    if (line >= 0) key.style.background = colours[line % colours.length];
    item.append(key, `${moved} (${interval}) ${at}`);
    return item;
  });
  if (s.span === "filtered" && !items.length) items.push(element("li", "No jump was detected in these steps."));
  $("changes").replaceChildren(...items);
}

const seriesQuery = () => new URLSearchParams({ span: $("span").value, estimator: $("estimator").value });

// ---- updates

let asking = 0;

async function refresh() {
  const mine = ++asking;
  try {
    const wanted = state.attribute;
    const status = await get(`/api/v1/status?span=${$("span").value}`);
    const [h, s] = status.latest_step === null ? [null, null]
      : await Promise.all([get(path("histogram", histogramQuery())), get(path("series", seriesQuery()))]);
    if (mine !== asking || wanted !== state.attribute) return;
    state.latest = status.latest_step;
    drawOverview(status);
    drawRejected(status.rejected);
    if (h) {
      $("step").max = state.latest;
      drawHistogram(h);
      drawSeries(s);
    }
    say(state.latest === null ? "waiting for the first step to close" : `live, step ${state.latest}`, "live");
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    if (mine === asking) say(error.status ? error.message : "the service does not answer", "lost");
  }
}

function say(text, how) {
  $("state-text").textContent = text;
  $("dot").className = `dot ${how}`;
}

function choose(name) {
  if (name !== state.attribute) unread();
  state.attribute = name;
  offer($("span"), Object.keys(SPANS).filter((span) => asked().spans.includes(span)), SPANS, $("span").value);
  offerEstimators();
  location.replace(`#${encodeURIComponent(name)}`);
  refresh();
}

// Fills a select with these options; keeps the value before, if it is still an option.
function offer(select, values, names, before) {
  select.replaceChildren(...values.map((value) => element("option", names[value] ?? value, { value })));
  if (values.includes(before)) select.value = before;
}

// The filtered curve has one estimator. The other spans' last choice is kept.
function offerEstimators() {
  const filtered = $("span").value === "filtered";
  offer($("estimator"), filtered ? ["filter"] : asked().estimators, ESTIMATORS, state.estimator);
  $("estimator").disabled = filtered;
  allowPost();
}

function allowPost() {
  $("post").disabled = $("estimator").value !== "mi" || state.survey.post_methods.length < 2;
}

function theme(wanted) {
  const dark = wanted === "dark" || (wanted === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = `Theme: ${wanted}`;
  if (state.shown) { drawHistogram(state.shown); drawSeries(state.series); }
}

function remembered() {
  try { return localStorage.getItem("theme") ?? "system"; } catch { return "system"; }
}

function listen() {
  const events = new EventSource("/api/v1/events");
  events.addEventListener("published", refresh);
  events.addEventListener("error", () => say("connection lost, retrying", "lost"));
}

async function start() {
  theme(remembered());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(remembered()));
  $("theme").addEventListener("click", () => {
    const order = ["system", "light", "dark"];
    const next = order[(order.indexOf(remembered()) + 1) % 3];
    try { localStorage.setItem("theme", next); } catch { /* without storage, the choice lasts until the page is closed */ }
    theme(next);
  });
  for (const id of ["order", "post", "follow"]) $(id).addEventListener("change", refresh);
  $("span").addEventListener("change", () => { offerEstimators(); refresh(); });
  $("estimator").addEventListener("change", () => { state.estimator = $("estimator").value; allowPost(); refresh(); });
  $("step").addEventListener("input", () => { $("follow").checked = false; refresh(); });
  $("numbers").addEventListener("toggle", () => { if ($("numbers").open && state.shown) drawNumbers(); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(() => { if (state.shown) { drawHistogram(state.shown); drawSeries(state.series); } }).observe($("histogram"));
  try {
    state.survey = await get("/api/v1/survey");
  } catch {
    say("the service does not answer; retrying", "lost");
    return setTimeout(() => location.reload(), 3000);
  }
  document.title = `${state.survey.name} · ldpstream`;
  $("title").textContent = state.survey.name;
  const steps = `steps of ${state.survey.step_seconds} s, windows of ${state.survey.window_steps}`;
  $("about").textContent = `${state.survey.simulated ? "Simulated participants · " : ""}${steps} · fingerprint ${state.survey.fingerprint}`;
  $("post").replaceChildren(...state.survey.post_methods.map((method) => element("option", method, { value: method })));
  const linked = decodeURIComponent(location.hash.slice(1));
  const known = state.survey.attributes.map((attribute) => attribute.name);
  choose(known.includes(linked) ? linked : known[0]);
  return listen();
}

start();
