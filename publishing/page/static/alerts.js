// The banner: warnings about the numbers below, the most important first.
import { $, capital, element, grouped, plural, points, silence } from "./dom.js";
import { state } from "./state.js";
import { duration, periodOfStep } from "./times.js";

const VISIBLE = 4;
let rejectedBefore = null; // number of rejected envelopes when the page was opened
let written = "";

// Text of a jump: the value, the size and the time.
export function jumpText(label, change) {
  const at = (x) => points(x, change.size);
  return {
    moved: `${label} jumped by ${at(change.size)} percentage points`,
    interval: `${at(change.low)} to ${at(change.high)}`,
    at: `at ${periodOfStep(change.changed_at)}`,
  };
}

// Text of a crowd that is too small: the level with the fewest reports, of the memoized levels if one is too small.
export function crowdText({ assumed, reports, memoized }) {
  const fresh = (level) => Number(!memoized.includes(level));
  const [level, least] = Object.entries(reports).filter(([, n]) => n > 0 && n < assumed)
    .sort((a, b) => fresh(a[0]) - fresh(b[0]) || a[1] - b[1])[0];
  const steps = fresh(level) ? "" : " for any report of the people who reported";
  return `level ${level} has ${plural(least, "report")}, fewer than the crowd of ${grouped(assumed)}: the promise behind the relay is not claimed${steps}`;
}

export const isLate = (status, now) => status.due_ms !== null && now > status.due_ms + state.survey.thresholds.overdue_ms;

function ofService(status, now) {
  const said = [];
  if (isLate(status, now)) {
    said.push(["late", `The next estimate is overdue by ${duration(now - status.due_ms)}. The estimator or the counting agents may have stopped. The page shows the last estimate.`]);
  }
  const rejected = Object.values(status.rejected).reduce((a, b) => a + b, 0);
  rejectedBefore ??= rejected;
  const silent = status.attributes.length > 0 && status.attributes.every((overview) => overview.step_reports === 0);
  const [reason] = Object.entries(status.rejected).sort((a, b) => b[1] - a[1])[0] ?? [];
  if (rejected > rejectedBefore) {
    said.push(["rejected", `${plural(rejected - rejectedBefore, "envelope")} rejected since you opened this page (${grouped(rejected)} in all, most often: ${reason}).`]);
  } else if (silent && rejected) {
    said.push(["rejected", `${plural(rejected, "envelope")} rejected so far, most often: ${reason}.`]);
  }
  if (silent) {
    const complete = status.attributes.every((overview) => overview.step_complete);
    const why = complete ? "" : " The counting agents may have stopped: reports may wait in the log.";
    said.push(["silent", `${capital(silence(complete))} in the latest step, ${periodOfStep(status.latest_step)}.${why}`]);
  }
  return said;
}

function ofAttribute(overview, everybodySilent) {
  const said = Object.entries(overview.fit_z).filter(([, z]) => Math.abs(z) > state.survey.thresholds.fit_limit)
    .map(([name, z]) => ["fit", `${name}: the counts do not fit the mechanism (z = ${z.toFixed(1)}). Reports are forged, or the survey is wrong.`]);
  if (overview.step_reports === 0 && !everybodySilent) said.push(["silent", `${silence(overview.step_complete)} in the latest step.`]);
  if (!overview.step_complete || !overview.complete) said.push(["incomplete", "incomplete: reports of the latest estimate may be missing."]);
  if (overview.crowd !== null && !overview.crowd.reached) said.push(["crowd", `${crowdText(overview.crowd)} in the latest step.`]);
  if (overview.levels_p !== null && overview.levels_p < state.survey.thresholds.alarm_chance) {
    const [one, other] = overview.levels_pair;
    said.push(["levels", `${one} and ${other} differ in ${overview.levels_label} by ${overview.levels_sigma.toFixed(1)} standard errors: the estimate over both can be biased.`]);
  }
  if (overview.change !== null) {
    const { moved, interval, at } = jumpText(overview.change_label, overview.change);
    said.push(["jump", `${moved} ${at} (95 % interval ${interval}).`]);
  }
  if (overview.growth !== null) {
    const { label, before_step: before, difference, low, high } = overview.growth;
    const at = (x) => points(x, difference);
    said.push(["other", `${label} has grown by ${at(difference)} percentage points since the window until ${periodOfStep(before)} (95 % interval ${at(low)} to ${at(high)}): a value that is not listed may spread.`]);
  }
  if (overview.drift_p !== null && overview.drift_p < state.survey.thresholds.alarm_chance) {
    said.push(["drift", `${overview.drift_label} moved by ${overview.drift_sigma.toFixed(1)} standard errors in the latest step.`]);
  }
  return said;
}

const RANK = ["late", "rejected", "silent", "fit", "incomplete", "crowd", "levels", "jump", "other", "drift"];

// Draws the banner. `choose` shows an attribute.
export function drawAlerts(status, now, choose) {
  const service = ofService(status, now).map(([kind, text]) => ({ kind, text, name: null }));
  const silent = service.some(({ kind }) => kind === "silent");
  const found = [...service, ...status.attributes.flatMap((overview) =>
    ofAttribute(overview, silent).map(([kind, text]) => ({ kind, text, name: overview.attribute })))];
  found.sort((a, b) => RANK.indexOf(a.kind) - RANK.indexOf(b.kind));
  const text = JSON.stringify(found);
  if (text === written) return;
  written = text;
  $("alerts").hidden = !found.length;
  const items = found.map(({ kind, text: said, name }) => {
    const button = element("button", name ?? "", { type: "button", class: "link" });
    button.addEventListener("click", () => choose(name));
    return element("li", [...(name === null ? [] : [button, ": "]), said], { class: `warning ${kind}` });
  });
  $("alerts-list").replaceChildren(...items.slice(0, VISIBLE));
  $("alerts-more").hidden = items.length <= VISIBLE;
  $("alerts-count").textContent = plural(Math.max(0, items.length - VISIBLE), "more warning");
  $("alerts-rest").replaceChildren(...items.slice(VISIBLE));
}
