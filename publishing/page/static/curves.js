// The curves over time, the jumps, and the numbers of reports.
import { jumpText } from "./alerts.js";
import { colour, colourOf, lineChart, slotsOf, stepsChart } from "./charts.js";
import { $, capital, element, isolated, percent, points, range, silence } from "./dom.js";
import { about, linkFiles, seriesQuery, state, subject } from "./state.js";
import { opens, periodOf, stepAt } from "./times.js";

let shown = null;

const end = (step) => opens(step + 1) / 1000; // a point stands at the end of its step

function ends(s) {
  const [first, last] = state.period ?? [s.steps[0], s.steps.at(-1)];
  return [end(first - 1) - 0.1 * (end(0) - end(-1)), end(last) + 0.1 * (end(0) - end(-1))];
}

// A dragged selection, in seconds, as [first, last] step.
function steps(s, seconds) {
  const from = Math.max(s.steps[0], Math.floor(stepAt(1000 * seconds[0])));
  const to = Math.min(s.steps.at(-1), Math.ceil(stepAt(1000 * seconds[1])) - 1);
  return to > from ? [from, to] : null;
}

// The series and the joined parts of the surveys that this survey replaces, as one series. A step without numbers separates the
// parts, so that no line connects them. `part` has the part of each step; null for a step of this survey.
function whole(s) {
  const parts = state.period ? [] : s.earlier.filter((part) => part.steps.length);
  const all = { ...s, lines: s.lines.map((line) => ({ ...line, slot: state.slots.get(line.value) })), part: s.steps.map(() => null), seconds: s.end_ms.map((ms) => ms / 1000) };
  for (const part of parts.reverse()) {
    for (const key of ["steps", "start_ms", "end_ms", "reports"]) all[key] = [...part[key], part[key].at(-1), ...all[key]];
    all.seconds = [...part.end_ms.map((ms) => ms / 1000), part.end_ms.at(-1) / 1000 + 0.001, ...all.seconds];
    all.reports[part.steps.length] = null;
    all.part = [...part.steps.map(() => part), part, ...all.part];
    all.lines.forEach((line, i) => {
      for (const key of ["frequencies", "low", "high"]) line[key] = [...part.lines[i][key], null, ...line[key]];
    });
  }
  return all;
}

// The end of each part of an earlier survey, in seconds.
const joints = (all) => all.seconds.filter((_, i) => all.part[i] !== null && all.part[i + 1] !== all.part[i]);

// Draws the curves. actions: toggle(value) removes a curve, period(steps) zooms.
export function drawCurves(s, actions) {
  state.slots = slotsOf(s.lines.map((line) => line.value));
  shown = whole(s);
  const known = s.lines.length > 0;
  const view = ends(s);
  if (shown.part[0] !== null) view[0] = shown.start_ms[0] / 1000 - 0.02 * (view[1] - shown.seconds[0]);
  const zoom = (seconds) => actions.period(seconds && steps(s, seconds));
  const jumps = s.changes.filter((change) => state.slots.has(change.value)).map((change) => [end(change.changed_at), colourOf(state.slots.get(change.value))]);
  const here = [[state.step, "soft"], [state.before, "accent"]].filter(([step]) => step !== null && step !== s.steps.at(-1))
    .map(([step, name]) => [end(step), colour(name)]);
  const notes = (state.survey.notes ?? []).map(({ at_ms: at, text }) => [at / 1000, colour("soft"), text]);
  const joined = joints(shown).map((seconds) => [seconds, colour("soft")]);
  const read = (i) => readCurves(i ?? chosen());
  drawLegend(s, actions);
  lineChart($("series"), shown, { view, zoom, list: [...joined, ...here, ...jumps, ...notes], read });
  const counted = shown.reports.map((n) => n !== null); // a bar needs no separator, which would make all bars thin
  stepsChart($("reports"), { seconds: shown.seconds.filter((_, i) => counted[i]), reports: shown.reports.filter((_, i) => counted[i]) }, { view, zoom });
  readCurves(chosen());
  drawJumps(s);
  $("whole-period").hidden = !state.period;
  $("series").setAttribute("aria-label", known ? `Shares over time of ${s.lines.map((line) => line.label).join(", ")}. The legend and the CSV have the numbers.` : nothing(s));
  $("reports").setAttribute("aria-label", `Reports of ${subject(s)} in each step. The CSV has the numbers.`);
  words(s, jumps.length, here.length, joined.length);
  $("earlier").replaceChildren(...(state.period ? [] : s.earlier).map((part) => element("li", earlierText(part))));
  linkFiles("series", "series", seriesQuery());
}

