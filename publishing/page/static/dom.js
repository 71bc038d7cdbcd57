// Small helpers: elements, numbers as text, requests to the API of this host.

export const $ = (id) => document.getElementById(id);

export function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export const percent = (x, digits = 2) => (x === null ? "–" : `${(100 * x).toFixed(digits)} %`.replace("-", "−"));
export const grouped = (x) => x.toLocaleString("en");
export const capital = (text) => text[0].toUpperCase() + text.slice(1);
export const plural = (n, one, many = `${one}s`) => `${grouped(n)} ${n === 1 ? one : many}`;

export const TOO_FEW = "Too few reports to tell which values are more frequent.";

// The reason why there is no estimate. While records wait in the log, there may be reports that no agent has counted.
export const silence = (complete) => (complete ? "nobody reported" : "no report counts so far");

// Privacy loss as text, rounded up. Large numbers have fewer digits.
export function nats(x) {
  if (x === null) return "∞ nats";
  const digits = x >= 1e4 ? 3 : 4;
  let up = Number(x.toPrecision(digits));
  if (up < x * (1 - 1e-12)) up = Number((up + 10 ** (Math.floor(Math.log10(x)) + 1 - digits)).toPrecision(digits));
  const text = x >= 1e4 ? up.toLocaleString("en") : up.toString();
  return `${text} nat${text === "1" ? "" : "s"}`;
}

// Chance as text: two significant digits below 10 %, never "100.0 %" for a chance below 1.
export function chance(x) {
  if (x < 1 && x > 0.9995) return "> 99.9 %";
  return percent(x, x < 0.1 ? Math.max(1, 1 - Math.floor(Math.log10(100 * x))) : 1);
}

// An upper bound of a chance, rounded up. Differences below 5e-6 of the last digit are rounding errors.
export function bound(x) {
  const scale = 10 ** (x < 0.1 ? Math.max(1, 1 - Math.floor(Math.log10(100 * x))) : 1);
  return chance(Math.min(1, Math.ceil(Number((100 * x * scale).toFixed(5))) / scale / 100));
}

// A chance of a right guess; an upper bound is marked and rounded up.
export function guess(chances, key) {
  return chances.bounds.includes(key) ? `at most ${bound(chances[key])}` : chance(chances[key]);
}

// Difference of two shares in percentage points, with its sign. A small reference size has more decimals.
export function points(x, size = x) {
  const digits = size ? Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(100 * Math.abs(size))))) : 1;
  return `${x > 0 ? "+" : x < 0 ? "−" : ""}${Math.abs(100 * x).toFixed(digits)}`;
}

const answers = new Map(); // the API's answers since the last publication, by path
let forgotten = 0; // number of calls of `forget`

export async function get(path) {
  if (answers.has(path)) return answers.get(path);
  const begun = forgotten;
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" }); // the status has the server's time
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail), { status: answer.status });
  if (begun !== forgotten) return body; // requested before the publication, so not kept
  if (answers.size >= 64) answers.delete(answers.keys().next().value);
  answers.set(path, body);
  return body;
}

// Forgets the answers, after a publication.
export function forget() {
  forgotten += 1;
  answers.clear();
}

export function table(box, head, rows) {
  const first = element("tr");
  first.append(...head);
  const [top, body] = [element("thead"), element("tbody")];
  top.append(first);
  body.append(...rows);
  box.replaceChildren(top, body);
}
