/** The wallet: surveys are admitted by their claims, and a survey that does not fit changes nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";
import "fake-indexeddb/auto";
import {
  Device,
  DeviceError,
  FileStore,
  IndexedDBStore,
  MemoryStore,
  StepForgotten,
  StoreCleared,
  Wallet,
  WalletFull,
  WrongSurvey,
  type Store,
  type Survey,
  type WalletLimits,
} from "../src/node.js";
import { crashing, Disk, SURVIVALS, takeTurns } from "./disk.js";
import { LONG, ONCE, survey, type Level } from "./fixtures.js";

const TWICE: Level = { ...ONCE, lifetime_reports: 2 };
const START_MS = 1_767_571_200_000; // start of the surveys in `fixtures`
const FOLDER = "/wallet";
let seconds = 0;
const clock = () => START_MS + 1000 * seconds;
const open = (store: Store, limits: WalletLimits, expectEnrolled = false) => Wallet.open(store, limits, { clock, expectEnrolled });
const named = (name: string, level: Level, head: Record<string, unknown> = {}): Promise<Survey> =>
  survey([{ k: 5, levels: [level] }], { name, ...head });

test("surveys are admitted until the budget is used", async () => {
  const wallet = await open(new MemoryStore(), { forEver: 5 });
  const first = await wallet.device(await named("first", TWICE), { consent: "simulated" });
  await wallet.device(await named("second", TWICE), { consent: "simulated" });
  const before = await wallet.spent();
  await assert.rejects(wallet.device(await named("third", TWICE), { consent: "simulated" }), (error: WalletFull) => {
    assert.equal(error.message, "third asks 2 nats for ever; the wallet has 1 nat left");
    assert.ok(error instanceof WalletFull && error instanceof DeviceError);
    assert.deepEqual([error.survey, error.windowSeconds], ["third", null]);
    assert.ok(Math.abs(error.asked - 2) < 1e-9 && Math.abs(error.left - 1) < 1e-9);
    return true;
  });
  assert.deepEqual(await wallet.spent(), before);
  assert.deepEqual(before.surveys.map((row) => row.survey), ["first", "second"]);
  assert.ok(await first.report("q0", 3));
  await assert.rejects(
    wallet.device(await named("endless", LONG), { consent: "simulated" }),
    /^WalletFull: endless asks inf nats for ever: its level has no lifetime_reports and the survey has no end; the wallet has 1 nat left$/,
  );
  await wallet.device(await named("ending", ONCE, { ends: 1 }), { consent: "simulated" });
});

test("claims that add up to the budget fit despite rounding", async () => {
  const wallet = await open(new MemoryStore(), { forEver: 0.3 });
  for (const name of "abc") await wallet.device(await named(name, { ...ONCE, eps: 0.1, lifetime_reports: 1 }), { consent: "simulated" });
  await assert.rejects(wallet.device(await named("d", { ...ONCE, eps: 1e-6, lifetime_reports: 1 }), { consent: "simulated" }), WalletFull);
});

test("a window holds the reports of all steps that it touches, until no window touches the reports of a survey that was left", async () => {
  seconds = 0;
  const wallet = await open(new MemoryStore(), { perWindow: 3, windowSeconds: 120 });
  const [old, next] = [await named("old", ONCE), await named("next", ONCE)];
  const device = await wallet.device(old, { consent: "simulated" });
  for (let step = 0; step < 8; step++) await device.report("q0", 1, step);
  await wallet.leave(old.pin);
  for (seconds of [480, 599]) await assert.rejects(wallet.device(next, { consent: "simulated" }), /next asks 3 nats within 120 s; the wallet has \S+ nats left/);
  seconds = 600; // the last report is of the minute that ends at 480 s
  assert.equal((await wallet.spent()).chargedPerWindow, 0);
  assert.ok(await (await wallet.device(next, { consent: "simulated" })).report("q0", 1));
  assert.equal(Math.round((await wallet.spent()).chargedPerWindow), 3);
});

test("a survey with an end frees the window after its last step", async () => {
  seconds = 0;
  const wallet = await open(new MemoryStore(), { perWindow: 3, windowSeconds: 120, forEver: 100 });
  await wallet.device(await named("ending", ONCE, { ends: 10 }), { consent: "simulated" });
  const next = await named("next", ONCE, { ends: 20 });
  seconds = 719;
  await assert.rejects(wallet.device(next, { consent: "simulated" }), WalletFull);
  seconds = 720;
  await wallet.device(next, { consent: "simulated" });
  assert.equal(Math.round((await wallet.spent()).chargedForEver), 30);
});

test("a device reports no step before its enrolment", async () => {
  seconds = 330;
  const device = await (await open(new MemoryStore(), { perWindow: 2, windowSeconds: 60 })).device(await named("study", ONCE), { consent: "simulated" });
  await assert.rejects(device.report("q0", 1, 4), (error: StepForgotten) => error.earliest === 5);
  assert.ok(await device.report("q0", 1));
  seconds = 0;
});

for (const kind of ["memory", "IndexedDB", "folder"]) {
  test(`${kind}: leaving charges the loss so far and erases the records`, async () => {
    const disk = new Disk();
    const store = { memory: new MemoryStore(), IndexedDB: new IndexedDBStore("wallet"), folder: new FileStore(FOLDER, disk.process()) }[kind]!;
    const wallet = await open(store, { forEver: 9 });
    const [asked, kept] = [await named("study", { ...TWICE, lifetime_reports: 4 }), await named("kept", TWICE)];
    const [device, other] = [await wallet.device(asked, { consent: "simulated" }), await wallet.device(kept, { consent: "simulated" })];
    for (const each of [device, other]) await each.report("q0", 1, 0);
    const again = await (await open(store, { forEver: 9 }, true)).device(asked, { consent: "simulated", expectEnrolled: true });
    assert.deepEqual(await again.report("q0", 2, 0), await device.report("q0", 1, 0)); // the same device
    await device.forget("study");
    const [row] = (await wallet.spent()).surveys;
    assert.deepEqual([row!.left, row!.reports, Math.round(row!.forEver * 1e6) / 1e6], [true, 1, 1]);
    await assert.rejects(device.report("q0", 1, 1), StoreCleared);
    assert.equal(await store.transaction(async (records) => records.get("1/attribute/0")), undefined);
    await wallet.device(asked, { consent: "simulated" });
    await assert.rejects(device.report("q0", 1, 1), StoreCleared); // it does not answer for the new enrolment
    assert.equal((await other.waiting()).length, 1);
    assert.equal(Math.round((await wallet.spent()).chargedForEver), 7);
    await assert.rejects(wallet.leave("00"), RangeError);
  });
}

test("a survey left without a report costs nothing", async () => {
  const wallet = await open(new MemoryStore(), { forEver: 2 });
  const asked = await named("study", TWICE);
  for (let i = 0; i < 3; i++) {
    await wallet.device(asked, { consent: "simulated" });
    await wallet.leave(asked.pin);
  }
  assert.deepEqual((await wallet.spent()).surveys, []);
});

/** Gives the records of a wallet and of a device the form of an earlier version, which kept the first 16 digits of each pin. */
function shortened(record: any): any {
  const { pin, ...others } = record;
  if (pin) return { ...others, fingerprint: pin.slice(0, 16), ...("format" in record && { format: 1 }) };
  return { ...record, format: 1, surveys: record.surveys.map(shortened) };
}

