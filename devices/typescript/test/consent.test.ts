/** Consent: without it nothing is drawn, stored or sent, and a withdrawal leaves nothing but itself. Random lives are compared with a model. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, test } from "node:test";
import { Consents, operator, switchedOff } from "../src/consent.js";
import { Device, LOCAL, MemoryStore, openSurvey, Sender, StepForgotten, StoreFull, Wallet, WalletFull, type ConsentMode, type GatewayOptions, type Store, type Transaction } from "../src/index.js";
import { systemBytes } from "../src/random.js";
import { document, LONG, ONCE, seeded } from "./fixtures.js";

const QUESTIONS = [{ k: 3, levels: [LONG] }, { k: 5, levels: [ONCE] }];
const HEAD = { collection: "spl", lateness_steps: 60, ends: 60 };
const WORDS = { retention_steps: 1000, purpose: "Plan bus lines.", owner: "City" };
const asked = (words: object = WORDS, head: object = {}) => openSurvey({ ...document(QUESTIONS, { ...HEAD, ...head }), words });
const SURVEY = await asked();
const VALUES = { q0: 1, q1: 3 };
const folder = mkdtempSync(join(tmpdir(), "consent-"));

beforeEach(() => {
  operator.file = join(folder, "off");
  rmSync(operator.file, { force: true });
  for (const name of ["CI", "DO_NOT_TRACK"]) delete process.env[name];
});

/** A gateway that accepts all reports. `during` runs while a report is on its way. */
function gateway(during: () => unknown = () => undefined): GatewayOptions & { got: number } {
  const made = {
    url: "https://gateway.example",
    got: 0,
    fetch: (async () => {
      await during();
      made.got += 1;
      return Response.json({ accepted: 1 }, { status: 202 });
    }) as typeof fetch,
  };
  return made;
}

async function dump(store: Store): Promise<string> {
  return store.transaction(async (records) => JSON.stringify([...(records as unknown as { entries: Map<string, unknown> }).entries]));
}

const give = async (device: Device) => {
  await device.giveConsent();
  await device.answer(VALUES, 1);
};
const STATES: Record<string, (device: Device) => Promise<unknown>> = {
  unknown: async () => undefined,
  refused: (device) => device.withdrawConsent(),
  withdrawn: async (device) => {
    await give(device);
    await device.withdrawConsent();
  },
  "switched off": async (device) => {
    await give(device);
    process.env["DO_NOT_TRACK"] = "1";
  },
};
const SILENT: Record<string, (device: Device) => Promise<unknown>> = {
  answer: async (device) => assert.deepEqual(await device.answer(VALUES, 2), {}),
  report: async (device) => assert.equal(await device.report("q0", 1, 2), null),
  waiting: async (device) => assert.deepEqual([await device.waiting(), device.known()], [[], []]),
  settle: (device) => device.settle({ attribute: "q0", step: 1, envelope: new Uint8Array(), key: "", dueMs: 0 }),
  attempt: async (device) => assert.deepEqual((await new Sender(device, gateway()).attempt()).accepted, 0),
  lastAttempt: async (device) => {
    const to = gateway();
    new Sender(device, to).lastAttempt();
    assert.equal(to.got, 0);
  },
  preview: async (device) => assert.equal((await device.preview(VALUES, 2))[0]!.silence, await device.silence("q0", 2)),
  spent: (device) => device.spent("q0"),
  question: async (device) => assert.match(device.question(), /Purpose: Plan bus lines\.\nAsked by: City/),
  toAsk: async (device) => assert.equal((await device.toAsk()).length, (await device.silence("q0")) === "consent unknown" ? 2 : 0),
  journal: async (device) => assert.deepEqual(await device.journal(), []),
};

for (const [state, prepare] of Object.entries(STATES)) {
  for (const [operation, run] of Object.entries(SILENT)) {
    test(`${state}: ${operation} draws, keeps and sends nothing`, async () => {
      let drawn = 0;
      const store = new MemoryStore();
      const random = (n: number) => {
        drawn += n;
        return systemBytes(n);
      };
      const device = await Device.open(SURVEY, store, { random });
      await prepare(device);
      const [before, bytes] = [await dump(store), drawn];
      assert.equal(before === "[]", state === "unknown");
      await run(device);
      assert.equal(await dump(store), before);
      assert.ok(drawn === bytes || operation === "preview");
    });
  }
}

