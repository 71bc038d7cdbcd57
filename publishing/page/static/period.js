// The one control for the period: its length, its end, what it is compared with, and the people.
import { $, capital, element } from "./dom.js";
import { address, chooseStep, compareWith, earlier, followLatest, length, spanName, spans, state } from "./state.js";
import { LOCAL, fieldText, fieldTime, nextZone, opens, period, periodName, stepAt, zoneName } from "./times.js";

const [DAY, WEEK] = [86400, 604800]; // seconds
const COHORT = "cohort:"; // before the name of a cohort among the options of "compared with"

// Fills a select with these options.
export function offer(select, options, chosen) {
  const text = JSON.stringify(options);
  if (select.dataset.options !== text) {
    select.dataset.options = text;
    select.replaceChildren(...options.map(([value, name]) => element("option", name, { value })));
  }
  select.value = chosen;
}

// The chosen period as [start, end] in ms. The filtered curve shows one step.
const ends = (step) => [opens(Math.max(0, step + 1 - length())), opens(step + 1)];

function offerSpans() {
  for (const choice of $("span").querySelectorAll("input")) {
    choice.parentElement.hidden = !spans().includes(choice.value);
    choice.nextElementSibling.textContent = spanName(choice.value);
    choice.checked = choice.value === state.span;
  }
}

// The earlier times that the list offers, as [steps before, name].
function distances() {
  const seconds = state.survey.step_seconds;
  return [[DAY, "yesterday"], [WEEK, "last week"]].map(([long, name]) => [long / seconds, name])
    .filter(([steps, name]) => Number.isInteger(steps) && !(steps === length() && (name === "yesterday" || state.span === "window")));
}

function offerAgainst() {
  const { cohort } = state.survey;
  const options = [["", `vs previous ${state.span === "filtered" ? periodName(state.survey.step_seconds) : spanName(state.span)}`],
    ...distances().map(([steps, name]) => [`-${steps}`, `vs ${name}`]), ["time", "vs an earlier time"]];
  if (state.cohort !== null) {
    options.push([COHORT, `vs all people`], ...cohort.values.filter((name) => name !== state.cohort).map((name) => [COHORT + name, `vs ${cohort.name} ${name}`]));
  }
  let chosen = "";
  if (state.against !== null) chosen = COHORT + state.against;
  else if (state.before !== null) chosen = "time";
  else if (state.ago !== null) chosen = `-${state.ago}`;
  if (!options.some(([value]) => value === chosen)) options.push([chosen, `vs ${state.ago} steps earlier`]);
  offer($("against"), options, chosen);
}

// Shows the state in the control.
export function offerPeriod() {
  const { cohort } = state.survey;
  $("period").hidden = state.step === null;
  offerSpans();
  offerAgainst();
  $("cohort-label").hidden = !cohort;
  if (cohort) {
    $("cohort-name").textContent = capital(cohort.name);
    offer($("cohort"), [["", "all people"], ...cohort.values.map((name, i) => [`${i}`, `${cohort.name} ${name}`])], state.cohort === null ? "" : `${cohort.values.indexOf(state.cohort)}`);
  }
  $("follow").checked = state.follow;
  $("before-label").hidden = state.before === null;
  $("zone").textContent = `Times: ${zoneName()}`;
  $("zone").hidden = LOCAL === "UTC";
  if (state.step === null) return;
  $("period-text").textContent = period(...ends(state.step));
  $("back").disabled = !(state.step > state.first);
  $("forth").disabled = !(state.step < state.latest);
  for (const [id, step] of [["step-date", state.step], ["before-date", earlier()]]) {
    if (step !== null && document.activeElement !== $(id)) $(id).value = fieldText(opens(step + 1));
  }
}

// The date field: chooses the last step that ended by then, within the kept steps.
function pickDate(id, act) {
  $(id).addEventListener("change", () => {
    const step = Math.floor(stepAt(fieldTime($(id).value))) - 1;
    if (Number.isFinite(step)) act(Math.max(state.first, Math.min(state.latest, step)));
  });
  $(id).addEventListener("blur", () => setTimeout(offerPeriod)); // shows the end of the chosen step
}

// Starts the control. change(push): draws the new state, and writes it into the address; `push`: as a new entry of the history.
export function startPeriod(change) {
  const on = (id, kind, act) => $(id).addEventListener(kind, act);
  on("period", "submit", (event) => event.preventDefault());
  on("span", "change", (event) => {
    state.span = event.target.value;
    change(true);
  });
  on("cohort", "change", () => {
    state.cohort = state.survey.cohort.values[$("cohort").value] ?? null;
    if (!spans().includes(state.span)) state.span = "window";
    if (state.cohort === null || state.cohort === state.against) state.against = null;
    change(true);
  });
  on("against", "change", () => {
    const { value } = $("against");
    if (value.startsWith(COHORT)) compareWith({ against: value.slice(COHORT.length) });
    else if (value === "time") compareWith({ before: Math.max(state.first, state.step - length()) });
    else compareWith({ ago: value === "" ? null : -Number(value) });
    if (value === "time") $("time").open = true;
    change(true);
  });
  const move = (steps) => {
    chooseStep(Math.max(state.first, Math.min(state.latest, state.step + steps)));
    change(true);
  };
  on("back", "click", () => move(-length()));
  on("forth", "click", () => move(length()));
  pickDate("step-date", (step) => { chooseStep(step); change(true); });
  pickDate("before-date", (step) => { compareWith({ before: Math.min(step, state.step - 1) }); change(true); });
  on("follow", "change", () => {
    if ($("follow").checked) state.follow = true;
    else chooseStep(state.step);
    followLatest();
    change(true);
  });
  on("zone", "click", () => { nextZone(); change(false); });
  document.addEventListener("click", (event) => { if (!$("time").contains(event.target) && event.target !== $("against")) $("time").open = false; });
  on("time", "keydown", (event) => {
    if (event.key !== "Escape") return;
    $("time").open = false;
    $("time").querySelector("summary").focus();
  });
  on("copy", "click", async () => {
    const link = `${location.origin}${location.pathname}${address(true)}`;
    try {
      await navigator.clipboard.writeText(link);
      $("copy").textContent = "Link copied";
    } catch {
      prompt("Copy this link:", link);
    }
    setTimeout(() => { $("copy").textContent = "Share"; }, 3000);
  });
}
