// The live page: reads the API of this host, draws, and asks for new estimates every two seconds.
import { drawAlerts, isLate } from "./alerts.js";
import { $, element, forget, get, keepFocus, plural, tags } from "./dom.js";
import { drawOverview } from "./overview.js";
import { offerPeriod, startPeriod } from "./period.js";
import { drawBand, drawOperators } from "./privacy.js";
import { address, compareWith, flush, followLatest, overviewPath, readAddress, state, usagePath, writeAddress } from "./state.js";
import { duration, moment, opens, period, useSurvey, zoneName } from "./times.js";

const POLL_MS = 2000;
let status = null; // the last status of the service
let overview = null; // the last answer about all attributes
let one = null; // the module of the attribute's page, once it is loaded
let problem = null; // text about the parts of the address that the page cannot show
let connected = true;
let ahead = 0; // the server's clock minus ours, in ms
const now = () => Date.now() + ahead;

// Writes the address and the controls, then draws.
function change(push, draw = refresh) {
  if (push) problem = null;
  writeAddress(push);
  offer();
  draw();
}

function offer() {
  offerPeriod();
  if (state.attribute !== null) one?.offerControls();
  $("to-overview").href = address(undefined, null, "");
}

// Shows the view of an address of this page, as a new entry of the history.
function go(to) {
  flush();
  history.pushState(null, "", to);
  readState();
  refresh().then(() => {
    scrollTo(0, 0);
    (state.attribute === null ? $("content") : document.querySelector("#head h2")).focus({ preventScroll: true });
  });
}

const choose = (attribute) => attribute === state.attribute || go(address(undefined, attribute, ""));

function script(source) {
  return new Promise((done, failed) => {
    const made = element("script", "", { src: source });
    made.addEventListener("load", done);
    made.addEventListener("error", failed);
    document.head.append(made);
  });
}

// Loads the page of one attribute and the library of its charts.
async function load() {
  if (one) return;
  const [module] = await Promise.all([import("./attribute.js"), script("/page/uPlot.iife.min.js")]);
  module.start(change, choose);
  one = module;
}

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
    if (!error.status) console.error(error);
    say(error.status ? error.message : "the service does not answer");
  }
  busy = false;
  if (again) await refresh();
}

// The reason why a step has no estimate, or null.
function missing(step) {
  if (step === null || state.latest === null || (step >= state.first && step <= state.latest)) return null;
  return `There is no estimate of step ${step}${step > state.latest ? " yet" : `: the estimates begin at ${moment(opens(state.first))}`}.`;
}

// An answer, or the error of an answer that does not exist.
const perhaps = (path) => get(path).catch((error) => { if (![404, 422].includes(error.status)) throw error; return error; });

const statusPath = () => `api/v1/status?span=${state.span}`;

async function update() {
  const { attribute } = state;
  const early = state.follow && attribute === null && state.latest === null ? get(overviewPath()).catch(() => null) : null; // at the same time as the status
  const found = await get(statusPath());
  if (status !== found) ahead = found.now_ms - Date.now();
  [state.latest, state.first] = [found.latest_step, found.first_step ?? 0];
  followLatest();
  await early;
  const known = state.latest !== null && missing(state.step) === null;
  const [answers, of, people] = await Promise.all([
    attribute === null ? null : load().then(() => attribute === state.attribute && one.ask(known)),
    known ? perhaps(overviewPath()) : null,
    known && attribute === null && state.survey.attributes.some(({ recipe }) => recipe) ? perhaps(usagePath(state.step)) : null,
  ]);
  if (attribute !== state.attribute) return; // another refresh follows
  status = found;
  const failed = answers?.failed ?? (of instanceof Error ? of : null);
  overview = failed ? null : of;
  notice([problem, failed?.message, ...[state.step, state.before].map(missing)].filter(Boolean).join(" "));
  writeAddress(false);
  offer();
  $("overview").hidden = attribute !== null || !overview;
  $("attribute-page").hidden = attribute === null || state.latest === null;
  $("waiting").hidden = state.latest !== null;

  if (attribute !== null) one.show(answers.found, status);
  else if (overview) keepFocus(() => drawOverview(overview, people instanceof Error ? null : people, go));
  keepFocus(() => drawOperators(status));
  connected = true;
  tick();
  document.documentElement.dataset.ready = "yes";
}

// ---- the freshness line

