/** The store of a browser, on an IndexedDB in memory. Real browsers: tests/devices. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import "fake-indexeddb/auto";
import { Activity, Device, DeviceError, IndexedDBStore, StoreCleared, StoreFull, StoreHeld } from "../src/index.js";
import { BITS, HASHED, LONG, ONCE, survey } from "./fixtures.js";

let name = 0;
const fresh = () => `study ${name++}`;

test("objects with one database are one device", async () => {
  for (const level of [LONG, BITS, HASHED, ONCE]) {
    const asked = await survey([{ k: 20, levels: [level] }], { lateness_steps: 30 });
    const database = fresh();
    const devices = await Promise.all([0, 1, 2].map(() => Device.open(asked, new IndexedDBStore(database), { consent: "simulated" })));
    const lives = await Promise.all(
      devices.map(async (device) => {
        const sent: unknown[] = [];
        for (let step = 0; step < 20; step++) sent.push(await device.report("q0", step % 5, step));
        return sent;
      }),
    );
    assert.deepEqual(lives[1], lives[0]);
    assert.deepEqual(lives[2], lives[0]);
    assert.equal((await devices[0]!.spent("q0")).reports, 20);
    assert.equal((await devices[1]!.waiting()).length, 20);
  }
});

test("there is no database before the first record, and an absent IndexedDB is a DeviceError", async () => {
  const [database, other] = [fresh(), fresh()];
  const made = async () => (await indexedDB.databases()).map(({ name }) => name).filter((name) => [database, other].includes(name!));
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const device = await Device.open(asked, new IndexedDBStore(database));
  await device.preview({ q0: 1 });
  await new Activity(new IndexedDBStore(other)).forget();
  assert.deepEqual(await made(), []);
  await device.withdrawConsent();
  assert.deepEqual(await made(), [database]);
  const kept = globalThis.indexedDB;
  delete (globalThis as { indexedDB?: unknown }).indexedDB;
  await assert.rejects(Device.open(asked, new IndexedDBStore(database)), (error) => error instanceof DeviceError && /no IndexedDB/.test(error.message));
  globalThis.indexedDB = kept;
});

test("a failure inside a transaction changes nothing", async () => {
  const store = new IndexedDBStore(fresh());
  const broken = store.transaction(async (records) => {
    records.put("a", 1);
    await records.get("a");
    throw new RangeError("no");
  });
  await assert.rejects(broken, RangeError);
  assert.equal(await store.transaction((records) => records.get("a")), undefined);
});

test("a full storage is StoreFull, and makes no report", async (context) => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const device = await Device.open(asked, new IndexedDBStore(fresh()), { consent: "simulated" });
  const full = context.mock.method(IDBObjectStore.prototype, "put", () => {
    throw new DOMException("", "QuotaExceededError");
  });
  await assert.rejects(device.report("q0", 1, 0), StoreFull);
  full.mock.restore();
  assert.deepEqual(await device.waiting(), []);
  assert.equal((await device.spent("q0")).reports, 0);
});

test("a transaction that never begins is StoreHeld, and writes nothing later", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const database = fresh();
  const device = await Device.open(asked, new IndexedDBStore(database, 50), { consent: "simulated" });
  let held = true;
  let begin = () => {};
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const other = new IndexedDBStore(database).transaction(async (records) => {
    for (; held; begin()) {
      await records.get("device"); // a transaction lasts as long as it has requests
      context.mock.timers.tick(50);
    }
  });
  await begun;
  await assert.rejects(device.report("q0", 1, 0), StoreHeld);
  held = false;
  await other;
  assert.equal((await device.spent("q0")).reports, 0);
});

test("a deleted database is StoreCleared, and a missing IndexedDB a DeviceError", async () => {
  const asked = await survey([{ k: 5, levels: [LONG] }]);
  const database = fresh();
  const device = await Device.open(asked, new IndexedDBStore(database), { consent: "simulated" });
  await device.report("q0", 1, 0);
  await new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(database); // an open device does not block this
    request.onsuccess = resolve;
    request.onerror = request.onblocked = reject;
  });
  await assert.rejects(device.report("q0", 1, 1), StoreCleared);
  const kept = globalThis.indexedDB;
  globalThis.indexedDB = new IDBFactory();
  globalThis.indexedDB.open = () => {
    throw new DOMException("", "SecurityError");
  };
  await assert.rejects(Device.open(asked, new IndexedDBStore(fresh()), { consent: "simulated" }), (error) => error instanceof DeviceError && /SecurityError/.test(error.message));
  globalThis.indexedDB = kept;
});
