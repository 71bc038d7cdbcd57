/** A page that asks one question and sends a report a day. */

import { Device, fetchSurvey, IndexedDBStore, Sender } from "../build/ldpstream-device.js";

/* People agreed to one survey, with this pin and this largest privacy loss. The store has a fixed name: if the survey were
 * renamed, the device would refuse it, and not enroll with a fresh budget. */
const pin = document.querySelector('meta[name="ldpstream-survey"]').content;
const MAX_EPS = 2; // nats
const gateway = { url: document.querySelector('meta[name="ldpstream-gateway"]').content };
const find = (id) => document.getElementById(id);

function tell(text) {
  find("status").textContent = text;
}

function fail(error) {
  tell("");
  find("error").textContent = `This does not work at the moment: ${error.message}.`;
  find("error").hidden = false;
}

/** Shows a row for each chance of a right guess: an upper bound that follows from a privacy loss of eps nats.
 * The device has checked the survey's losses. */
function showChances({ k, levels: [{ losses }] }) {
  const chance = (eps) => Math.exp(eps) / (Math.exp(eps) + k - 1);
  const rows = [
    ["without a report", "", 1 / k],
    ["after one report", "at most ", chance(losses.eps1)],
    ["after all reports, if your answer stays the same", "at most ", chance(losses.epsInf)],
  ];
  for (const [when, limit, share] of rows) {
    const row = document.createElement("li");
    const [text, number, bar] = ["span", "strong", "div"].map((tag) => row.appendChild(document.createElement(tag)));
    text.textContent = `The guess is right ${when}`;
    number.textContent = `${limit}${Math.ceil(100 * share)} in 100`;
    bar.className = "bar";
    bar.style.setProperty("--share", `${100 * share}%`);
    find("chances").querySelector("ul").append(row);
  }
  find("chances").hidden = false;
}

function showQuestion({ name, values }) {
  for (const value of values) {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name, value, required: true });
    label.append(input, value);
    find("values").append(label);
  }
  find("question").hidden = false;
}

async function start() {
  const survey = await fetchSurvey(gateway, pin);
  const device = await Device.open(survey, new IndexedDBStore("way-to-work"), { maxEps: MAX_EPS });
  const sender = new Sender(device, gateway);
  sender.sendAtPageEnd();
  const [question] = survey.attributes;
  showQuestion(question);
  showChances(question);
  find("asks").textContent = device.question();
  await showJournal(device);
  tell("");

  find("stop").addEventListener("click", () => stop(device).catch(fail));

  find("question").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = new FormData(event.target).get(question.name);
    event.target.querySelector("button").disabled = true;
    report(device, sender, question, value).catch(fail);
  });
}

/** The text above the button says that pressing it means consent. */
async function report(device, sender, question, value) {
  await device.giveConsent();
  const envelope = await device.report(question.name, value);
  find("reported").textContent = `“${question.values[envelope.at(-1)]}”`; // with GRR, the last byte is the reported value
  find("sent").hidden = false;
  tell("Sending the report. If you leave now, your device sends it at your next visit.");
  await sender.run();
  await showJournal(device);
  tell("The service has today’s report. Another report today would be the same one.");
}

/** Shows what left this device, and lets the person stop. */
async function showJournal(device) {
  const lines = (await device.journal()).map(({ atMs, step, how, envelope }) => {
    const row = document.createElement("li");
    row.textContent = `${new Date(atMs).toISOString().slice(0, 16)}: day ${step}, ${how}, ${envelope.length} bytes`;
    return row;
  });
  find("journal").replaceChildren(...lines);
  find("left").hidden = lines.length === 0;
}

async function stop(device) {
  await device.withdrawConsent();
  find("sent").hidden = true;
  await showJournal(device);
  tell("You have stopped. This device has erased your answers and sends nothing more.");
}

start()
  .catch(fail)
  .finally(() => (document.documentElement.dataset.ready = "yes"));
