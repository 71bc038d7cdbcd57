// The start page: one row for each survey. It asks the API every five seconds.
import { $, element, grouped, nats, plural } from "./dom.js";

const EVERY_MS = 5000;
const MOST_ALERTS = 3; // warnings shown of one survey
const TEXTS = {
  late: "the next estimate is overdue",
  silent: "no report of the latest step has been counted",
  fit: "the counts do not fit the mechanism",
  incomplete: "reports may be missing",
  levels: "the levels differ",
  jump: "a share jumped",
  other: "a value that is not listed may spread",
  drift: "a share moved in the latest step",
};
let drawn = "";

try { // the theme that was chosen on the page of a survey
  const theme = localStorage.getItem("theme");
  if (["light", "dark"].includes(theme)) document.documentElement.dataset.theme = theme;
} catch { /* without storage: the system's theme */ }

function row(survey) {
  const name = [element("a", survey.title ?? survey.name, { href: survey.path })];
  if (survey.title !== null) name.push(" ", element("span", survey.name, { class: "name" }));
  const when = element("td", "no estimate yet");
  let numbers = ["", "", "", ""];
  if (survey.end_ms !== null) {
    const ended = new Date(survey.end_ms).toISOString().slice(0, 19).replace("T", " ");
    when.replaceChildren(`${ended} UTC `, element("span", `step ${survey.latest_step}`, { class: "name" }));
    numbers = [grouped(survey.reports), grouped(survey.people_at_least), nats(survey.eps_t), nats(survey.eps_sequence)];
  }
  const texts = survey.alerts.map(({ kind, attribute }) => `${attribute === null ? "" : `${attribute}: `}${TEXTS[kind]}`);
  const more = texts.length > MOST_ALERTS ? [`${texts.length - MOST_ALERTS} more`] : [];
  const warnings = [...texts.slice(0, MOST_ALERTS), ...more].map((text) => element("span", text, { class: "warning" }));
  return element("tr", [element("th", name, { scope: "row" }), when, ...numbers.map((number) => element("td", number, { class: "number" })), element("td", warnings)]);
}

// Replaces the sentence and the rows. The scrolled region stays, and so does the focus.
function draw(surveys) {
  const link = document.activeElement.closest("#surveys a")?.getAttribute("href");
  $("about").textContent = `${plural(surveys.length, "survey")}, ${surveys.filter((survey) => survey.alerts.length).length} with warnings.`;
  document.querySelector("#surveys tbody").replaceChildren(...surveys.map(row));
  if (link) [...document.querySelectorAll("#surveys a")].find((a) => a.getAttribute("href") === link)?.focus({ preventScroll: true });
}

async function refresh() {
  let lost = true;
  try {
    const answer = await fetch("/api/v1/surveys", { headers: { Accept: "application/json" } });
    const text = await answer.text();
    if (answer.ok && text !== drawn) draw(JSON.parse(text).surveys);
    if (answer.ok) [drawn, lost] = [text, false];
  } catch { /* the next attempt follows */ }
  $("lost").textContent = lost ? "The service does not answer; retrying." : "";
  setTimeout(refresh, EVERY_MS);
}

refresh();
