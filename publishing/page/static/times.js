// Times of steps, in the chosen time zone: UTC or the reader's own.

let survey = { start_ms: 0, step_seconds: 60 };
let zone = remembered();

function remembered() {
  try { return localStorage.getItem("zone"); } catch { return null; }
}

export const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export function useSurvey(info) {
  survey = info;
}

// Steps of whole days end at midnight in UTC, so their times are in UTC unless the reader chooses otherwise.
export const zoneName = () => ((zone ?? (survey.step_seconds % 86400 ? "local" : "UTC")) === "UTC" ? "UTC" : LOCAL);

export function nextZone() {
  zone = zoneName() === "UTC" ? "local" : "UTC";
  try { localStorage.setItem("zone", zone); } catch { /* without storage, the choice lasts until the page is closed */ }
}

export const opens = (step) => survey.start_ms + 1000 * survey.step_seconds * step;
export const stepAt = (ms) => (ms - survey.start_ms) / (1000 * survey.step_seconds);

// `fieldText` returns the text of a date field for a time, `fieldTime` the time of such a text, both in the chosen time zone.
export function fieldText(ms) {
  const shift = zoneName() === "UTC" ? 0 : 60_000 * new Date(ms).getTimezoneOffset();
  return new Date(ms - shift).toISOString().slice(0, survey.step_seconds % 60 ? 19 : 16);
}
export const fieldTime = (text) => Date.parse(zoneName() === "UTC" ? `${text}Z` : text);

const format = (options, at) => (ms) => new Intl.DateTimeFormat("en-GB", { timeZone: at ?? zoneName(), ...options }).format(ms);
const clockParts = () => ({ hour: "2-digit", minute: "2-digit", ...(survey.step_seconds % 60 ? { second: "2-digit" } : {}) });

const day = (ms, at) => format({ day: "numeric", month: "short", year: "numeric" }, at)(ms);
const shortDay = (ms) => format({ day: "numeric", month: "short" })(ms);
export const clock = (ms, at) => format(clockParts(), at)(ms);
export const moment = (ms, at) => `${day(ms, at)}, ${clock(ms, at)}`;

// "5 Jan 2026, 14:00–15:00", with both days if they differ; "5 to 11 Jan 2026" for whole days.
export function period(from, to, at = zoneName()) {
  const midnight = (ms) => format({ hour: "2-digit", minute: "2-digit", second: "2-digit" }, at)(ms) === "00:00:00";
  if (midnight(from) && midnight(to)) {
    const [first, last] = [from, to - 1000].map((ms) => day(ms, at).split(" "));
    const differing = first.slice(0, first[2] !== last[2] ? 3 : first[1] !== last[1] ? 2 : 1);
    return first.join() === last.join() ? last.join(" ") : `${differing.join(" ")} to ${last.join(" ")}`;
  }
  return day(from, at) === day(to, at) ? `${moment(from, at)}–${clock(to, at)}` : `${moment(from, at)} – ${moment(to, at)}`;
}

// The period in the chosen time zone, also in UTC if this differs, and the step in brackets.
export function periodOf({ start_ms: from, end_ms: to, step }) {
  const [here, utc] = [period(from, to), period(from, to, "UTC")];
  if (here === utc) return `${utc} UTC (step ${step})`;
  const sameDays = day(from) === day(from, "UTC") && day(to) === day(to, "UTC") && day(from) === day(to);
  return `${here} ${zoneName()} (${sameDays ? `${clock(from, "UTC")}–${clock(to, "UTC")}` : utc} UTC, step ${step})`;
}

export const periodOfStep = (step) => periodOf({ start_ms: opens(step), end_ms: opens(step + 1), step });

// A number of seconds as the name of a period: "day", "week", "6 hours".
export function periodName(seconds) {
  const [unit, long] = Object.entries({ week: 604800, day: 86400, hour: 3600, minute: 60, second: 1 })
    .find(([name, length]) => seconds % length === 0 && (name !== "week" || seconds === length));
  return seconds === long ? unit : `${seconds / long} ${unit}s`;
}

export function duration(ms) {
  const seconds = Math.round(ms / 1000);
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const n = Math.floor(seconds / length);
    if (n >= 1) return `${n} ${unit}${n === 1 ? "" : "s"}`;
  }
  return `${seconds} second${seconds === 1 ? "" : "s"}`;
}

// Distances between the ticks of a time axis, in seconds: never below a step.
const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
const DISTANCES = [
  1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 182 * DAY, 365 * DAY, 730 * DAY, 3650 * DAY,
];
export const increments = () => DISTANCES.filter((seconds, i) => seconds >= survey.step_seconds || i === DISTANCES.length - 1);

// Labels of a time axis: the clock, with the day below where it changes.
export function timeLabels(ticks, increment) {
  let before = null;
  return ticks.map((second) => {
    const date = shortDay(1000 * second);
    const label = increment >= 86400 ? date : `${clock(1000 * second)}${date === before ? "" : `\n${date}`}`;
    before = date;
    return label;
  });
}