for (const former of [false, true]) {
  test(`a twin with the same fingerprint is another survey${former ? ", also after the conversion of a store" : ""}`, async () => {
    const asked = await named("study", TWICE);
    const twin: Survey = { ...asked, pin: asked.pin.slice(0, 16) + "0".repeat(48) };
    const [single, store] = [new MemoryStore(), new MemoryStore()];
    const device = await Device.open(asked, single, { consent: "simulated" });
    const envelope = await device.report("q0", 1, 0);
    await (await open(store, { forEver: 9 })).device(asked, { consent: "simulated" });
    if (former) {
      for (const [each, name] of [[single, "device"], [store, "wallet"]] as const) {
        await each.transaction(async (records) => records.put(name, shortened(await records.get(name))));
      }
      assert.deepEqual(await (await Device.open(asked, single, { consent: "simulated", expectEnrolled: true })).report("q0", 2, 0), envelope);
      await (await open(store, { forEver: 9 }, true)).device(asked, { consent: "simulated", expectEnrolled: true });
    }
    await assert.rejects(Device.open(twin, single, { consent: "simulated" }), WrongSurvey);
    const wallet = await open(store, { forEver: 9 });
    await assert.rejects(wallet.device(twin, { consent: "simulated", expectEnrolled: true }), StoreCleared);
    assert.deepEqual((await wallet.spent()).surveys.map(({ pin }) => pin), [asked.pin]);
  });
}

