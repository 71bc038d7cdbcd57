/**
 * The draws follow the stated distributions.
 *
 * Every count is compared with its expectation in standard deviations. A correct device exceeds `LIMIT` with probability 2e-9 for a
 * large count, 5e-8 for the smallest ones, and less than 5e-5 in the whole file. The seeds are fixed. Each control draws with a loss that
 * is larger than stated by 0.3 nats or more, or with another fault, and must exceed `LIMIT`.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HASHED, SUBSET, SUBSETS, SYMBOLS, WAVE } from "../src/families.js";
import { Device, MemoryStore, type Survey } from "../src/index.js";
import { drawFunction, drawMemo, memoKey, reportMemo, reportOnce, type Mechanism } from "../src/mechanisms.js";
import { below, shuffled, toss, type RandomBytes } from "../src/random.js";
import { row, seeded, survey, type Level } from "./fixtures.js";

const LIMIT = 6;
const N = 10_000;
const K = 5;
const VALUE = 3;

/** The largest deviation of counts of independent trials from n·p, in standard deviations. */
function deviation(counts: Map<number, number> | number[], p: (outcome: number) => number, n: number): number {
  let largest = 0;
  counts.forEach((count: number, outcome: number) => {
    const expected = n * p(outcome);
    largest = Math.max(largest, Math.abs(count - expected) / Math.sqrt(expected * (1 - p(outcome))));
  });
  return largest;
}

function tally(outcomes: Iterable<number>, size: number): number[] {
  const counts = new Array<number>(size).fill(0);
  for (const outcome of outcomes) counts[outcome]! += 1;
  return counts;
}

/** Rows of N new devices: memos, or reports. */
function rows(m: Mechanism, random: RandomBytes, what: "memo" | "report"): Uint8Array[] {
  return Array.from({ length: N }, () => {
    if (!m.memo) return reportOnce(m, VALUE, random);
    const hashFunction = drawFunction(m, random);
    const memo = drawMemo(m, memoKey(m, VALUE, hashFunction), hashFunction, random);
    return what === "memo" ? memo : reportMemo(m, memo, random);
  });
}

const grr = (eps: number, n: number) => Math.exp(eps) / (Math.exp(eps) + n - 1);

/** The deviation of rows from the mechanism's distribution at loss eps. */
function compare(m: Mechanism, made: Uint8Array[], eps: number, size = m.omega): number {
  if (m.family === SYMBOLS || m.family === WAVE) {
    const p = m.near * Math.exp(eps) / (m.near * Math.exp(eps) + K - 1); // probability of a symbol near the value
    const near = (s: number) => s >= VALUE && s < VALUE + m.near;
    const symbols = tally(made.map(([symbol]) => symbol!), m.symbols);
    return deviation(symbols, (s) => (near(s) ? p / m.near : (1 - p) / (K - 1)), N);
  }
  if (m.family === HASHED) {
    const g = m.symbols;
    const p = grr(eps, g);
    const cell = made.map(([a, symbol]) => a! * g + ((symbol! - memoKey(m, VALUE, a!) + g) % g));
    const cells = deviation(tally(cell, m.functions * g), (c) => (c % g === 0 ? p : (1 - p) / (g - 1)) / m.functions, N);
    return Math.max(cells, deviation([cell.filter((c) => c % g === 0).length], () => p, N));
  }
  const ones = Array.from({ length: K }, (_, v) => made.filter(([byte]) => (byte! >> v) & 1).length);
  if (m.family === SUBSET || m.family === SUBSETS) {
    const p = 1 / (1 + ((K - size) / size) * Math.exp(-eps));
    return deviation(ones, (v) => (v === VALUE ? p : (size - p) / (K - 1)), N);
  }
  const bit = (v: number) => (v === VALUE ? 0.5 : 1 / (Math.exp(eps) + 1)); // OUE, and L-OSUE in both rounds
  const pairs = ones.map((_, v) => made.filter(([byte]) => (byte! >> v) & (byte! >> (v + 1) % K) & 1).length);
  return Math.max(deviation(ones, bit, N), deviation(pairs, (v) => bit(v) * bit((v + 1) % K), N));
}

const stated = async (level: Level): Promise<Mechanism> => (await survey([{ k: K, levels: [level] }])).attributes[0]!.levels[0]!.mechanism;

for (const level of [{ mechanism: "GRR" }, { mechanism: "OUE" }, { mechanism: "OLH", g: 4 }, { mechanism: "SS", omega: 2 }, { mechanism: "SW", width: 2 }]) {
  test(`${level.mechanism} follows its distribution`, async () => {
    const m = await stated({ ...level, eps: 1 });
    assert.ok(compare(m, rows(m, seeded(level.mechanism), "report"), 1) < LIMIT);
    const leaky = await stated({ ...level, eps: 1.3 });
    assert.ok(compare(leaky, rows(leaky, seeded("control"), "report"), 1) > LIMIT);
  });
}

for (const level of [{ mechanism: "L-GRR" }, { mechanism: "L-OSUE" }, { mechanism: "L-OLH", g: 4 }, { mechanism: "L-SS", memo_size: 1, omega: 2 }]) {
  test(`${level.mechanism} follows its distribution in both rounds`, async () => {
    const m = await stated({ ...level, eps_inf: 2, eps_1: 1 });
    const size = m.memos?.size;
    assert.ok(compare(m, rows(m, seeded(level.mechanism), "memo"), 2, size) < LIMIT);
    assert.ok(compare(m, rows(m, seeded(`${level.mechanism} report`), "report"), 1) < LIMIT);
    const leaky = await stated({ ...level, eps_inf: 2.6, eps_1: 1.3 });
    assert.ok(compare(leaky, rows(leaky, seeded("control"), "memo"), 2, size) > LIMIT);
    assert.ok(compare(leaky, rows(leaky, seeded("control 2"), "report"), 1) > LIMIT);
  });
}

