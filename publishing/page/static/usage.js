// The people who use an application: their numbers in each step, and how many came back.
import { element, numberCell, plural, shaded, table, within } from "./dom.js";
import { state } from "./state.js";
import { opens, period, periodName } from "./times.js";

const DAY = 86400; // seconds
const SVG = "http://www.w3.org/2000/svg";

const per = (seconds) => (/^\d/.test(periodName(seconds)) ? `in ${periodName(seconds)}` : `a ${periodName(seconds)}`);

// The numbers of the answer u, from the shortest time to the longest: each with a label such as "a week".
export function linesOf(u) {
  const step = state.survey.step_seconds;
  const lines = [[step > DAY && u.a_day, DAY], [u.people, step], [u.in_steps, step * u.in_many]];
  return lines.filter(([line]) => line).map(([line, seconds]) => ({ ...line, label: per(seconds) }));
}

// Whose numbers these are, as words.
export function aboutPeople(u) {
  const least = u.at_least ? ", or more: devices that made all their reports are missing" : "";
  return `who used the application and reported it${state.cohort === null ? "" : `, of every ${state.survey.cohort.name}`}${least}`;
}

// A cell with the curve of a number and its interval, from zero to the largest number.
export function curve({ values, low, high }) {
  const picture = document.createElementNS(SVG, "svg");
  const y = (x) => (20 - (20 * x) / Math.max(1, ...high)).toFixed(2);
  const known = values.map((_, i) => i).filter((i) => low[i] !== null);
  const paths = { range: known.map((i) => `M${i + 0.5} ${y(low[i])}V${y(high[i])}`), line: known.map((i) => `${(low[i - 1] ?? null) === null ? `M${i} ` : "V"}${y(values[i])}H${i + 1}`) };
  for (const [name, value] of [["viewBox", `0 0 ${values.length} 20`], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]]) picture.setAttribute(name, value);
  for (const [name, parts] of Object.entries(paths)) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", parts.join(""));
    picture.append(path);
  }
  return element("td", picture);
}

// The retention triangle as a table: the shares of the last `rows` groups of new people who came back after 1, 2, … steps, at most `most`.
export function retention(u, rows = Infinity, most = Infinity) {
  const [made, unit] = [element("table", "", { class: "back" }), periodName(state.survey.step_seconds)];
  const groups = u.retention.slice(-rows);
  const n = Math.min(most, groups[0].shares.values.length);
  const strongest = Math.max(...groups.flatMap(({ shares }) => shares.values));
  const cell = ({ values, low, high }, i) => (low[i] > 0 || high[i] < 1 ? shaded(values[i], low[i], high[i], strongest) : shaded(null, null)); // 0 to 100 % says nothing
  const after = (i) => (/^\d/.test(unit) ? `${i} × ${unit}` : plural(i, unit));
  const heads = [`First ${unit}`, "New people", ...Array.from({ length: n }, (_, i) => after(i + 1))];
  table(made, heads.map((text, i) => element("th", text, { scope: "col", class: i ? "number" : "" })), groups.map(({ step, people, low, high, shares }) =>
    element("tr", [element("th", period(opens(step), opens(step + 1)), { scope: "row" }), numberCell(within(people, low, high)),
      ...Array.from({ length: n }, (_, i) => (step + i < u.steps.at(-1) ? cell(shares, i) : element("td")))])));
  made.prepend(element("caption", `Who came back: of the new people of a ${unit}, the share that came again after so long, with 95 % intervals. “–”: too few people to tell.`));
  return made;
}
