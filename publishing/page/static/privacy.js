// Privacy: the band below all views with three bars, the owner's words and the label, and the levels of one attribute.
import { $, bound, capital, chance, element, grouped, guess, heading, nats, plural, table } from "./dom.js";
import { asked, state } from "./state.js";
import { duration } from "./times.js";

// Draws the band, which is the same for all views of a survey.
export function drawBand() {
  const { label, purpose, owner, contact, description, fingerprint, name, relay, step_seconds: seconds, window_steps: steps } = state.survey;
  $("band").hidden = false;
  const [blind, one, same, any] = label.chances;
  $("chances").replaceChildren(...[blind, one, any.chance > same.chance ? any : same].map(({ heading: what, chance: size, text }) => {
    const fill = element("span", "", { class: "fill" });
    fill.style.width = `${100 * size}%`;
    return element("li", [element("span", capital(what)), element("span", fill, { class: "bar" }), element("strong", text)]);
  }));
  const stored = label.lines.find((line) => line.name === "stored").text;
  $("facts").replaceChildren(...terms([["About", description], ["Purpose", purpose], ["Owner", owner], ["Contact", contact], ["Stored", stored]]));
  $("label-lines").replaceChildren(...terms(label.lines.map((line) => [line.heading, line.text])));
  $("technical").textContent = `Survey ${name}, fingerprint ${fingerprint}. Steps of ${duration(1000 * seconds)}, windows of ${plural(steps, "step")}.${relay ? " Devices send through a relay." : ""}`;
}

const terms = (pairs) => pairs.filter(([, text]) => text).flatMap(([name, text]) => [element("dt", name), element("dd", text, { dir: "auto" })]);

function cell(chances, key, loss, exact, name) {
  const whole = state.survey.attributes.length > 1 ? [element("span", `whole device: ${guess(chances, `${key}_device`)}`, { class: "name" }), " "] : [];
  return element("td", [element("strong", guess(chances, key)), " ", ...whole, element("span", `${exact ? "" : "≤ "}${nats(chances[loss])}`, { class: "name" })], { "data-name": name });
}

const levelRow = ([name, { now, year }]) => element("tr", [
  element("th", [name, element("span", `after ${plural(now.t, "report")}`, { class: "name" })], { scope: "row" }),
  cell(now, "guess", "eps_t", true, "unchanged, now"), cell(year, "guess", "eps_t", true, "unchanged, in a year"),
  cell(now, "guess_any_values", "eps_sequence", now.eps_sequence_exact, "changing, now"), cell(year, "guess_any_values", "eps_sequence", year.eps_sequence_exact, "changing, in a year"),
]);

// The levels of the chosen attribute. `overview`: its part of the status; undefined before the first estimate.
export function drawLevels(overview) {
  $("privacy-line").textContent = `Privacy of ${state.attribute}: without a report, a guess is right with a chance of ${chance(1 / asked().guessed)}`;
  if (!overview) return $("levels").replaceChildren(element("caption", "No estimate yet: the first step is still open."));
  $("promise").replaceChildren(...sentences(overview));
  return table($("levels"), [heading("Level", "blind"), heading("Value unchanged, now", "unchanged"), heading("in a year", "year"), heading("Value changing, now", "changing"), heading("in a year", "year")],
    Object.entries(overview.outlook).map(levelRow));
}

// More about the privacy of the chosen attribute, in sentences.
function sentences(overview) {
  return Object.entries(overview.privacy).map(([name, level]) => {
    const info = asked().levels.find((x) => x.name === name);
    const total = info.eps_survey ?? info.eps_lifetime;
    const parts = [`Level ${name} (${level.mechanism}): the chance of a right guess from one report is ${guess(info, "guess_1")} (${nats(level.eps_1)}).`];
    if (level.eps_inf !== null) parts.push(`While the value stays the same, no number of reports raises the loss above ${nats(level.eps_inf)} (chance ${guess(info, "guess_inf")}).`);
    else if (total !== null) parts.push(`All reports of this attribute together lose at most ${nats(total)}, whatever the values.`);
    else parts.push(`Each further report adds ${nats(level.eps_1)}; there is no limit.`);
    if (level.every_steps > 1) parts.push(`A device reports once in ${level.every_steps} steps: at most ${nats(level.eps_window)} within any ${level.every_steps} steps, whatever the values.`);
    const known = overview.outlook[name].known_shares;
    if (known) parts.push(`All these chances are for a guesser who at first considers all values equally likely. If the published shares are right, somebody who knows them guesses right with a chance of ${chance(known.no_report)} without a report, at most ${bound(known.one_report)} with one report of this attribute, and at most ${bound(known.year)} after a year, if the value never changes.`);
    return element("p", parts.join(" "));
  }).concat(state.survey.crowd === null ? [] : [element("p", behindRelay(state.survey.crowd, Object.values(overview.privacy)))]);
}

// The second promise, which never stands without the first one.
function behindRelay(crowd, levels) {
  const same = levels.some((level) => level.eps_inf !== null) ? " At a memoized level, these must be the same people at all steps of the participant. Neither they nor the participant may change a value or draw a new memo. One step that breaks this ends the lower chance for the reports of all steps. The service cannot check this." : "";
  return `These promises hold against everybody. Reports come through a relay: somebody who cannot see the sender of a report learns less, if at least ${grouped(crowd)} honest people report at the same steps. The service counts reports, and cannot tell which are honest.${same}`;
}

// The rejected envelopes by reason, and how much of a step one client has sent at most (null if the page's process has no gateway).
export function drawOperators({ rejected, largest_client: share }) {
  const found = Object.entries(rejected).filter(([, n]) => n > 0)
    .map(([reason, n]) => element("tr", [element("td", reason), element("td", grouped(n), { class: "number" })]));
  $("rejected-title").hidden = !found.length;
  if (found.length) table($("rejected"), [element("th", "Reason", { scope: "col" }), element("th", "Envelopes", { scope: "col", class: "number" })], found);
  else $("rejected").replaceChildren(element("caption", "No envelope was rejected."));
  $("largest-client").hidden = share === null;
  if (share === null) return;
  $("largest-client").textContent = `One client (an address, not a collector or a listed relay) has sent at most ${(Math.ceil(1000 * share) / 10).toFixed(1)} % of an attribute's reports in a step that is open or was the last to close, or of 1,000 reports if there are fewer.`;
  $("largest-client").className = share > state.survey.thresholds.client_limit ? "late" : "hint";
}