test("a withdrawal keeps nothing but itself, also of the other tabs' reports", async () => {
  const store = new MemoryStore();
  const [device, other] = [await Device.open(SURVEY, store), await Device.open(SURVEY, store)];
  await give(device);
  assert.equal((await other.waiting()).length, 2);
  await device.withdrawConsent();
  assert.deepEqual([await other.consent(), await other.silence("q0")], ["withdrawn", "consent withdrawn"]);
  const withdrawn = { state: "withdrawn" };
  assert.equal(await dump(store), JSON.stringify([["consent", { q0: withdrawn, q1: withdrawn }], ["device", { format: 3, pin: SURVEY.pin, id: null }]]));
  await give(device);
  assert.equal((await other.waiting()).length, 2);
});

test("a withdrawal ends sending while a report is on its way", async () => {
  const store = new MemoryStore();
  const [device, other] = [await Device.open(SURVEY, store), await Device.open(SURVEY, store)];
  await give(device);
  await device.answer(VALUES, 2);
  const to = gateway(() => other.withdrawConsent());
  const { accepted, waiting } = await new Sender(device, to).attempt();
  assert.deepEqual([accepted, waiting, to.got, await device.journal()], [1, 0, 1, []]);
});

test("a store that cannot be written sends nothing after a withdrawal", async () => {
  let full = false;
  const store = new MemoryStore();
  const failing: Store = { transaction: (work) => (full ? store.transaction(work).then(() => Promise.reject(new StoreFull("full"))) : store.transaction(work)) };
  const limited: Store = { transaction: (work) => failing.transaction((records: Transaction) => work(full ? { ...records, get: (key) => records.get(key), put: () => undefined, remove: () => undefined } : records)) };
  const device = await Device.open(SURVEY, limited);
  await give(device);
  full = true;
  await assert.rejects(device.withdrawConsent(), StoreFull);
  full = false;
  assert.deepEqual([await device.silence("q0"), await device.waiting(), device.known()], ["consent withdrawn", [], []]);
});

test("worse terms of the same survey ask again", async () => {
  for (const [words, ask] of [[{ ...WORDS, retention_steps: 10 }, 0], [{ ...WORDS, contact: "c" }, 0], [{ ...WORDS, retention_steps: 2000 }, 2], [{ ...WORDS, purpose: "Ads." }, 2], [{ ...WORDS, owner: "Ads Inc." }, 2]] as const) {
    const store = new MemoryStore();
    await give(await Device.open(SURVEY, store));
    const later = await Device.open(await asked(words), store);
    assert.deepEqual([(await later.toAsk()).length, (await later.waiting()).length], [ask, 2 - ask]);
    await later.giveConsent();
    assert.equal((await later.waiting()).length, 2);
  }
});

test("each switch turns everything off, but for simulations", async () => {
  for (const [name, value, off] of [["DO_NOT_TRACK", "1", true], ["DO_NOT_TRACK", "0", false], ["CI", "true", true], ["CI", "", false]] as const) {
    process.env[name] = value;
    for (const consent of ["asked", "given"] as ConsentMode[]) {
      const device = await Device.open(SURVEY, new MemoryStore(), { consent });
      await device.giveConsent();
      assert.equal((await device.silence("q0", 1)) === "switched off", off);
      assert.equal((await device.report("q0", 1, 1)) === null, off);
    }
    assert.ok(await (await Device.open(SURVEY, new MemoryStore(), { consent: "simulated" })).report("q0", 1, 1));
    delete process.env[name];
  }
  const device = await Device.open(SURVEY, new MemoryStore(), { consent: "given" });
  writeFileSync(operator.file, "");
  assert.deepEqual([switchedOff(), await device.silence("q0", 1)], [operator.file, "switched off"]);
  rmSync(operator.file);
  for (const signal of [{ globalPrivacyControl: true }, { doNotTrack: "1" }]) {
    Object.defineProperty(globalThis, "navigator", { value: signal, configurable: true });
    assert.ok(switchedOff());
  }
  Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
  assert.equal(switchedOff(), null);
});

test("a wallet charges only with consent", async () => {
  const store = new MemoryStore();
  const wallet = await Wallet.open(store, { forEver: 500 }, { clock: () => SURVEY.startMs });
  const device = await wallet.device(SURVEY);
  assert.deepEqual((await wallet.spent()).surveys, []);
  assert.equal(await store.transaction((records) => records.get("wallet")), undefined);
  await give(device);
  await assert.rejects(wallet.device(await asked(WORDS, { name: "second", ends: 50_000 })), WalletFull);
  await device.withdrawConsent();
  assert.equal((await wallet.spent()).surveys[0]!.left, true);
  assert.equal(await (await wallet.device(SURVEY)).silence("q0"), "consent withdrawn");
  await wallet.device(SURVEY).then((again) => again.giveConsent());
  assert.ok(await device.report("q0", 1, 2));
});

