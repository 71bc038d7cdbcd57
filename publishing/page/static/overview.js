// The table of attributes: privacy first, then people and the most frequent values.
import { $, bound, chance, element, grouped, guess, nats, percent, plural, silence, table } from "./dom.js";
import { explained } from "./explain.js";
import { asked, state } from "./state.js";

// A cell: the chance of a right guess from the attribute's reports, and below it the chance from the whole device and the loss.
function privacyCell(chances, key, loss, exact, name) {
  const cell = element("td", "", { "data-name": name });
  cell.append(element("strong", guess(chances, key)), " ");
  if (state.survey.attributes.length > 1) {
    const device = element("span", "whole device: ", { class: "name wraps" });
    device.append(element("span", guess(chances, `${key}_device`)));
    cell.append(device, " ");
  }
  cell.append(element("span", `${exact ? "" : "≤ "}${nats(chances[loss])}`, { class: "name" }));
  return cell;
}

// Four cells for each level: now and in a year, for an unchanged value and for changing values.
function privacyCells({ now, year }) {
  return [
    privacyCell(now, "guess", "eps_t", true, "unchanged, now"),
    privacyCell(year, "guess", "eps_t", true, "unchanged, in a year"),
    privacyCell(now, "guess_any_values", "eps_sequence", now.eps_sequence_exact, "changing, now"),
    privacyCell(year, "guess_any_values", "eps_sequence", year.eps_sequence_exact, "changing, in a year"),
  ];
}

function heading(text, why, attributes = {}) {
  const cell = element("th", "", { scope: "col", ...attributes });
  cell.append(why ? explained(text, why) : text);
  return cell;
}

function rowsOf(overview, choose) {
  const info = state.survey.attributes.find((attribute) => attribute.name === overview.attribute);
  const levels = Object.entries(overview.outlook);
  return levels.map(([name, outlook], i) => {
    const row = element("tr", "", { class: overview.attribute === state.attribute ? "chosen" : "" });
    if (i === 0) {
      const first = element("th", "", { scope: "rowgroup", rowspan: levels.length });
      const button = element("button", overview.attribute, { type: "button", class: "link", "data-attribute": overview.attribute });
      button.setAttribute("aria-pressed", overview.attribute === state.attribute);
      button.addEventListener("click", () => choose(overview.attribute));
      first.append(button, element("span", `${grouped(info.k - (info.choices ?? 0))} values, blind guess ${chance(1 / info.guessed)}`, { class: "name" }));
      row.append(first);
    }
    const level = element("td", name, { class: "level", "data-name": "level" });
    level.append(element("span", `after ${plural(outlook.now.t, "report")}`, { class: "name" }));
    row.append(level, ...privacyCells(outlook));
    if (i === 0) {
      const people = element("td", grouped(overview.reports), { class: "number", rowspan: levels.length, "data-name": "reports" });
      const top = element("td", "", { class: "top wraps", rowspan: levels.length, "data-name": "most frequent" });
      if (overview.too_few) top.append("too few reports to tell");
      else if (overview.top.length) top.append(...overview.top.flatMap((share, j) => [j ? ", " : "", `${share.label} `, element("span", percent(share.frequency, 1))]));
      else top.append(overview.reports ? "no estimate from these counts" : silence(overview.complete));
      row.append(people, top);
    }
    return row;
  });
}

// More about the privacy of the chosen attribute, in sentences.
function sentences(overview) {
  return Object.entries(overview.privacy).map(([name, level]) => {
    const info = state.survey.attributes.find((attribute) => attribute.name === overview.attribute).levels.find((x) => x.name === name);
    const total = info.eps_survey ?? info.eps_lifetime;
    const parts = [`${overview.attribute}, level ${name} (${level.mechanism}): one report gives a right guess with a chance of ${guess(info, "guess_1")} (${nats(level.eps_1)}).`];
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

// The privacy of an attribute in one line: the largest chances over all levels of a guesser who sees the whole device.
function line({ attribute, outlook }) {
  const levels = Object.values(outlook);
  const most = (when, key) => element("strong", guess(levels.map((of) => of[when]).reduce((a, b) => (b[key] > a[key] ? b : a)), key));
  const both = (key) => [most("now", key), " now and ", most("year", key), " in a year"];
  return [
    element("strong", `Privacy of ${attribute}: `), "the chance of a right guess from a whole device is ", ...both("guess_device"),
    " if the value stays the same, ", ...both("guess_any_values_device"), ` if it changes${levels.length > 1 ? " (weakest level)" : ""}; `,
    element("span", chance(1 / asked().guessed)), " without reports.",
  ];
}

export function drawOverview(status, choose) {
  const box = $("attributes");
  table(box, [
    heading("Attribute", "blind"), heading("Level"),
    heading("Value unchanged, now", "unchanged"), heading("in a year", "year"),
    heading("Value changing, now", "changing"), heading("in a year", "year"),
    heading("Reports", "reports", { class: "number" }), heading("Most frequent"),
  ], status.attributes.flatMap((overview) => rowsOf(overview, choose)));
  if (!status.attributes.length) box.replaceChildren(element("caption", "No estimate yet: the first step is still open."));
  const chosen = status.attributes.find((overview) => overview.attribute === state.attribute);
  $("promise").replaceChildren(...(chosen ? sentences(chosen) : []));
  $("privacy-line").replaceChildren(...(chosen ? line(chosen) : ["Attributes and privacy"]));
}
