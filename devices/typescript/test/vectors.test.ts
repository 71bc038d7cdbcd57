/** The test vectors in devices/vectors, which the Python device writes. */

import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fromHex, toHex } from "../src/bytes.js";
import { claim } from "../src/claims.js";
import { seal } from "../src/envelope.js";
import {
  Device, MemoryStore, NotSigned, openSurvey, UnknownSurvey, UnsafeSurvey, Wallet, type DeviceOptions, type WalletLimits,
} from "../src/index.js";
import { drawMemo, MECHANISMS, memoKey, reportMemo, reportOnce, type Mechanism } from "../src/mechanisms.js";
import { Envoy } from "../src/relay.js";
import { lossOfReports, lossPerReport } from "../src/promise.js";
import { CANONICAL_FORMAT } from "../src/survey.js";
import { valueIndex } from "../src/values.js";
import { explained, question } from "../src/words.js";
import { scripted, surveyOf } from "./fixtures.js";

const read = (name: string): any => JSON.parse(readFileSync(new URL(`../../../vectors/${name}.json`, import.meta.url), "utf8"));

/** Returns a mechanism with these parameters. A survey checks it: its only level states the losses of the mechanism. */
async function mechanism(parameters: any): Promise<Mechanism> {
  return (await surveyOf(parameters)).attributes[0]!.levels[0]!.mechanism;
}

test("formats: this device has the formats of the vectors", () => {
  assert.deepEqual(read("formats"), [{ canonical: CANONICAL_FORMAT, envelope: 1 }]);
});

test("surveys: the fingerprint is the hash of the canonical text, and every survey is known", async () => {
  const [surveys, parameters] = [read("surveys"), read("parameters")];
  assert.ok(surveys.length >= 4);
  for (const { canonical, fingerprint, pin } of surveys) {
    const { mechanisms } = parameters.find((other: any) => other.canonical === canonical);
    const survey = await openSurvey({ canonical, fingerprint, mechanisms }, pin);
    assert.equal(toHex(survey.fingerprint), fingerprint);
  }
});

test("forged: a device survey with one fault is refused", async () => {
  const cases = read("forged");
  assert.ok(cases.length >= 20);
  for (const { fault, survey } of cases) {
    const refused = (error: unknown) => error instanceof UnknownSurvey || error instanceof UnsafeSurvey;
    await assert.rejects(openSurvey(survey), refused, fault);
  }
});

test("signatures: a survey is refused unless one of the keys has signed its canonical text", async () => {
  const [cases, parameters] = [read("signatures"), read("parameters")];
  assert.ok(cases.length >= 15);
  for (const { case: name, canonical, fingerprint, pin, signature, signed_by, accepted } of cases) {
    const { mechanisms } = parameters.find((other: any) => other.canonical === canonical);
    const opened = openSurvey({ canonical, fingerprint, mechanisms, signature }, pin, { signedBy: signed_by });
    await (accepted ? opened : assert.rejects(opened, NotSigned, name));
  }
});

test("signatures: two can both be required", async () => {
  const [{ canonical, fingerprint, pin, signature, signed_by }, stranger] = ["signed", "signed by a stranger"].map((name) => read("signatures").find((other: any) => other.case === name));
  const { mechanisms } = read("parameters").find((other: any) => other.canonical === canonical);
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, 3)]); // the stranger's key
  const other = createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" })).export({ format: "der", type: "spki" }).subarray(-32).toString("base64");
  const opened = (signatures: unknown[], alsoSignedBy: string) =>
    openSurvey({ canonical, fingerprint, mechanisms, signature, signatures }, pin, { signedBy: signed_by, alsoSignedBy });
  await opened([signature, stranger.signature], other);
  for (const one of [signature, stranger.signature]) await assert.rejects(opened([one, one], other), NotSigned);
  await assert.rejects(opened([], other), NotSigned);
  await assert.rejects(opened([signature, stranger.signature], signed_by[0]), RangeError);
});

test("signatures: a text that is not a key is the application's mistake", async () => {
  const { canonical, fingerprint, pin, signature } = read("signatures")[0];
  const { mechanisms } = read("parameters").find((other: any) => other.canonical === canonical);
  for (const signedBy of ["", "AAAA", [], `${read("signatures")[0].signed_by[0]} `]) {
    await assert.rejects(openSurvey({ canonical, fingerprint, mechanisms, signature }, pin, { signedBy }), RangeError);
  }
});

