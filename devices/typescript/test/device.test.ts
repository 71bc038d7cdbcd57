/** The device's guarantees: one memo for each key, one report for each step, no value in a message. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { ClockWentBack, CostlySurvey, Device, DeviceError, MemoryStore, StepForgotten, StoreCleared, WrongSurvey } from "../src/index.js";
import { memoKey } from "../src/mechanisms.js";
import { BITS, HASHED, LONG, ONCE, row, seeded, SETS, SPACED, survey, type Level } from "./fixtures.js";

const SUBSET: Level = { mechanism: "SS", eps: 1, omega: 7 };

for (const level of [LONG, BITS, HASHED, ONCE, SUBSET]) {
  test(`${level.mechanism}: a step has one report, also after a restart`, async () => {
    const asked = await survey([{ k: 20, levels: [level] }]);
    const store = new MemoryStore();
    const device = await Device.open(asked, store, { consent: "simulated" });
    const sent = new Map<number, Uint8Array | null>();
    for (const step of [0, 1, 7]) sent.set(step, await device.report("q0", 3, step));
    assert.equal(new Set([...sent.values()].map(String)).size, 3);
    for (const again of [device, await Device.open(asked, store, { consent: "simulated" })]) {
      for (const step of [1, 7]) assert.deepEqual(await again.report("q0", 3, step), sent.get(step));
      assert.deepEqual(await again.report("q0", 4, 7), sent.get(7)); // the first value of a step decides
      assert.deepEqual(
        (await again.waiting()).map(({ step, envelope }) => [step, envelope]),
        [0, 1, 7].map((step) => [step, sent.get(step)]),
      );
    }
    assert.equal((await device.spent("q0")).reports, 3);
  });
}

test("a device answers several attributes, and derives the value of their pair", async () => {
  const levels: Level[] = [{ mechanism: "GRR", eps: 45 }]; // with a third of it, a report is almost always the value
  const domains = [[3, { values: ["a", "b", "c"] }], [4, { size: 4 }], [12, { pair: ["q0", "q1"] }]] as const;
  const asked = await survey(domains.map(([k, domain]) => ({ k, domain, levels })), { collection: "spl" });
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated", random: seeded("pair") });
  const made = await device.answer({ q1: 3, q0: "c" }, 5);
  assert.deepEqual(Object.entries(made).map(([name, envelope]) => [name, envelope.at(-1)]), [["q0", 2], ["q1", 3], ["q2", 11]]);
  assert.deepEqual(await device.answer({ q0: "a", q1: 0 }, 5), made);
  assert.deepEqual(await device.report("q2", ["a", 0], 5), made["q2"]);
  assert.deepEqual(Object.keys(await device.answer({ q1: 3 }, 6)), ["q1"]); // without q0 there is no pair
  assert.equal((await device.spent("q2")).reports, 1);
  for (const wrong of [{ q0: "a", q2: "x" }, { q0: "secret", q1: 3 }, { q0: "a", q1: 4 }, { other: 1 }]) {
    await assert.rejects(device.answer(wrong, 7), (error: Error) => error instanceof RangeError && !error.message.includes("secret"));
  }
  assert.deepEqual(Object.keys(await device.answer({ q0: "a", q1: 1 }, 7)), ["q0", "q1", "q2"]); // nothing was reported before
});

test("a device keeps one memo for each set, whatever the order of its values", async () => {
  const asked = await survey([{ k: 5, domain: { values: ["a", "b", "c"], choices: 2 }, levels: [SETS] }]);
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated" });
  for (const [step, values] of [["a", "c"], ["c", "a"], [2, 0]].entries()) await device.answer({ q0: values }, step);
  assert.equal((await device.spent("q0")).memos, 1);
  await device.answer({ q0: [] }, 3);
  assert.equal((await device.spent("q0")).memos, 2);
  for (const wrong of [["a", "a"], ["a", "b", "c"], ["secret"]]) {
    await assert.rejects(device.answer({ q0: wrong }, 4), (error: Error) => error instanceof RangeError && !error.message.includes("secret"));
  }
});

test("a step before the latest settled ones is refused", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }], { lateness_steps: 2 });
  let now = asked.startMs;
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated", clock: () => now });
  for (let step = 0; step < 10; step++) {
    await device.report("q0", 1, step);
    await device.settle((await device.waiting())[0]!);
  }
  assert.ok(await device.report("q0", 1, 6));
  await assert.rejects(device.report("q0", 1, 5), (error: StepForgotten) => {
    assert.equal(error.name, "StepForgotten");
    assert.deepEqual([error.attribute, error.step, error.earliest], ["q0", 5, 10]);
    return true;
  });
  now = asked.startMs + 2 * asked.stepMs;
  await assert.rejects(device.report("q0", 1), ClockWentBack);
  now = asked.startMs + 10 * asked.stepMs;
  assert.ok(await device.report("q0", 1));
  assert.equal((await device.spent("q0")).reports, 11);
});

test("a clock that ran ahead for long does not stop the device", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated" });
  const kept = asked.latenessSteps + 26;
  for (let step = 0; step < 40; step++) await device.report("q0", 1, 1e9 + step);
  const steps = async () => (await device.waiting()).map(({ step }) => step);
  assert.deepEqual(await steps(), Array.from({ length: kept }, (_, i) => 1e9 + 40 - kept + i));
  for (let step = 5; step < 20; step++) {
    assert.ok(await device.report("q0", 1, step));
    const [report] = await device.waiting();
    assert.equal(report!.step, step); // a charged report is kept to be sent
    await device.settle(report!);
  }
  assert.deepEqual(await steps(), Array.from({ length: kept - 1 }, (_, i) => 1e9 + 40 - kept + i)); // the farthest is dropped
  for (const dropped of [1e9, 1e9 + 39]) await assert.rejects(device.report("q0", 1, dropped), StepForgotten);
  assert.equal((await device.spent("q0")).reports, 55);
});

test("a key stays with its envelope until the report is settled", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const store = new MemoryStore();
  const device = await Device.open(asked, store, { consent: "simulated" });
  for (let step = 0; step < 3; step++) await device.report("q0", 1, step);
  const waiting = await device.waiting();
  assert.equal(new Set(waiting.map(({ key }) => key)).size, 3);
  for (const { key } of waiting) assert.match(key, /^[A-Za-z0-9_-]{22}$/);
  await device.settle(waiting[1]!);
  await device.settle(waiting[1]!);
  const left = [waiting[0], waiting[2]];
  assert.deepEqual(await device.waiting(), left);
  assert.deepEqual(device.known(), left);
  assert.deepEqual(await (await Device.open(asked, store, { consent: "simulated" })).waiting(), left);
  assert.deepEqual(await device.report("q0", 4, 1), waiting[1]!.envelope); // settled, and still the step's only report
});

test("a memo is drawn once for each value, or each hashed symbol", async () => {
  for (const [level, numbers] of [[LONG, [5]], [HASHED, [1, 2, 4]]] as const) {
    const asked = await survey([{ k: 5, levels: [level] }]);
    const m = asked.attributes[0]!.levels[0]!.mechanism;
    const seen = new Set<number>();
    for (let seed = 0; seed < 40; seed++) {
      const device = await Device.open(asked, new MemoryStore(), { consent: "simulated", random: seeded(`memos ${seed}`) });
      const [hashFunction] = row(await device.report("q0", 0, 0));
      for (let step = 1; step < 50; step++) await device.report("q0", step % 5, step);
      const { reports, memos, epsT } = await device.spent("q0");
      const keys = new Set([0, 1, 2, 3, 4].map((value) => memoKey(m, value, hashFunction!)));
      assert.deepEqual([reports, memos, epsT === null], [50, keys.size, keys.size > 1]);
      seen.add(memos);
    }
    assert.deepEqual([...seen].sort(), numbers); // one of the 16 hash functions gives all values one symbol
  }
});

test("a hashed device never changes its function", async () => {
  const device = await Device.open(await survey([{ k: 200, levels: [HASHED] }]), new MemoryStore(), { consent: "simulated" });
  const functions = new Set<number>();
  for (let step = 0; step < 30; step++) functions.add(row(await device.report("q0", step, step))[0]!);
  assert.equal(functions.size, 1);
});

test("a device reports at the steps of its phase until its limit", async () => {
  const device = await Device.open(await survey([{ k: 5, levels: [SPACED] }]), new MemoryStore(), { consent: "simulated" });
  const made: number[] = [];
  const silent = new Set<unknown>();
  for (let step = 0; step < 40; step++) {
    const why = await device.silence("q0", step);
    silent.add(why);
    const envelope = await device.report("q0", 1, step);
    assert.equal(envelope === null, why !== null);
    if (envelope) made.push(step);
    assert.equal(why === "other phase", step % 4 !== (made[0] ?? -1) % 4);
  }
  assert.deepEqual([...silent].sort(), ["lifetime reports made", "other phase", null].sort());
  assert.equal(await device.silence("q0", made[2]), null); // the stored envelope
  await assert.rejects(device.silence("q0", -1), RangeError);
  assert.deepEqual(made, [0, 4, 8].map((step) => made[0]! + step));
  assert.ok(made[0]! < 4);
  assert.ok(await device.report("q0", 2, made[2])); // the stored envelope, at no further cost
  const { reports, memos, epsT } = await device.spent("q0");
  assert.deepEqual([reports, memos, Math.abs(epsT! - 3) < 1e-9], [3, 0, true]);
});

test("smp answers one attribute, spl all, rs+fd all with a permanent fake value", async () => {
  const questions = [LONG, LONG, LONG].map((level) => ({ k: 3, levels: [level] }));
  const answered = async (collection: string) => {
    const asked = await survey(questions, { collection });
    const device = await Device.open(asked, new MemoryStore(), { consent: "simulated" });
    for (const { name } of asked.attributes) {
      for (let step = 0; step < 20; step++) await device.report(name, step % 3, step);
    }
    return Promise.all(asked.attributes.map(({ name }) => device.spent(name)));
  };
  assert.deepEqual((await answered("smp")).map(({ reports }) => reports).sort(), [0, 0, 20]);
  const ended = await Device.open(await survey(questions, { ends: 5 }), new MemoryStore(), { consent: "simulated" });
  const why = await Promise.all(["q0", "q1", "q2"].map((name) => ended.silence(name, 4)));
  assert.deepEqual(why.filter((one) => one !== null), ["other attribute", "other attribute"]);
  assert.equal(await ended.silence(`q${why.indexOf(null)}`, 5), "survey ended");
  const early = await Device.open(await survey([{ k: 3, levels: [LONG] }]), new MemoryStore(), { consent: "simulated", clock: () => 0 });
  assert.deepEqual([await early.silence("q0"), await early.report("q0", 1), await early.answer({ q0: 1 })], ["survey not begun", null, {}]);
  assert.match((await early.preview({ q0: 1 }))[0]!.text, /nothing leaves \(survey not begun\)/);
  assert.deepEqual((await answered("spl")).map(({ memos }) => memos), [3, 3, 3]);
  assert.deepEqual((await answered("rs+fd")).map(({ memos }) => memos).sort(), [1, 1, 3]);
});

test("the store keeps the survey and the levels", async () => {
  const asked = await survey([{ k: 5, levels: [LONG, ONCE] }]);
  const store = new MemoryStore();
  const device = await Device.open(asked, store, { consent: "simulated", levels: { q0: "b" } });
  await device.report("q0", 1, 0);
  assert.equal((await (await Device.open(asked, store, { consent: "simulated" })).spent("q0")).epsT?.toFixed(9), "1.000000000");
  await assert.rejects(Device.open(asked, store, { consent: "simulated", levels: { q0: "a" } }), /permanently b, got a/);
  await assert.rejects(Device.open(asked, store, { consent: "simulated", levels: { q0: "c" } }), RangeError);
  await assert.rejects(Device.open(asked, store, { consent: "simulated", levels: { q9: "a" } }), RangeError);
  const other = await survey([{ k: 6, levels: [LONG, ONCE] }]);
  await assert.rejects(Device.open(other, store, { consent: "simulated" }), WrongSurvey);
});

test("a cleared store is noticed, and forget needs the survey's name", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const store = new MemoryStore();
  await assert.rejects(Device.open(asked, store, { consent: "simulated", expectEnrolled: true }), StoreCleared);
  const device = await Device.open(asked, store, { consent: "simulated" });
  await Device.open(asked, store, { consent: "simulated", expectEnrolled: true });
  await assert.rejects(device.forget("yes"), RangeError);
  await device.report("q0", 1, 0);
  await device.forget("study");
  assert.deepEqual(device.known(), []);
  await assert.rejects(device.report("q0", 1, 1), StoreCleared);
  await Device.open(asked, store, { consent: "simulated" });
  await assert.rejects(device.waiting(), StoreCleared); // the object belongs to the erased enrolment
});

test("no message contains a value", async () => {
  const secret = "a very private answer";
  const asked = await survey([
    { k: 2, domain: { values: ["yes", "no"] }, levels: [ONCE] },
    { k: 2, domain: { bins: [0, 1, 2] }, levels: [ONCE] },
    { k: 9, levels: [ONCE] },
    { k: 9, levels: [LONG] },
  ], { collection: "spl" });
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated" });
  for (const [attribute, value] of [["q0", secret], ["q0", 73571], ["q1", -73571], ["q1", NaN], ["q2", 73571.5], ["q2", secret]] as const) {
    await assert.rejects(device.report(attribute, value, 0), (error: Error) => {
      assert.ok(error instanceof RangeError);
      assert.doesNotMatch(`${error.stack}`, /private|73571|NaN/);
      return true;
    });
  }
  for (const step of [-1, 0.5, NaN, 2 ** 53]) await assert.rejects(device.report("q0", "yes", step), RangeError);
  await assert.rejects(device.report("q7", "yes", 0), RangeError);
  const store = new MemoryStore();
  const memos = await Device.open(asked, store, { consent: "simulated" });
  await memos.report("q3", 7, 0);
  for (const shown of [memos, store]) assert.doesNotMatch(inspect(shown, { depth: 9 }), /memo\/3\/7/);
});

test("a damaged record is an error, never a new memo", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const store = new MemoryStore();
  const device = await Device.open(asked, store, { consent: "simulated" });
  await device.report("q0", 1, 0);
  await store.transaction(async (records) => records.put("memo/0/1", "_w"));
  await assert.rejects(device.report("q0", 1, 1), DeviceError);
  assert.equal((await device.spent("q0")).reports, 1);
});

const COHORT = { cohort: { name: "version", values: ["1.0", "1.1"], least: 10 } };

test("the cohort is before the row, may change between steps, and changes neither a memo nor a stored envelope", async () => {
  const [asked, store] = [await survey([{ k: 5, levels: [BITS] }], COHORT), new MemoryStore()];
  const [old, updated] = [await Device.open(asked, store, { consent: "simulated", cohort: "1.0" }), await Device.open(asked, store, { consent: "simulated", cohort: "1.1" })];
  const first = await old.report("q0", 3, 0);
  assert.deepEqual(await updated.report("q0", 3, 0), first);
  const second = await updated.report("q0", 3, 1);
  for (const [envelope, cohort] of [[first!, 0], [second!, 1]] as const) {
    assert.equal(envelope[0], 0x98);
    assert.deepEqual([...envelope.slice(15, 18)], [1, cohort, 0xc4]); // n, the cohort, a binary
  }
  assert.equal((await updated.spent("q0")).memos, 1);
});

test("a cohort that the survey does not have is refused, and nothing is stored", async () => {
  const [asked, plain, store] = [await survey([{ k: 5, levels: [ONCE] }], COHORT), await survey([{ k: 5, levels: [ONCE] }]), new MemoryStore()];
  const allowed = /^the cohort \(version\) must be one of 1\.0, 1\.1, got /;
  for (const cohort of ["1.2", "", "constructor"]) {
    await assert.rejects(Device.open(asked, store, { consent: "simulated", cohort }), { name: "RangeError", message: allowed });
  }
  await assert.rejects(Device.open(asked, store, { consent: "simulated" }), { name: "RangeError", message: allowed });
  await assert.rejects(Device.open(plain, store, { consent: "simulated", cohort: "1.0" }), { name: "RangeError", message: 'survey study has no cohort, got "1.0"' });
  await Device.open(plain, store, { consent: "simulated" }); // the store is still empty
});

test("a survey that may cost more than maxEps is refused, and enrolls nothing", async () => {
  const dear: Level = { ...LONG, eps_inf: 8, eps_1: 4 };
  const spaced: Level = { mechanism: "GRR", eps: 0.5, every_steps: 2, lifetime_reports: 9 };
  const once: Level = { mechanism: "GRR", eps: 0.5 };
  const cheap: Level = { ...LONG, eps_inf: 2, eps_1: 1 };
  const cases: [Level[], Record<string, unknown>, Record<string, string>, number, number][] = [
    [[cheap], {}, {}, 1, 2], [[cheap, dear], {}, {}, 1, 2], [[cheap, dear], {}, { q0: "b" }, 1, 8],
    [[spaced], {}, {}, 1, 4.5], [[spaced], { ends: 6 }, {}, 1, 1.5], [[once], {}, {}, 1, Infinity], [[once], { ends: 10 }, {}, 1, 5],
    [[cheap], { collection: "spl" }, {}, 3, 2], [[once], { ends: 10, collection: "spl" }, {}, 3, 5], [[cheap], {}, {}, 3, 2],
  ]; // prettier-ignore
  for (const [levels, keys, chosen, n, loss] of cases) {
    const asked = await survey(Array.from({ length: n }, () => ({ k: 6, levels })), keys);
    const store = new MemoryStore();
    const less = loss === Infinity ? 1e6 : loss - 1e-6;
    const dearer = (error: Error) => error instanceof CostlySurvey && Math.abs(error.asked - loss) < 1e-9 !== (loss === Infinity);
    await assert.rejects(Device.open(asked, store, { consent: "simulated", levels: chosen, maxEps: less }), dearer);
    await assert.rejects(Device.open(asked, store, { consent: "simulated", levels: chosen, expectEnrolled: true }), StoreCleared);
    if (loss === Infinity) continue;
    await Device.open(asked, store, { consent: "simulated", levels: chosen, maxEps: loss });
    await assert.rejects(Device.open(asked, store, { consent: "simulated", maxEps: less }), dearer); // the store has the levels
    await assert.rejects(Device.open(asked, store, { consent: "simulated", maxEps: NaN }), CostlySurvey);
  }
});
