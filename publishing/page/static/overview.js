// The first screen: the answer in sentences, and a card for each attribute.
import { $, capital, element, isolated, numberCell, percent, plural, range, silence, table, TOO_FEW, within } from "./dom.js";
import { address, overviewPath, state } from "./state.js";
import { period } from "./times.js";
import { aboutPeople, curve, linesOf, retention } from "./usage.js";

const FEW = 20; // values that need no search
const NUMBERS = { mean: "mean", p50: "median" };

// The bar of a share with its interval. `most` is the share of a full bar.
function bar(share, low, high, most) {
  const fill = element("span", "", { class: "fill" });
  const box = element("span", fill, { class: "bar" });
  const at = (x) => 100 * Math.max(0, Math.min(1, x / most));
  fill.style.width = `${at(share)}%`;
  if (low !== null) {
    const line = element("span", "", { class: "whisker" });
    Object.assign(line.style, { left: `${at(low)}%`, right: `${100 - at(high)}%` });
    box.append(line);
  }
  return element("td", box);
}

const shareText = (x, low, high) => percent(x, low, high) + (low === null ? "" : ` (${range(low, high).slice(0, -2)})`);
const changeText = (x, low, high) => (x === null ? "" : within(100 * x, low === null ? null : 100 * low, 100 * high, true));

// A row of a card: a label, a bar or a curve, and two numbers.
const rowOf = (label, drawn, text, change = "", clear = false) =>
  element("tr", [element("th", isolated(label), { scope: "row", ...(label.length > 30 && { title: label }) }), drawn, numberCell(text), numberCell(change, clear)]);

function tableOf(heads, rows) {
  const made = element("table");
  table(made, heads.map((text, i) => (text ? element("th", text, { scope: "col", class: i ? "number" : "" }) : element("td"))), rows);
  return made;
}

// Why a card has no rows, or null.
function nothing(card) {
  if (card.below_least) return `${plural(card.reports, "report")}, which may come from fewer than ${plural(state.survey.cohort.least, "person", "people")}: no histogram is published.`;
  if (card.found === 0) return "No value with this text.";
  if (card.frequencies.every((x) => x === null)) return card.reports ? "There is no estimate from these counts." : `${capital(silence(card.complete))}.`;
  return card.too_few ? TOO_FEW : null;
}

// A card with a link to the page of an attribute, and a line of words.
function linked(text, to, words, go) {
  const link = element("a", text, { href: to });
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  });
  return element("section", [element("h2", link), element("p", words.filter(Boolean).flatMap((word, i) => (i ? [" · ", word] : word)), { class: "hint" })], { class: "card" });
}

const incomplete = () => element("span", "incomplete", { class: "late" });

// The card of an attribute: its numbers, and its largest values.
function cardOf(card, go) {
  const info = state.survey.attributes.find(({ name }) => name === card.attribute);
  const values = info.k - (info.choices ?? 0); // without the numbers of answers
  const why = nothing(card);
  const made = linked(card.attribute, address(undefined, card.attribute, state.find && card.found < info.k ? state.find : ""),
    [card.reports && `at least ${plural(card.people_at_least, "person", "people")}`, info.choices && `up to ${plural(info.choices, "answer")}`, card.span !== state.span && "one step", !card.complete && card.reports && incomplete()], go);
  if (why !== null) made.append(element("p", why));
  if (why !== null) return made;
  const change = state.against === null ? "Change" : "Difference";
  const numbers = Object.keys(NUMBERS).filter((name) => card.numbers[name]);
  const text = (x, signed) => (x ? within(x.value, x.low, x.high, signed) : "");
  if (numbers.length) {
    made.append(tableOf(["Number", "", "Estimate", change], numbers.map((name) => rowOf(info.choices ? "mean number" : NUMBERS[name], element("td"), text(card.numbers[name]), text(card.number_differences[name], true)))));
  }
  const rows = card.values.map((_, i) => i).filter((i) => card.values[i] < values);
  const most = Math.max(...rows.map((i) => Math.max(card.frequencies[i], card.high[i] ?? 0)));
  made.append(tableOf(["Value", "", "Share", `${change}, points`], rows.map((i) => rowOf(card.labels[i], bar(card.frequencies[i], card.low[i], card.high[i], most),
    shareText(card.frequencies[i], card.low[i], card.high[i]), changeText(card.differences[i], card.difference_low[i], card.difference_high[i]), card.clear[i]))));
  const rest = Math.min(card.found, values) - rows.length;
  const others = card.others === null || card.found < info.k ? "" : `, ${percent(card.others)} together`;
  if (rest > 0) made.append(element("p", `and ${plural(rest, "other value")}${others}`, { class: "hint" }));
  if (card.interval_withheld) made.append(element("p", "No intervals: this estimate may be biased.", { class: "late" }));
  return made;
}

// The card of the people who use the application, in the last step of the answer u and in the step before.
function peopleCard(u, go) {
  const { attributes } = state.survey;
  const { name } = attributes.find(({ recipe }) => recipe?.measure === "age") ?? attributes.find(({ recipe }) => recipe);
  const [last, before] = [u.steps.length - 1, u.steps.length - 2];
  const made = linked("People", address(undefined, name, ""), [aboutPeople(u), !u.complete[last] && incomplete()], go);
  const at = (i) => (u.steps[i] === undefined ? "–" : period(u.start_ms[i], u.end_ms[i]));
  const text = ({ values, low, high }, i) => (u.steps[i] === undefined ? "–" : within(values[i], low[i], high[i]));
  made.append(tableOf(["People", "", at(last), at(before)], linesOf(u).map((line) => rowOf(line.label, curve(line), text(line, last), text(line, before)))));
  if (u.retention.length) made.append(retention(u, 6, 4));
  made.classList.add("people");
  return made;
}

// Draws the answer o, and the answer about people, if there is one. go(address) shows another view of the page.
export function drawOverview(o, people, go) {
  $("sentences").replaceChildren(...o.sentences.map(({ lead, text }) => element("p", [element("strong", `${lead}: `), isolated(text)])));
  $("cards").replaceChildren(...(people && !state.find.trim() ? [peopleCard(people, go)] : []), ...o.attributes.map((card) => cardOf(card, go)));
  $("change-since").textContent = state.against !== null ? "difference" : o.before_step === null ? "change" : `change since ${period(o.before_start_ms, o.before_end_ms)}`;
  const words = state.find.trim();
  $("found").textContent = words ? `${plural(o.attributes.length, "attribute")} with “${words}”` : "";
  const large = state.survey.attributes.length > 6 || state.survey.attributes.some(({ k }) => k > FEW);
  $("search-tools").hidden = !large && !words;
  const query = overviewPath().split("?")[1];
  for (const [id, file] of [["overview-csv", "overview.csv"], ["overview-json", "overview"], ["changes-csv", "changes.csv"]]) $(id).href = `api/v1/${file}?${query}`;
}