// Says how the history of a replaced survey continues, or why it does not.
function earlierText(part) {
  const which = `survey ${part.survey}${part.survey && " "}(${part.fingerprint})`;
  if (!part.joined) return `The history of the replaced ${which} is not shown here: ${part.reason}.`;
  if (!part.steps.length) return `The replaced ${which} has no estimates of earlier steps.`;
  const until = periodOf({ start_ms: part.start_ms[0], end_ms: part.end_ms.at(-1), step: `${part.steps[0]} to ${part.steps.at(-1)}` });
  return `${until}: from the replaced ${which}, up to the grey dashed line${part.reason ? `; ${part.reason}` : ""}.`;
}

// Why there is no curve.
const nothing = (s) => (s.below_least.some(Boolean) ? "In these steps the cohort is below the least size" : `${capital(silence(s.complete.every(Boolean)))} in these steps`);

function words(s, jumps, here, joined) {
  const each = s.span === "filtered" ? "in each step" : `used by the estimate of each step${s.span === "window" ? ", from its whole window" : ""}`;
  $("reports-hint").textContent = `Reports of ${subject(s)} ${each}.`;
  if (!s.lines.length) {
    $("series-hint").textContent = `${nothing(s)}.`;
    return;
  }
  const name = capital(about(s.estimator).label);
  const now = s.lines.some((line) => line.frequencies.at(-1) !== null) ? "" : "in the last step with reports";
  const which = state.values ? "the chosen values" : s.too_few ? `${s.lines.length} values (too few reports to tell which are the most frequent)` : `the ${s.lines.length} most frequent values ${now}`.trim();
  const trusted = s.interval_withheld.some(Boolean) ? " where they can be trusted" : "";
  const gap = s.span === "filtered" ? "A step without reports is predicted from earlier steps." : `In a gap no report was counted${s.cohort === null ? "" : ", or the cohort is below the least size"}${joined ? ", or the value is unknown" : ""}.`;
  const marked = `${jumps ? " A dashed line in a value's colour marks a jump." : ""}${here ? " A grey or blue dashed line marks the times shown above." : ""}`;
  $("series-hint").textContent = `${name}, ${which}, with ${Math.round(100 * s.confidence)} % intervals${trusted}. Each point stands at the end of its step. ${thinned(s)}${gap}${marked}`;
}

// Says which steps of a long range are drawn.
export function thinned(s) {
  const before = Math.max(1, ...(s.earlier ?? []).map((part) => part.every));
  const own = s.every > 1 ? `One step in ${s.every} is drawn. ` : "";
  return before > s.every ? `${own}Of an earlier survey, one step in ${before} is drawn. ` : own;
}

function key(value) {
  const made = element("span", "", { class: "key line" });
  made.style.background = colourOf(state.slots.get(value));
  return made;
}

function drawLegend(s, actions) {
  $("legend").replaceChildren(...s.lines.map((line) => {
    const remove = element("button", "×", { type: "button", class: "link", "aria-label": `remove ${line.label} from the curves` });
    remove.addEventListener("click", () => actions.toggle(line.value));
    return element("li", [key(line.value), isolated(line.label), " ", element("span", "", { class: "now" }), " ", remove]);
  }));
  $("default-curves").hidden = !state.values;
}

// Index of the chosen step; the last step if it is not among the steps.
function chosen() {
  const i = shown.steps.findLastIndex((step, j) => shown.part[j] === null && step === state.step);
  return i < 0 ? shown.steps.length - 1 : i;
}

// The numbers of one step, in the legend.
function readCurves(i) {
  const s = shown;
  $("legend").querySelectorAll(".now").forEach((box, j) => {
    const line = s.lines[j];
    box.textContent = percent(line.frequencies[i], line.low[i], line.high[i]) + (line.low[i] === null ? "" : ` (${range(line.low[i], line.high[i])})`);
  });
  $("legend-when").hidden = !s.lines.length;
  const step = s.part[i] === null ? s.steps[i] : `${s.steps[i]} of survey ${s.part[i].survey}`;
  $("legend-period").textContent = periodOf({ start_ms: s.start_ms[i], end_ms: s.end_ms[i], step });
}

// The size of a jump that the filter would most probably have found, as a sentence.
function detectable(s) {
  if (s.detectable === null) return "";
  return ` At the noise of the latest step with reports, a jump of ${points(s.detectable).slice(1)} percentage points or more is found within five steps in about 9 of 10 cases.`;
}

// Lists the jumps of all values, also of the values without a curve.
function drawJumps(s) {
  const items = s.changes.map((change, i) => {
    const { moved, interval, at } = jumpText(s.change_labels[i], change);
    return element("li", [state.slots.has(change.value) ? key(change.value) : element("span", "", { class: "key line" }), `${moved} (${interval}) ${at}`]);
  });
  if (s.span === "filtered" && !items.length) items.push(element("li", `No jump was detected in these steps.${detectable(s)}`));
  $("changes").replaceChildren(...items);
}
