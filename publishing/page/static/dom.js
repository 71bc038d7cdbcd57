// Small helpers: elements, numbers as text, requests to the API of this host.

export const $ = (id) => document.getElementById(id);

// content: a text, an element, or a list of both.
export function element(tag, content = [], attributes = {}) {
  const made = document.createElement(tag);
  made.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A text in an isolate, so that a right-to-left text does not reorder the numbers beside it.
export const isolated = (text) => element("bdi", text);

// The decimals of a number whose interval has this width, as in the sentences of the API.
const decimals = (width) => (width >= 2 || width === 0 ? 0 : Math.min(9, Math.ceil(-Math.log10(Math.max(width, 1e-9) / 2))));
// A share in per cent, with the decimals that its interval warrants; without an interval one, below 1 % two.
export const percent = (x, low = null, high = null) => (x === null ? "–" : `${withSign(100 * x, low === null ? (Math.abs(x) < 0.00995 && Math.abs(x) >= 0.00005 ? 2 : 1) : decimals(100 * (high - low))).replace("+", "")} %`);
// The ends of an interval of shares: "22 to 29 %".
export const range = (low, high) => `${percent(low, low, high).slice(0, -2)} to ${percent(high, low, high)}`;
export const grouped = (x) => x.toLocaleString("en");
export const capital = (text) => text[0].toUpperCase() + text.slice(1);
export const plural = (n, one, many = `${one}s`) => `${grouped(n)} ${n === 1 ? one : many}`;

export const TOO_FEW = "Too few reports to tell these values apart.";

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

// Chance as text: two significant digits below 10 %.
export const chance = (x) => `${(100 * x).toFixed(x < 0.1 ? Math.max(1, 1 - Math.floor(Math.log10(100 * x))) : 1)} %`;

// An upper bound of a chance, rounded up. Differences below 5e-6 of the last digit are rounding errors.
export function bound(x) {
  const scale = 10 ** (x < 0.1 ? Math.max(1, 1 - Math.floor(Math.log10(100 * x))) : 1);
  return chance(Math.min(1, Math.ceil(Number((100 * x * scale).toFixed(5))) / scale / 100));
}

// A chance of a right guess; an upper bound is marked and rounded up. Nearly 100 % is no limit.
export function guess(chances, key) {
  if (chances[key] > 0.9995) return "no useful limit";
  return chances.bounds.includes(key) ? `at most ${bound(chances[key])}` : chance(chances[key]);
}

export const withSign = (x, digits) => (Number(x.toFixed(digits)) === 0 ? (0).toFixed(digits) : `${x > 0 ? "+" : "−"}${Math.abs(x).toFixed(digits)}`);

// Difference of two shares in percentage points, with its sign. A small reference size has more decimals.
export const points = (x, size = x) => withSign(100 * x, size ? Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(100 * Math.abs(size))))) : 1);

// Number in the attribute's unit, with four digits.
export const number = (x) => (x === null ? "–" : Number(x.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 10 }).replace("-", "−"));
// A number or a difference with the interval [low, high], such as "13 (6 to 23)", with the decimals that the interval warrants.
export function within(x, low, high, signed = false) {
  if (x === null || low === null) return signed ? withSign(x, 1) : number(x);
  const known = decimals(signed && low * high > 0 ? Math.min(high - low, 4 * Math.abs(low), 4 * Math.abs(high)) : high - low);
  const digits = Math.max(known, [low, high].some((end) => Math.abs(end % 1) === 0.5) ? 1 : 0); // an end between two whole numbers
  const write = (end) => {
    const shown = Number(end.toFixed(digits));
    return `${shown < 0 ? "−" : signed && shown > 0 ? "+" : ""}${Math.abs(shown).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
  };
  return low === high ? write(x) : `${write(x)} (${write(low)} to ${write(high)})`;
}

const answers = new Map(); // the API's answers since the last publication, as promises, by path

export const tags = new Map(); // the ETag of the last answer, by path

async function load(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" }); // the status has the server's time
  tags.set(path, answer.headers.get("ETag"));
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail), { status: answer.status });
  return body;
}

export function get(path) {
  if (!answers.has(path)) {
    if (answers.size >= 64) answers.delete(answers.keys().next().value);
    const answer = load(path);
    answers.set(path, answer);
    answer.catch(() => { if (answers.get(path) === answer) answers.delete(path); });
  }
  return answers.get(path);
}

// Forgets the answers, after a publication.
export function forget() {
  answers.clear();
}

export const table = (box, head, rows) => box.replaceChildren(element("thead", element("tr", head)), element("tbody", rows));

// A cell with a number and the ends of its interval, such as "+4.5 (−1.2 to +10.3)"; bold if clear.
export function numberCell(text, clear = false) {
  const [shown, ...ends] = text.split(" (");
  return element("td", [element(clear ? "strong" : "span", shown), ...ends.flatMap((end) => [" ", element("span", `(${end}`, { class: "ends" })]),
    clear ? element("span", ", clear", { class: "sr" }) : ""], { class: "number" });
}

// A cell with a share and its interval. Its colour grows with the share, up to that of the share `strongest`.
export function shaded(share, low, high, strongest) {
  const made = element("td", [percent(share, low, high), low === null ? "" : element("span", range(low, high).slice(0, -2), { class: "ends" })], { class: "number shaded" });
  const part = Math.max(0, Math.min(1, share / strongest)) || 0;
  made.style.background = `color-mix(in srgb, var(--accent) ${Math.round(45 * part)}%, var(--card))`; // the text stays readable in both themes
  return made;
}

// A button that shows the explanation with the id `why-…` of `index.html`, a popover of the browser.
export const explained = (text, why) => element("button", text, { type: "button", class: "why", popovertarget: `why-${why}` });

// The head of a column, with an explanation.
export const heading = (text, why, kind = "") => element("th", explained(text, why), { scope: "col", class: kind });

// Draws. If a button with the keyboard's focus is drawn again, the button at the same place of the same box gets the focus.
export function keepFocus(draw) {
  const focused = document.activeElement;
  const box = focused?.matches("button") ? focused.parentElement.closest("[id]") : null;
  const place = box ? [...box.querySelectorAll("button")].indexOf(focused) : -1;
  draw();
  if (box && !focused.isConnected) box.querySelectorAll("button")[place]?.focus({ preventScroll: true });
}
