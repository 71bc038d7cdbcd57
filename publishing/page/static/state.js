// The state of the page, and its address: the reader of a link sees the same as its sender.
//
// The address names the step only if the reader chose one; without a step the page shows the latest. "Copy link" names the step.

import { $ } from "./dom.js";
import { periodName } from "./times.js";

export const state = {
  survey: null, latest: null, first: 0, // from the API
  attribute: null, // null: the overview of all attributes
  span: "window", estimator: null, post: "none", // null: the default
  cohort: null, // null: all people
  step: null, until: null, follow: true, // until: last step of the curves
  order: null, show: null, find: "", zoom: null, // for the histogram; zoom: [first, last] position
  values: null, last: 48, period: null, // for the curves; values null: the five most frequent; period: [first, last] step
  slots: new Map(), // value of each curve: its colour and dash, see charts.js
  before: null, // earlier step that the reader chose for the comparison; null: see `ago`
  ago: null, // distance of the earlier step, in steps; null: the length of a span, so that the spans touch
  against: null, // cohort that is compared with `cohort` at the same step, "" for all people; null: two times are compared
  table: "all", // the shares of the cross table: of "all" people, within its "rows" or within its "columns"
};

export const ORDERS = { value: "as in the survey", frequency: "most frequent first", label: "by name" };
export const SPANS = ["step", "window", "filtered"];
export const asked = () => state.survey.attributes.find((attribute) => attribute.name === state.attribute);

// A cohort has fewer spans than all people, and only the default estimator.
export const spans = () => SPANS.filter((span) => (state.cohort === null || span !== "filtered") && (state.attribute === null || asked().spans.includes(span)));
// Length of the chosen span, in steps.
export const length = () => (state.span === "window" ? state.survey.window_steps : 1);
// The earlier step of the comparison; null if cohorts are compared, and if there is no estimate of it.
export function earlier() {
  if (state.against !== null || state.step === null) return null;
  const chosen = state.before ?? (state.ago && state.step - state.ago);
  const step = chosen ?? state.step - length();
  return step >= (chosen === null ? Math.max(state.first, length() - 1) : state.first) && step <= state.latest && step !== state.step ? step : null;
}
const ofCounts = () => (state.cohort === null ? asked().estimators : asked().estimators.filter((name) => name !== "joint").slice(0, 1));
const filters = () => state.survey.estimators.filter(({ spans: has }) => has.includes("filtered")).map(({ name }) => name);
export const estimators = () => (state.span === "filtered" ? filters() : ofCounts());
// The API's description of an estimator. An earlier version may have published one that the API no longer lists.
export const about = (name) => state.survey.estimators.find((each) => each.name === name) ?? { name, label: name, meaning: "", post_processed: false };
export const estimator = () => (estimators().includes(state.estimator) ? state.estimator : estimators()[0]);

// The name of a span: the length of its period, such as "week".
export const spanName = (span) => (span === "filtered" ? "filtered" : periodName(state.survey.step_seconds * (span === "window" ? state.survey.window_steps : 1)));

// The attribute of an answer of the API, with the cohort if the answer is about one.
export const subject = ({ attribute, cohort }) => (cohort === null ? attribute : `${attribute}, ${state.survey.cohort.name} ${cohort}`);

const whole = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);

function pair(text) {
  const [from, to] = (text ?? "").split("-").map(whole);
  return from !== null && to !== null && to !== undefined && from <= to ? [from, to] : null;
}

// Reads the address. Returns a text about the parts that the page cannot show, or null.
export function readAddress() {
  waiting = null; // a waiting change belongs to another entry of the history
  const query = new URLSearchParams(location.search);
  const names = state.survey.attributes.map((attribute) => attribute.name);
  const wanted = query.get("attribute");
  state.attribute = names.includes(wanted) ? wanted : null;
  const cohort = query.get("cohort");
  state.cohort = state.survey.cohort?.values.includes(cohort) ? cohort : null;
  state.span = spans().includes(query.get("span")) ? query.get("span") : "window";
  state.estimator = asked()?.estimators.includes(query.get("estimator")) ? query.get("estimator") : null;
  state.post = state.survey.post_methods.includes(query.get("post")) ? query.get("post") : state.survey.post_methods[0];
  state.step = whole(query.get("step"));
  state.until = state.step === null ? null : Math.max(state.step, whole(query.get("until")) ?? state.step);
  state.follow = state.step === null;
  state.order = Object.hasOwn(ORDERS, query.get("order")) ? query.get("order") : null;
  state.show = query.get("show") === "all" ? Infinity : whole(query.get("show")) || null;
  state.find = query.get("find") ?? "";
  state.zoom = pair(query.get("zoom"));
  const values = (query.get("values") ?? "").split(",").filter(Boolean).map(whole);
  state.values = asked() && values.length && values.length <= 20 && values.every((v) => v !== null && v < asked().k) ? values : null;
  state.last = Math.min(100_000, whole(query.get("last")) || 48);
  state.period = pair(query.get("period"));
  state.table = ["rows", "columns"].includes(query.get("table")) ? query.get("table") : "all";
  const against = query.get("against");
  state.against = against !== cohort && state.cohort !== null && ["", ...state.survey.cohort.values].includes(against) ? against : null;
  state.ago = whole(query.get("before")?.match(/^-(\d+)$/)?.[1]) || null;
  state.before = whole(query.get("before"));
  const same = state.before !== null && state.before === state.step;
  if (same || state.against !== null) state.before = state.ago = null;
  return [
    wanted !== null && wanted !== state.attribute && `This survey has no attribute “${wanted}”.`,
    cohort !== state.cohort && `This survey has no cohort “${cohort}”.`,
    against !== state.against && `This page cannot compare with the cohort “${against}”.`,
    same && "A comparison needs two different times.",
  ].filter(Boolean).join(" ") || null;
}