test("the limits are checked and permanent, and a wallet is not a device", async () => {
  for (const limits of [{}, { perWindow: 1 }, { windowSeconds: 1, forEver: 1 }, { forEver: 0 }, { forEver: NaN }, { perWindow: 1, windowSeconds: 1.5 }]) {
    await assert.rejects(open(new MemoryStore(), limits), RangeError);
  }
  const store = new MemoryStore();
  await assert.rejects(open(store, { forEver: 2 }, true), StoreCleared);
  const wallet = await open(store, { perWindow: 9, windowSeconds: 60, forEver: 2 });
  const asked = await named("study", TWICE);
  await assert.rejects(wallet.device(asked, { consent: "simulated", expectEnrolled: true }), StoreCleared);
  await wallet.device(asked, { consent: "simulated" });
  await assert.rejects(open(store, { forEver: 2 }), /permanently 9 nats within 60 s and 2 nats for ever, got 2 nats for ever/);
  await assert.rejects(Device.open(asked, store, { consent: "simulated" }), /is a wallet/);
  const single = new MemoryStore();
  await Device.open(asked, single, { consent: "simulated" });
  await assert.rejects(open(single, { forEver: 2 }), /single device/);
  await store.transaction(async (records) => records.remove(""));
  await assert.rejects(wallet.spent(), StoreCleared);
  await assert.rejects(wallet.device(asked, { consent: "simulated" }), StoreCleared);
});

/** Joins two surveys, leaves one of them, joins a third, and is refused. */
async function live(files: any, released: Map<string, string>): Promise<void> {
  const wallet = await open(new FileStore(FOLDER, files), { forEver: 5.5 });
  const report = async (device: Device, name: string, step: number) => {
    released.set(`${name} ${step}`, String(await device.report("q0", 2, step)));
  };
  await report(await wallet.device(await named("a", TWICE), { consent: "simulated" }), "a", 1);
  const device = await wallet.device(await named("b", TWICE), { consent: "simulated" });
  await report(device, "b", 1);
  await device.forget("b");
  await wallet.device(await named("c", TWICE), { consent: "simulated" });
  await assert.rejects(wallet.device(await named("b", TWICE), { consent: "simulated" }), WalletFull);
}

test("a crash between any two operations keeps the accounts and the reports", async () => {
  const states = new Set<string>();
  for (const survival of SURVIVALS) {
    let n = 0;
    for (let ended = false; !ended; n++) {
      const disk = new Disk();
      const released = new Map<string, string>();
      await live(crashing(disk, n), released).then(
        () => (ended = true),
        (error: Error) => assert.match(error.message, /CRASH/),
      );
      const wallet = await open(new FileStore(FOLDER, disk.after(survival).process()), { forEver: 5.5 });
      const { surveys } = await wallet.spent();
      states.add(surveys.map((row) => `${row.survey} ${row.left} ${row.reports}`).join());
      for (const row of surveys) assert.equal(Math.round(row.forEver), row.left ? row.reports : 2);
      for (const [report, envelope] of released) {
        const row = surveys.find(({ survey: name }) => name === report[0])!;
        assert.ok(row.reports >= 1);
        if (row.left) continue;
        const device = await wallet.device(await named(row.survey, TWICE), { consent: "simulated", expectEnrolled: true });
        assert.equal(String(await device.report("q0", 4, 1)), envelope);
      }
    }
  }
  assert.deepEqual([...states].sort(), [
    "",
    "a false 0",
    "a false 1",
    "a false 1,b false 0",
    "a false 1,b false 1",
    "a false 1,b true 1",
    "a false 1,b true 1,c false 0",
  ]);
});

test("processes that take turns at random operations share one budget", async (context) => {
  const asked = await Promise.all(["a", "b", "c"].map((name) => named(name, TWICE)));
  for (let seed = 1; seed <= 20; seed++) {
    const disk = new Disk();
    const all = await takeTurns(context, disk, seed, async (files, i) => {
      const wallet = await open(new FileStore(FOLDER, files), { forEver: 5 });
      const sent = new Map<string, string>();
      for (const one of [0, 1, 2].map((j) => asked[(i + j) % 3]!)) {
        try {
          sent.set(one.name, String(await (await wallet.device(one, { consent: "simulated" })).report("q0", i, 1)));
        } catch (error) {
          if (!(error instanceof WalletFull)) throw error;
        }
      }
      return sent;
    });
    const sorted = all.map((sent) => [...sent].sort());
    assert.equal(sorted[0]!.length, 2);
    for (const sent of sorted) assert.deepEqual(sent, sorted[0]);
    const { chargedForEver, surveys } = await (await open(new FileStore(FOLDER, disk.process() as any), { forEver: 5 })).spent();
    assert.deepEqual([Math.round(chargedForEver), surveys.map(({ reports }) => reports)], [4, [1, 1]]);
  }
});
