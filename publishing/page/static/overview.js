// The first screen: the answer in sentences, and a card for each attribute.
import { $, capital, element, isolated, percent, plural, range, silence, TOO_FEW, within } from "./dom.js";
import { address, overviewPath, state } from "./state.js";
import { period } from "./times.js";

const FEW = 20; // values that need no search
const NUMBERS = { mean: "mean", p50: "median" };

// The bar of a share with its interval. `most` is the share of a full bar.
function bar(share, low, high, most) {
  const [cell, box, fill] = [element("td"), element("span", "", { class: "bar" }), element("span", "", { class: "fill" })];
  const at = (x) => 100 * Math.max(0, Math.min(1, x / most));
  fill.style.width = `${at(share)}%`;
  box.append(fill);
  if (low !== null) {
    const line = element("span", "", { class: "whisker" });
    Object.assign(line.style, { left: `${at(low)}%`, right: `${100 - at(high)}%` });
    box.append(line);
  }
  cell.append(box);
  return cell;
}

// A cell with a number and the ends of its interval, such as "+4.5 (−1.2 to +10.3)"; bold if clear.
function cellOf(text, clear = false) {
  const [shown, ...ends] = text.split(" (");
  const cell = element("td", "", { class: "number" });
  cell.append(element(clear ? "strong" : "span", shown), ...ends.flatMap((end) => [" ", element("span", `(${end}`, { class: "ends" })]));
  if (clear) cell.append(element("span", ", clear", { class: "sr" }));
  return cell;
}

const shareText = (x, low, high) => percent(x, low, high) + (low === null ? "" : ` (${range(low, high).slice(0, -2)})`);
const changeText = (x, low, high) => (x === null ? "" : within(100 * x, low === null ? null : 100 * low, 100 * high, true));

function headed(label) {
  const head = element("th", "", { scope: "row" });
  head.append(isolated(label));
  if (label.length > 30) head.title = label;
  return head;
}

function shareRow(card, i, most) {
  const row = element("tr");
  row.append(headed(card.labels[i]), bar(card.frequencies[i], card.low[i], card.high[i], most), cellOf(shareText(card.frequencies[i], card.low[i], card.high[i])),
    cellOf(changeText(card.differences[i], card.difference_low[i], card.difference_high[i]), card.clear[i]));
  return row;
}

function numberRow(card, info, name) {
  const text = ({ value, low, high }, signed) => within(value, low, high, signed);
  const row = element("tr");
  row.append(headed(info.choices ? "mean number" : NUMBERS[name]), element("td"),
    cellOf(text(card.numbers[name])), cellOf(card.number_differences[name] ? text(card.number_differences[name], true) : ""));
  return row;
}

// Why a card has no rows, or null.
function nothing(card) {
  if (card.below_least) return `${plural(card.reports, "report")}, which may come from fewer than ${plural(state.survey.cohort.least, "person", "people")}: no histogram is published.`;
  if (card.found === 0) return "No value with this text.";
  if (card.frequencies.every((x) => x === null)) return card.reports ? "There is no estimate from these counts." : `${capital(silence(card.complete))}.`;
  return card.too_few ? TOO_FEW : null;
}

// A card: a link to the attribute's page, and its largest values as a table.
function cardOf(card, go) {
  const made = element("section", "", { class: "card" });
  const info = state.survey.attributes.find(({ name }) => name === card.attribute);
  const title = element("h2");
  const link = element("a", card.attribute, { href: address(undefined, card.attribute, state.find && card.found < info.k ? state.find : "") });
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  title.append(link);
  const values = info.k - (info.choices ?? 0); // without the numbers of answers
  const why = nothing(card);
  const about = [card.reports ? `at least ${plural(card.people_at_least, "person", "people")}` : "", info.choices ? `up to ${plural(info.choices, "answer")}` : "", card.span === state.span ? "" : "one step"].filter(Boolean);
  const line = element("p", about.join(" · "), { class: "hint" });
  if (!card.complete && card.reports) line.append(" ", element("span", "incomplete", { class: "late" }));
  made.append(title, line);
  if (why !== null) {
    made.append(element("p", why));
    return made;
  }
  const table = element("table");
  const [head, body] = [element("tr"), element("tbody")];
  head.append(element("th", "Value", { scope: "col" }), element("td"), ...["Share", state.against === null ? "Change, points" : "Difference, points"].map((name) => element("th", name, { scope: "col", class: "number" })));
  const top = element("thead");
  top.append(head);
  const rows = card.values.map((_, i) => i).filter((i) => card.values[i] < values);
  const most = Math.max(...rows.map((i) => Math.max(card.frequencies[i], card.high[i] ?? 0)));
  body.append(...Object.keys(NUMBERS).filter((name) => card.numbers[name]).map((name) => numberRow(card, info, name)), ...rows.map((i) => shareRow(card, i, most)));
  table.append(top, body);
  made.append(table);
  const rest = Math.min(card.found, values) - rows.length;
  const others = card.others === null || card.found < info.k ? "" : `, ${percent(card.others)} together`;
  if (rest > 0) made.append(element("p", `and ${plural(rest, "other value")}${others}`, { class: "hint" }));
  if (card.interval_withheld) made.append(element("p", "No intervals: this estimate may be biased.", { class: "late" }));
  return made;
}

// Draws the answer o. go(address) shows another view of the page.
export function drawOverview(o, go) {
  $("sentences").replaceChildren(...o.sentences.map(({ lead, text }) => {
    const line = element("p");
    line.append(element("strong", `${lead}: `), isolated(text));
    return line;
  }));
  $("cards").replaceChildren(...o.attributes.map((card) => cardOf(card, go)));
  $("change-since").textContent = state.against !== null ? "difference" : o.before_step === null ? "change" : `change since ${period(o.before_start_ms, o.before_end_ms)}`;
  const words = state.find.trim();
  $("found").textContent = words ? `${plural(o.attributes.length, "attribute")} with “${words}”` : "";
  const large = state.survey.attributes.length > 6 || state.survey.attributes.some(({ k }) => k > FEW);
  $("search-tools").hidden = !large && !words;
  const query = overviewPath().split("?")[1];
  for (const [id, file] of [["overview-csv", "overview.csv"], ["overview-json", "overview"], ["changes-csv", "changes.csv"]]) $(id).href = `api/v1/${file}?${query}`;
}
