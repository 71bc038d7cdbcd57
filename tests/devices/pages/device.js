/** The page of the browser tests: a device in IndexedDB, and the functions that the tests call. */

import * as library from "/build/ldpstream-device.js";
import { kept } from "./kept.js";

const { Device, IndexedDBStore, openSurvey, Sender } = library;
const ATTRIBUTE = "zone";
const NAME = "store";
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const named = (error) => Object.keys(library).find((name) => library[name] === error.constructor) ?? error.constructor.name;
const failure = (error) => ({ error: named(error), message: error.message });

/** Opens the device. `kind` is "indexeddb", or "meeting" for a `MeetingStore`. */
window.open_device = async (document, kind = "indexeddb", options = {}) => {
  const store = new IndexedDBStore(NAME);
  try {
    window.device = await Device.open(await openSurvey(document), kind === "meeting" ? new MeetingStore(store) : store, { consent: "simulated", ...options });
    return null;
  } catch (error) {
    return failure(error);
  }
};

/** Makes the report of a step: [envelope, key], or the error. */
window.report = async (value, step) => {
  try {
    const envelope = hex(await device.report(ATTRIBUTE, value, step));
    const kept = device.known().find((report) => report.step === step);
    return [envelope, kept?.key ?? null];
  } catch (error) {
    return failure(error);
  }
};

/** Makes reports of 2000 steps, one after the other, or until the page ends. Each report leaves the device
 * before the next one is made. */
window.report_on = async (first, values) => {
  for (let step = first; step < first + 2000; step++) {
    const made = await report(values[step % values.length], step);
    await fetch(`/left/${step}`, { method: "POST", body: JSON.stringify(made), keepalive: true });
  }
};

/** Returns all records of the store whose keys begin with `memo/`. */
window.memos = async () => Object.fromEntries(Object.entries((await kept())[NAME] ?? {}).filter(([key]) => key.startsWith("memo/")));

window.spent = () => device.spent(ATTRIBUTE);

// ---- sending

window.waiting = async () => (await device.waiting()).map(({ step, key }) => [step, key]);

window.send = async (url) => {
  await new Sender(device, { url }).run({ pause: async () => {} });
};

window.send_at_page_end = (url) => {
  new Sender(device, { url }).sendAtPageEnd();
};

// ---- two tabs

const channel = new BroadcastChannel("tabs");

/** A store whose transactions stay open until the other tab has asked for a transaction, too. */
class MeetingStore {
  constructor(store) {
    this.store = store;
  }

  transaction(work) {
    if (!this.meets) return this.store.transaction(work);
    return this.store.transaction(async (records) => {
      let asked = false;
      channel.addEventListener("message", ({ data }) => (asked ||= data === "asked"), { once: true });
      channel.postMessage("open");
      while (!asked) await records.get("device"); // keeps the transaction open
      return work(records);
    });
  }
}

/** Reports in a transaction that is open while the other tab asks for the same step. */
window.report_first = (value, step) => {
  device.store.meets = true;
  window.result = report(value, step);
};

/** Waits until the other tab's transaction is open, then asks for the same step. */
window.report_second = (value, step) => {
  window.result = new Promise((resolve) => {
    const asked = ({ data }) => {
      if (data !== "open") return;
      channel.removeEventListener("message", asked);
      resolve(report(value, step));
      setTimeout(() => channel.postMessage("asked"), 0);
    };
    channel.addEventListener("message", asked);
  });
};
window.ready = true;