test("values: the index of texts and numbers", async () => {
  const [surveys, parameters] = [read("surveys"), read("parameters")];
  for (const { fingerprint, attribute: name, cases } of read("values")) {
    const { canonical } = surveys.find((other: any) => other.fingerprint === fingerprint);
    const { mechanisms } = parameters.find((other: any) => other.canonical === canonical);
    const attribute = (await openSurvey({ canonical, fingerprint, mechanisms })).attributes.find((other) => other.name === name)!;
    for (const [value, index] of cases) {
      if (index === null) assert.throws(() => valueIndex(attribute, value), RangeError, `${name}: ${value}`);
      else assert.equal(valueIndex(attribute, value), index, `${name}: ${value}`);
    }
  }
});

test("hashes: the linear forms over every field", () => {
  for (const { cases, ...pool } of read("hashes")) {
    for (const [hashFunction, value, symbol] of cases) assert.equal(memoKey(pool, value, hashFunction), symbol);
  }
});

test("draws: memo and report from a value and random bytes", async () => {
  const names = new Set<string>();
  for (const { parameters, cases } of read("draws")) {
    const m = await mechanism(parameters);
    names.add(m.name);
    for (const { value, function: hashFunction, random, memo, report } of cases) {
      const bytes = scripted(random);
      let drawn: Uint8Array;
      if (m.memo) {
        const kept = drawMemo(m, memoKey(m, value, hashFunction ?? 0), hashFunction ?? 0, bytes);
        assert.equal(toHex(kept), memo);
        drawn = reportMemo(m, kept, bytes);
      } else {
        drawn = reportOnce(m, value, bytes);
      }
      assert.equal(toHex(drawn), report);
      assert.equal(bytes.left(), 0);
    }
  }
  assert.deepEqual([...names].sort(), Object.keys(MECHANISMS).sort());
});

test("words: the question, and the parts of a report", async () => {
  for (const { survey: document, question: text, parts } of read("words")) {
    const survey = await openSurvey(document);
    assert.equal(question(survey, survey.attributes.map(() => 0)), text);
    for (const told of parts) {
      const envelope = fromHex(told.map(([hex]: [string]) => hex).join(""))!;
      assert.deepEqual(explained(survey, envelope).map(([data, said]) => [toHex(data), said]), told);
    }
  }
});

test("envelopes: all widths of integers and rows", () => {
  const ours = read("envelopes").filter(({ n, step }: any) => n === 1 && Number.isSafeInteger(step));
  assert.ok(ours.length >= 20);
  for (const { fingerprint, attribute, level, step, cohort, rows, envelope } of ours) {
    assert.equal(toHex(seal(fromHex(fingerprint)!, attribute, level, step, fromHex(rows)!, cohort)), envelope);
  }
});

test("devices: all calls of a device, byte for byte", async () => {
  for (const { survey: document, levels, random, calls } of [...read("devices"), ...read("relay_lives")]) {
    const bytes = scripted(random);
    const [survey, store] = [await openSurvey(document), new MemoryStore()];
    for (const { attribute, value, step, cohort, settle, envelope, key, due_ms } of calls) {
      const options: DeviceOptions = { levels, random: bytes, ...(cohort === null ? {} : { cohort }) };
      const device = await Device.open(survey, store, { consent: "simulated", ...options });
      if (envelope?.error) {
        const name = envelope.error === "ValueError" ? "RangeError" : envelope.error;
        await assert.rejects(device.report(attribute, value, step), { name });
        continue;
      }
      const sent = await device.report(attribute, value, step);
      assert.equal(sent && toHex(sent), envelope);
      const kept = (await device.waiting()).find((report) => report.attribute === attribute && report.step === step);
      if (key) assert.deepEqual([kept?.key, kept?.dueMs], [key, due_ms ?? 0]);
      if (settle) await device.settle(kept!);
    }
    assert.equal(bytes.left(), 0);
  }
});