test("integers are uniform, coins exact; remainders of bytes would not be uniform", () => {
  const random = seeded("integers");
  for (const n of [1, 2, 7, 200, 256]) {
    assert.ok(deviation(tally(Array.from({ length: N }, () => below(n, random)), n), () => 1 / n, N) < LIMIT || n === 1);
  }
  const remainders = Array.from({ length: N }, () => random(1)[0]! % 200);
  assert.ok(deviation(tally(remainders, 200), () => 1 / 200, N) > LIMIT);
  const rare = { digits: Uint8Array.of(0, 77), inverted: false };
  for (const inverted of [false, true]) {
    const yes = toss({ ...rare, inverted }, 40 * N, random).filter((tossed) => tossed).length;
    assert.ok(deviation([yes], () => (inverted ? 1 - 77 / 65536 : 77 / 65536), 40 * N) < LIMIT);
  }
});

test("all orders are equally likely; a shuffle that swaps each item with any place would prefer some orders", () => {
  const random = seeded("orders");
  const places = (order: number[]) => order[0]! * 9 + order[1]! * 3 + order[2]!; // 5, 7, 11, 15, 19, 21: the six orders of 0, 1, 2
  const orders = (draw: () => number[]) => {
    const counts = tally(Array.from({ length: 6 * N }, () => places(draw())), 27);
    assert.equal([5, 7, 11, 15, 19, 21].reduce((sum, place) => sum + counts[place]!, 0), 6 * N);
    return deviation([5, 7, 11, 15, 19, 21].map((place) => counts[place]!), () => 1 / 6, 6 * N);
  };
  assert.ok(orders(() => shuffled([0, 1, 2], random)) < LIMIT);
  const biased = () => {
    const order = [0, 1, 2];
    for (const place of [0, 1, 2]) {
      const drawn = below(3, random);
      [order[place], order[drawn]] = [order[drawn]!, order[place]!];
    }
    return order;
  };
  assert.ok(orders(biased) > LIMIT); // the control
});

/** The sampled attribute, the phase, the hash function and the fake values of new devices. */
async function choices(asked: Survey, random: RandomBytes, n: number): Promise<{ at: number; phase: number; a: number; fake: number }[]> {
  const found = [];
  for (let i = 0; i < n; i++) {
    const store = new MemoryStore();
    await Device.open(asked, store, { consent: "simulated", random });
    const records: any[] = [];
    for (const a of [0, 1]) records.push(await store.transaction((all) => all.get(`attribute/${a}`)));
    const at = asked.collection === "smp" ? records.findIndex(({ answers }) => answers) : records.findIndex(({ fake }) => fake === null);
    found.push({ at, phase: records[1].phase, a: records[0].hashFunction, fake: records[1].fake ?? records[0].fake });
  }
  return found;
}

for (const collection of ["smp", "rs+fd"]) {
  test(`${collection}: the permanent choices are uniform`, async () => {
    const hashed = { mechanism: "L-OLH", eps_inf: 2, eps_1: 1, g: 4 };
    const spaced = { mechanism: "GRR", eps: 1, every_steps: 4 };
    const asked = await survey([{ k: K, levels: [hashed] }, { k: K, levels: [spaced] }], { collection });
    const n = 3_000;
    const made = await choices(asked, seeded(collection), n);
    assert.ok(deviation(tally(made.map(({ at }) => at), 2), () => 1 / 2, n) < LIMIT);
    assert.ok(deviation(tally(made.map(({ phase }) => phase), 4), () => 1 / 4, n) < LIMIT);
    assert.ok(deviation(tally(made.map(({ a }) => a), 16), () => 1 / 16, n) < LIMIT);
    const fakes = made.map(({ fake }) => fake);
    if (collection === "rs+fd") assert.ok(deviation(tally(fakes, K), () => 1 / K, n) < LIMIT);
    const first = made.map(({ at }, i) => (i % 4 ? at : 0)); // the control: a quarter never samples the second attribute
    assert.ok(deviation(tally(first, 2), () => 1 / 2, n) > LIMIT);
  });
}

test("a fake value hides the person's value: reports of two values have one distribution", async () => {
  const once = { mechanism: "GRR", eps: 1 };
  const asked = await survey([{ k: K, levels: [once] }, { k: K, levels: [once] }], { collection: "rs+fd" });
  const n = 800;
  const symbols = async (value: number, which: "true" | "fake") => {
    const random = seeded(`${value} ${which}`);
    const found: number[] = [];
    while (found.length < n) {
      const store = new MemoryStore();
      const device = await Device.open(asked, store, { consent: "simulated", random });
      const { fake } = (await store.transaction((all) => all.get("attribute/0"))) as { fake: number | null };
      const envelope = await device.report("q0", value, 0);
      if ((fake === null) === (which === "true")) found.push(row(envelope)[0]!);
    }
    return tally(found, K);
  };
  for (const value of [0, 3]) assert.ok(deviation(await symbols(value, "fake"), () => 1 / K, n) < LIMIT);
  assert.ok(deviation(await symbols(3, "true"), () => 1 / K, n) > LIMIT); // the control
});
