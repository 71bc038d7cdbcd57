/** Counts the use of the page: asks for consent, shows what would leave and what left, and reports once a week.
 *
 * Before the person agrees, it keeps nothing and sends nothing. A fault of it is none of the page. */

import { Activity, Device, IndexedDBStore, LOCAL, MemoryStore, openSurvey, Sender, stepAt, switchedOff } from "../build/ldpstream-device.js";

const gateway = { url: document.querySelector('meta[name="ldpstream-gateway"]').content };
const local = location.search === "?local"; // runs everything, and sends nothing
const find = (id) => document.getElementById(id);
const opened = open();

async function open() {
  const survey = await openSurvey(await (await fetch("survey.json")).json());
  const device = await Device.open(survey, new IndexedDBStore("words usage")); // a fixed name: a renamed survey gets no fresh budget
  const sender = new Sender(device, local ? LOCAL : gateway);
  sender.sendAtPageEnd();
  find("terms").open = (await device.toAsk()).length > 0;
  return { survey, device, sender, activity: new Activity(new IndexedDBStore("words activity")) };
}

/** Records a use, such as `(activity) => activity.used("export")`, if the person takes part. The first use in a week makes a report. */
export function count(use) {
  return safely(async ({ device, sender, activity }) => {
    if ((await device.consent()) === "given") await use(activity);
    if ((await device.consent()) !== "given") return activity.forget(); // another tab withdrew meanwhile, or a page closed before it erased
    await activity.answer(device);
    await sender.attempt();
  });
}

find("agree").addEventListener("click", () =>
  safely(async ({ device }) => {
    await device.giveConsent();
    find("terms").open = false;
    await count((activity) => activity.seen());
  }),
);

find("stop").addEventListener("click", () =>
  safely(async ({ device, activity }) => {
    await device.withdrawConsent();
    await activity.forget();
  }),
);

async function safely(work) {
  try {
    const parts = await opened;
    try {
      await work(parts);
    } finally {
      await show(parts); // after a fault, too: people can always stop
    }
  } catch (error) {
    find("state").textContent = `This page does not count its use: ${error.message}.`;
  }
  document.documentElement.dataset.ready = "yes";
}

async function show({ survey, device, activity }) {
  const off = switchedOff();
  const consent = await device.consent();
  const given = consent === "given";
  find("agree").hidden = off || given;
  find("stop").hidden = consent === "withdrawn" || (off && !given);
  find("stop").textContent = given ? "Stop taking part" : "Do not take part";
  find("terms").hidden = find("leaving").hidden = off;
  find("asks").replaceChildren(...device.question().split("\n").map((line) => written("p", line)));

  const left = (await device.journal()).map((report) => {
    const bytes = Array.from(report.envelope, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return written("li", `${new Date(report.atMs).toISOString().slice(0, 10)}, ${report.attribute}, ${report.how}: ${bytes}`);
  });
  find("journal").replaceChildren(...left);
  find("left").hidden = left.length === 0;

  const log = given ? activity : new Activity(new MemoryStore());
  if (!given) await log.seen(); // the preview of somebody who agrees now
  const step = Math.max(0, stepAt(survey, Date.now()));
  const previews = await device.preview(await log.values(survey, step), step);
  find("preview").textContent = previews.map(({ text }) => text).join("\n\n");

  const waits = (await device.waiting()).length > 0 ? " A report waits: it leaves at your next use." : "";
  const states = {
    unknown: "May this page count its use? Before you agree, it keeps nothing about you, and sends nothing.",
    given: `You take part: the first use in a week makes one report.${waits}${local ? " In local mode, nothing is sent." : ""}`,
    withdrawn: "You do not take part. This page keeps nothing but this answer, and sends nothing.",
  };
  const kept = given ? " Stop taking part to erase what it kept." : "";
  find("state").textContent = off ? `${off} is on, so this page does not count its use.${kept}` : states[consent];
}

function written(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}