test("a preview shows the bytes and their meaning, the local mode sends nothing, and the journal keeps it", async () => {
  const store = new MemoryStore();
  const device = await Device.open(SURVEY, store, { clock: () => 0 });
  assert.deepEqual((await device.preview(VALUES, 1)).map(({ silence, example }) => [silence, example]), [["consent unknown", true], ["consent unknown", true]]);
  await give(device);
  const before = await dump(store);
  for (const { envelope, text, example } of await device.preview(VALUES, 1)) {
    assert.equal(example, false);
    assert.equal([...text.matchAll(/^([0-9a-f]{2,})  /gm)].map(([, hex]) => hex).join(""), Buffer.from(envelope!).toString("hex"));
  }
  assert.equal(await dump(store), before);
  assert.equal((await new Sender(device, LOCAL).attempt()).accepted, 2);
  assert.deepEqual((await device.journal()).map(({ how, atMs }) => [how, atMs]), [["local", 0], ["local", 0]]);
});

/** One life of two devices on a store, compared with the model. */
async function live(seed: string): Promise<void> {
  const [random, store] = [seeded(seed), new MemoryStore()];
  const draw = (n: number) => random(1)[0]! % n;
  const devices = [await Device.open(SURVEY, store), await Device.open(SURVEY, store)];
  let states: Record<string, string> = { q0: "unknown", q1: "unknown" };
  let [waiting, reported, gone, left] = [new Set<string>(), new Set<string>(), new Set<string>(), [] as string[]];
  let off = false;
  const allowed = (one: string) => !off && states[one.slice(0, 2)] === "given";
  for (let turn = 0; turn < 30; turn++) {
    const device = devices[draw(2)]!;
    const names = [[], ["q0"], ["q1"]][draw(3)]!;
    const all = names.length ? names : ["q0", "q1"];
    switch (["give", "withdraw", "report", "report", "report", "send", "switch"][draw(7)]) {
      case "give":
        await device.giveConsent(...names);
        if (!off) for (const name of all) states[name] = "given";
        break;
      case "withdraw": {
        await device.withdrawConsent(...names);
        for (const name of all) states[name] = "withdrawn";
        const every = Object.values(states).every((state) => state === "withdrawn");
        const dropped = [...reported].filter((one) => all.includes(one.slice(0, 2)));
        for (const one of dropped) waiting.delete(one);
        left = every ? [] : left.filter((one) => !all.includes(one.slice(0, 2)));
        gone = every ? new Set() : new Set([...gone, ...dropped]);
        if (every) reported = new Set();
        break;
      }
      case "report": {
        const [name, step] = [`q${draw(2)}`, draw(4)];
        const one = `${name} ${step}`;
        if (allowed(one) && gone.has(one)) {
          await assert.rejects(device.report(name, 1, step), StepForgotten);
          break;
        }
        assert.equal((await device.report(name, 1, step)) !== null, allowed(one), one);
        if (allowed(one) && !reported.has(one)) waiting.add(one);
        if (allowed(one)) reported.add(one);
        break;
      }
      case "send": {
        const [to, leaving] = [gateway(), [...waiting].filter(allowed)];
        assert.equal((await new Sender(device, to).attempt()).accepted, leaving.length);
        assert.equal(to.got, leaving.length);
        for (const one of leaving) waiting.delete(one);
        left.push(...leaving);
        break;
      }
      default:
        off = !off;
        if (off) writeFileSync(operator.file, "");
        else rmSync(operator.file);
    }
    for (const one of devices) {
      for (const name of ["q0", "q1"]) assert.equal(await one.consent(name), states[name]);
      assert.deepEqual(new Set((await one.waiting()).map(({ attribute, step }) => `${attribute} ${step}`)), new Set([...waiting].filter(allowed)));
      assert.deepEqual((await one.journal()).map(({ attribute, step }) => `${attribute} ${step}`).sort(), [...left].sort());
    }
  }
  rmSync(operator.file, { force: true });
}

async function lives(): Promise<void> {
  for (let seed = 0; seed < 40; seed++) await live(`life ${seed}`);
}

test("random lives keep to the model", lives);

test("random lives find faults", async (context) => {
  const faults: [object, string, unknown][] = [
    [Consents.prototype, "muted", async () => new Map()],
    [Consents.prototype, "keep", async () => false],
    [Device.prototype, "withdrawOne", async () => undefined],
    [Device.prototype, "leaves", async () => true],
    [Device.prototype, "settle", async () => undefined],
  ];
  for (const [of, name, wrong] of faults) {
    const mock = context.mock.method(of as Record<string, () => unknown>, name, wrong as () => unknown);
    await assert.rejects(lives(), name);
    mock.mock.restore();
    rmSync(operator.file, { force: true });
  }
});