// The address of the present view, or of another attribute in the same period: with its step if pinned, otherwise for the latest
// step.
export function address(pinned = !state.follow, attribute = state.attribute, find = state.find) {
  const query = new URLSearchParams();
  const set = (name, value) => { if (value !== null && value !== undefined && value !== "") query.set(name, value); };
  set("attribute", attribute);
  if (state.span !== "window") set("span", state.span);
  set("cohort", state.cohort);
  if (pinned) {
    set("step", state.step);
    if (state.until !== state.step) set("until", state.until);
  }
  set("before", state.ago === null ? state.before : -state.ago);
  if (state.against !== null) query.set("against", state.against);
  set("find", find);
  if (attribute === null) return `?${query}`;
  if (state.span !== "filtered" && state.cohort === null) {
    set("estimator", state.estimator);
    if (about(state.estimator).post_processed && state.post !== "none") set("post", state.post);
  }
  if (attribute !== state.attribute) return `?${query}`;
  set("order", state.order);
  set("show", state.show === Infinity ? "all" : state.show);
  set("zoom", state.zoom?.join("-"));
  set("values", state.values?.join(","));
  if (state.last !== 48) set("last", state.last);
  set("period", state.period?.join("-"));
  if (state.table !== "all" && hasTable()) set("table", state.table);
  return `?${query}`;
}

const PAUSE_MS = 250; // browsers refuse many changes of the address in a short time
let waiting = null; // the last change that is not written yet
let timer = 0;

export function flush() {
  clearTimeout(timer);
  timer = 0;
  if (waiting) history.replaceState(...waiting);
  waiting = null;
}

addEventListener("beforeunload", flush);

// Writes the address, at most every quarter of a second. `push`: the Back button returns to the state before.
export function writeAddress(push) {
  const now = [null, "", address()];
  if (push && address() !== (location.search || "?")) {
    flush();
    history.pushState(...now);
    return;
  }
  waiting = now;
  if (timer) return;
  flush();
  timer = setTimeout(flush, PAUSE_MS);
}

// Moves to the latest step, if the page follows it.
export function followLatest() {
  if (state.follow || state.step === null) state.step = state.until = state.latest;
}

// Compares with an earlier step, or with the step `ago` steps earlier, or with a cohort; with the span just before by default.
export function compareWith({ before = null, ago = null, against = null } = {}) {
  Object.assign(state, { before, ago, against });
}

export function chooseStep(step) {
  state.follow = false;
  state.step = step;
  state.until = Math.max(state.until ?? step, step);
  if (state.before !== null && state.before >= step) state.before = null;
}

// Number of values in the histogram; all values by default, if there are few.
export const shownValues = () => state.show ?? (asked().k > 60 ? 25 : Infinity);

// Order of the values: if not all are shown, the most frequent first by default.
export const order = () => state.order ?? (shownValues() < asked().k ? "frequency" : "value");

// ---- queries of the API

export const path = (what, query) => `api/v1/attributes/${encodeURIComponent(state.attribute)}/${what}?${query}`;

const MOST = 2000; // largest number of values that the page requests

// The overview of all attributes.
export function overviewPath() {
  const made = new URLSearchParams({ span: state.span });
  if (!state.follow) made.set("step", state.step);
  if (state.cohort !== null) made.set("cohort", state.cohort);
  if (state.against !== null) made.set("against", state.against);
  else if ((state.before ?? state.ago) !== null && earlier() !== null) made.set("before", earlier());
  if (state.attribute === null && state.find.trim()) made.set("find", state.find.trim());
  return `api/v1/overview?${made}`;
}

// The people who use the application, in steps up to `step`.
export const usagePath = (step, last = 52) => `api/v1/usage?last=${Math.min(last, 1000)}${state.follow ? "" : `&step=${step}`}`;

// A query about the attribute; parameters without a value are left out.
function query({ step = state.step, top = null, ...parameters }) {
  const made = { span: state.span, ...parameters, cohort: state.cohort, step, top: top && asked().k > MOST ? MOST : null };
  return new URLSearchParams(Object.entries(made).filter(([, value]) => value !== null));
}

export const histogramQuery = () => query({ estimator: estimator(), post: about(estimator()).post_processed ? state.post : null, top: true });
export const seriesQuery = () => query({ estimator: estimator(), last: state.last, step: state.until, values: state.values?.join(",") ?? null });
export const numbersQuery = () => query({ last: state.last, step: state.until });
export const comparisonQuery = () => query({ estimator: estimator(), before: earlier(), against: state.against, top: true });
export const tableQuery = () => query({});

// Sets the links to the CSV and JSON files of an answer, which have all values. `name` begins the links' ids.
export function linkFiles(name, what, query, step) {
  query.delete("top");
  if (step !== undefined) query.set("step", step);
  $(`${name}-csv`).href = path(`${what}.csv`, query);
  $(`${name}-json`).href = path(what, query);
}

const MOST_CELLS = 1024; // of a cross table on the page

// True for a pair or an attribute of a survey with cohorts, if there are few cells. Cross tables are of all people, not filtered.
export function hasTable() {
  const { cohort } = state.survey;
  const cells = asked().pair ? asked().k : (cohort?.values.length ?? Infinity) * asked().k;
  return state.cohort === null && state.span !== "filtered" && cells <= MOST_CELLS;
}