function say(text, how = "lost") {
  if ($("state-text").textContent !== text) $("state-text").textContent = text;
  $("dot").className = `dot ${how}`;
}

// Shows whether the estimates are on time, their period, the people, and the time of the next estimate.
function tick() {
  if (!status || !connected) return;
  keepFocus(() => drawAlerts(status, now(), choose));
  const [late, due] = [isLate(status, now()), status.due_ms];
  const next = due === null || late ? [] : [`next estimate ${due > now() ? `in ${duration(due - now())}` : "due now"}`];
  const kind = state.survey.simulated ? ["simulated people"] : [];
  if (status.latest_step === null) return say(["Waiting for the first step to close", ...next, ...kind].join(" · "), late ? "late" : "live");
  const end = opens(status.latest_step + 1);
  const silent = status.attributes.every((of) => of.step_reports === 0);
  const age = state.survey.simulated ? [] : [`latest step ended ${duration(Math.max(0, now() - end))} ago`];
  const people = Math.max(0, ...(overview?.attributes ?? []).map((card) => card.people_at_least));
  const counted = people && state.survey.attributes.some(({ recipe }) => recipe); // the card People has their number, which is larger
  const crowd = people ? [`at least ${plural(people, "person", "people")}`] : ["nobody"];
  const shown = overview ? [`${period(overview.start_ms, overview.end_ms)} ${zoneName()}`, ...(counted ? [] : crowd)] : [];
  say([late ? `Overdue by ${duration(now() - due)}` : silent ? "No reports" : "On time", ...shown, ...age, ...next, ...kind].join(" · "), late || silent ? "late" : "live");
}

let seen; // the ETag of the estimates shown

// Asks whether there are new estimates. The browser sends the ETag of the answer that it has, and then gets no body.
async function poll() {
  const answer = await fetch(statusPath()).catch(() => null);
  const tag = answer?.headers.get("ETag") ?? null;
  if (tag !== seen || !connected) {
    forget();
    await refresh();
  }
  seen = tag;
  tick();
  setTimeout(poll, POLL_MS);
}

// ---- theme and controls

function remembered() {
  try { return localStorage.getItem("theme") ?? "system"; } catch { return "system"; }
}

function theme(wanted) {
  const dark = wanted === "dark" || (wanted === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = `Theme: ${remembered()}`;
  one?.draw();
}

function startControls() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(remembered()));
  $("theme").addEventListener("click", () => {
    const order = ["system", "light", "dark"];
    const next = order[(order.indexOf(remembered()) + 1) % 3];
    try { localStorage.setItem("theme", next); } catch { /* without storage, the choice lasts until the page is closed */ }
    theme(next);
  });
  addEventListener("storage", () => theme(remembered())); // chosen in another tab
  addEventListener("beforeprint", () => theme("light"));
  addEventListener("afterprint", () => theme(remembered()));
  startPeriod(change);
  $("search").addEventListener("input", () => {
    state.find = $("search").value;
    change(false);
  });
  $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") document.querySelector("#cards a")?.click(); });
  $("to-overview").addEventListener("click", (event) => {
    event.preventDefault();
    go($("to-overview").getAttribute("href"));
  });
  $("notice-latest").addEventListener("click", () => {
    Object.assign(state, { follow: true, period: null });
    compareWith();
    followLatest();
    change(true);
  });
  addEventListener("popstate", () => { readState(); refresh(); });
}

function readState() {
  problem = readAddress();
  if (document.activeElement !== $("search")) $("search").value = state.find;
  followLatest();
  offer();
}

async function start() {
  theme(remembered());
  if (!location.search) for (const path of [statusPath(), overviewPath()]) get(path).catch(() => null); // at the same time as the survey
  try {
    state.survey = await get("api/v1/survey");
  } catch {
    say("the service does not answer; retrying");
    return setTimeout(() => location.reload(), 3000);
  }
  useSurvey(state.survey);
  document.title = `${state.survey.title ?? state.survey.name} · ldpstream`;
  $("title").textContent = state.survey.title ?? state.survey.name;
  drawBand();
  startControls();
  readState();
  await refresh();
  const [latest, of] = [statusPath(), overviewPath()].map((path) => tags.get(path));
  seen = latest === of ? latest : null; // a step may have ended between the two answers
  return setTimeout(poll, POLL_MS);
}

start();
