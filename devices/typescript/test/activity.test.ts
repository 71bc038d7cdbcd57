/** The activity log and its recipes. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DeviceError, Device, MemoryStore, openSurvey, UnknownSurvey } from "../src/index.js";
import { Activity, FileStore, StoreFull, type Store } from "../src/node.js";
import { DAY_MS } from "../src/survey.js";
import { valueIndex } from "../src/values.js";
import { Disk } from "./disk.js";

const cases: any[] = JSON.parse(readFileSync(new URL("../../../vectors/recipes.json", import.meta.url), "utf8"));

const DAY = 20_500;
const simulated = (store: Store, clock = () => DAY * DAY_MS) => new Activity(store, { consent: "simulated", clock });

/** The device survey with one change of the canonical text, and the fingerprint of the changed text. */
function changed(document: any, from: string, to: string): any {
  const canonical = document.canonical.replaceAll(from, to);
  assert.notEqual(canonical, document.canonical);
  return { ...document, canonical, fingerprint: createHash("sha256").update(canonical).digest("hex").slice(0, 16) };
}

test("recipes: a history of use gives the values of the vectors", async () => {
  assert.ok(cases.length >= 14);
  for (const { history, survey: document, calls, steps } of cases) {
    const survey = await openSurvey(document);
    let now = 0;
    const activity = simulated(new MemoryStore(), () => now);
    for (const [ms, event, seconds] of calls) {
      now = ms;
      if (seconds !== null) await activity.took(event, { seconds });
      else if (event) await activity.used(event);
      else await activity.seen();
    }
    for (const { step, indices } of steps) {
      const values = await activity.values(survey, step);
      const found = Object.entries(values).map(([name, value]) => [name, valueIndex(survey.attributes.find((a) => a.name === name)!, value)]);
      assert.deepEqual(Object.fromEntries(found), indices, `${history}, step ${step}`);
    }
  }
});

test("recipes: an unknown measure or key, and steps of other lengths, are refused in one line", async () => {
  const [{ survey }] = cases;
  for (const [from, to, word] of [
    ["days_without", "phase_of_the_moon", /does not know the measure "phase_of_the_moon"/],
    ['"days":28', '"weeks":4', /does not know the key "weeks"/],
    ['"step_seconds":604800', '"step_seconds":604801', /whole days/],
    ['"days":10', '"days":6', /at least a step/],
    ['"format":7', '"format":6', /format 6, this device needs format 7/],
  ] as const) {
    await assert.rejects(openSurvey(changed(survey, from, to)), (error: Error) => error instanceof UnknownSurvey && word.test(error.message) && !error.message.includes("\n"));
  }
});

test("activity: a device answers only at steps with use, and gives no value of its own for a recipe", async () => {
  const survey = await openSurvey(cases[0].survey);
  let now = survey.startMs + DAY_MS;
  const [activity, device] = [simulated(new MemoryStore(), () => now), await Device.open(survey, new MemoryStore(), { consent: "simulated", clock: () => now })];
  assert.deepEqual(await activity.answer(device), {});
  await activity.used("export");
  assert.equal(Object.keys(await activity.answer(device)).length, survey.attributes.length);
  assert.deepEqual(new Set((await device.waiting()).map(({ step }) => step)), new Set([0]));
  await assert.rejects(activity.answer(device, { age: 0 }), RangeError);
  now += 7 * DAY_MS;
  assert.deepEqual(await activity.answer(device), {});
  await activity.forget();
  assert.deepEqual(await activity.values(survey, 0), {});
});

test("activity: two processes count together; a newer version's log is refused and stays", async () => {
  const folder = mkdtempSync(join(tmpdir(), "activity-"));
  const [one, other] = [new FileStore(join(folder, "log")), new FileStore(join(folder, "log"))];
  await Promise.all(Array.from({ length: 20 }, (_, i) => simulated(i % 2 ? one : other).used("export")));
  const counted = await one.transaction((records) => records.get("activity"));
  assert.deepEqual(counted, { format: 1, days: { 20500: { export: [20, 0] } } });
  for (const record of [{ format: 2, days: {} }, "damaged", null, { format: 1, days: 3 }]) {
    await one.transaction(async (records) => records.put("activity", record));
    const before = JSON.stringify(await one.transaction((records) => records.get("activity")));
    await assert.rejects(simulated(other).seen(), DeviceError);
    assert.equal(JSON.stringify(await one.transaction((records) => records.get("activity"))), before);
  }
});

test("activity: each switch turns a log off, also one that is open", async () => {
  const names = ["CI", "DO_NOT_TRACK"];
  const before = names.map((name) => process.env[name]);
  try {
    for (const name of names) {
      for (const other of names) delete process.env[other];
      const folder = join(mkdtempSync(join(tmpdir(), "activity-")), "log");
      const [store, open] = [new MemoryStore(), new Activity(new FileStore(folder))];
      const log = new Activity(store);
      await log.used("export");
      const recorded = await store.transaction((records) => records.get("activity"));
      process.env[name] = "1";
      for (const activity of [log, new Activity(store), open]) await activity.used("export");
      assert.deepEqual(await store.transaction((records) => records.get("activity")), recorded);
      assert.ok(recorded && !existsSync(folder));
      await simulated(store).used("export");
      assert.notDeepEqual(await store.transaction((records) => records.get("activity")), recorded);
    }
  } finally {
    names.forEach((name, i) => (before[i] === undefined ? delete process.env[name] : (process.env[name] = before[i])));
  }
});

test("activity: a full, read-only or damaged folder is an error in one line, and the log stays", async () => {
  const disk = new Disk();
  const read = () => new FileStore("/log", disk.process()).transaction((records) => records.get("activity"));
  await simulated(new FileStore("/log", disk.process())).used("export");
  const before = await read();
  for (const [code, kind] of [["ENOSPC", StoreFull], ["EROFS", DeviceError]] as const) {
    const files = disk.process((operation) => {
      if (operation === "open") throw Object.assign(new Error(code), { code });
    });
    await assert.rejects(simulated(new FileStore("/log", files)).used("export"), (error: Error) => error instanceof kind && !error.message.includes("\n"));
    assert.deepEqual(await read(), before);
  }
  await disk.process().truncate("/log/state.1");
  for (let i = 0; i < 2; i++) await assert.rejects(simulated(new FileStore("/log", disk.process())).used("export"), /damaged/);
});

test("activity: names and durations are checked", async () => {
  const activity = simulated(new MemoryStore());
  for (const name of ["", "a b", "é", "x".repeat(65)]) await assert.rejects(activity.used(name), RangeError);
  for (const seconds of [-1, NaN, Infinity, 1e7]) await assert.rejects(activity.took("build", { seconds }), { name: "RangeError", message: "seconds must be a number in [0, 1000000]" });
  for (let i = 0; i < 100; i++) await activity.used(`event${i}`);
  await assert.rejects(activity.used("one-more"), RangeError);
  await activity.seen();
  await activity.used("event7");
});