test("relay requests: message, capsule and answer, byte for byte", async () => {
  const [cases, survey] = [read("relay_requests"), await openSurvey(read("relay_lives")[0].survey)];
  assert.ok(cases.length >= 4);
  for (const { gateway, keys, token, envelope, key, ephemeral, message, capsule, answer, status, retry_after } of cases) {
    const envoy = new Envoy(survey, keys, gateway, token ?? undefined);
    const inside = envoy.message(fromHex(envelope)!, key);
    assert.equal(toHex(inside), message);
    const pkcs8 = Buffer.from(`302e020100300506032b656e04220420${ephemeral}`, "hex");
    const raw = Buffer.from(capsule.slice(14, 78), "hex");
    const sealed = await envoy.seal(inside, {
      privateKey: await crypto.subtle.importKey("pkcs8", pkcs8, "X25519", false, ["deriveBits"]),
      publicKey: await crypto.subtle.importKey("raw", raw, "X25519", true, []),
    });
    assert.equal(toHex(sealed.capsule), capsule);
    const told = await sealed.open(fromHex(answer)!);
    assert.deepEqual([told.status, told.headers.get("Retry-After")], [status, retry_after === null ? null : String(retry_after)]);
    await assert.rejects(sealed.open(fromHex(answer)!.map((byte, i) => byte ^ Number(i === 40))));
  }
});

test("ledger: the loss of t reports", async () => {
  const cases = read("ledger");
  assert.ok(cases.length >= 40);
  for (const { parameters, t, eps_t, any_values } of cases) {
    const m = await mechanism(parameters);
    for (const [loss, expected] of [[lossOfReports(m, t), eps_t], [t * lossPerReport(m), any_values]] as const) {
      assert.ok(Math.abs(loss - expected) <= 1e-9 * expected, `${m.name}, t = ${t}: ${loss}, expected ${expected}`);
    }
  }
});

test("claims: of every survey, at its first and last levels", async () => {
  const [surveys, parameters, cases] = [read("surveys"), read("parameters"), read("claims")];
  assert.ok(cases.length >= 50);
  const close = (ours: number, expected: number | null) =>
    assert.ok(expected === null ? ours === Infinity : Math.abs(ours - expected) <= 1e-9 * expected, `${ours}, expected ${expected}`);
  for (const { fingerprint, levels, window_s, losses, per_window, for_ever } of cases) {
    const { canonical } = surveys.find((other: any) => other.fingerprint === fingerprint);
    const { mechanisms } = parameters.find((other: any) => other.canonical === canonical);
    const ours = claim(await openSurvey({ canonical, fingerprint, mechanisms }), levels, window_s);
    ours.losses.forEach((loss, a) => close(loss, losses[a]));
    close(ours.perWindow, per_window);
    close(ours.forEver, for_ever);
  }
});

test("wallets: joining and leaving surveys, with the charges after every call", async () => {
  const [surveys, parameters] = [read("surveys"), read("parameters")];
  const close = (ours: number, expected: number | null) =>
    assert.ok(expected === null ? ours === Infinity : Math.abs(ours - expected) <= 1e-9 * expected, `${ours}, expected ${expected}`);
  for (const { limits, random, calls } of read("wallets")) {
    const bytes = scripted(random);
    let now = 0;
    const kept: WalletLimits = {
      ...(limits.per_window !== null && { perWindow: limits.per_window, windowSeconds: limits.window_s }),
      ...(limits.for_ever !== null && { forEver: limits.for_ever }),
    };
    const wallet = await Wallet.open(new MemoryStore(), kept, { clock: () => now });
    const devices = new Map<string, Device>();
    for (const { now_ms, call, fingerprint, attribute, value, step, error, ...expected } of calls) {
      now = now_ms;
      const { canonical, pin } = surveys.find((other: any) => other.fingerprint === fingerprint);
      const { mechanisms } = parameters.find((other: any) => other.canonical === canonical);
      const act = async (): Promise<Uint8Array | null | void> => {
        if (call === "leave") return wallet.leave(pin);
        if (call === "report") return devices.get(fingerprint)!.report(attribute, value, step);
        devices.set(fingerprint, await wallet.device(await openSurvey({ canonical, fingerprint, mechanisms }), { consent: "simulated", random: bytes }));
      };
      if (error) {
        await assert.rejects(act(), { name: error === "ValueError" ? "RangeError" : error });
      } else {
        const made = await act();
        if (call === "report") assert.equal(made && toHex(made), expected.envelope);
      }
      const { spent, chargedPerWindow, chargedForEver } = await wallet.spent();
      close(spent, expected.spent);
      close(chargedPerWindow, expected.charged_per_window);
      close(chargedForEver, expected.charged_for_ever);
    }
    assert.equal(bytes.left(), 0);
  }
});
