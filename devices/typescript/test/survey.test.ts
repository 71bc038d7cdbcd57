/** Surveys that a device refuses: unknown ones, and ones that would weaken their own promise. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openSurvey, stepAt, UnknownSurvey, UnsafeSurvey, WrongSurvey } from "../src/index.js";
import { valueIndex } from "../src/values.js";
import { BITS, coin, document, HASHED, LONG, ONCE, SETS, SPACED, survey, type Document, type Level } from "./fixtures.js";

const ALL: Level[] = [LONG, BITS, HASHED, ONCE, SPACED, { mechanism: "OUE", eps: 1 }, { mechanism: "SS", eps: 1, omega: 3 }];

const all = (): Document => document([{ k: 9, levels: ALL.slice(0, 4) }, { k: 9, levels: ALL.slice(4) }], { collection: "spl" });

test("the survey's own text decides, not the server", async () => {
  const made = all();
  const opened = await openSurvey(made, made.pin);
  assert.deepEqual([stepAt(opened, opened.startMs - 1), stepAt(opened, opened.startMs), stepAt(opened, opened.startMs + 60_000)], [-1, 0, 1]);
  assert.equal(opened.pin, made.pin);
  await assert.rejects(openSurvey(made, made.fingerprint + "0".repeat(48)), WrongSurvey);
  for (const pin of ["", made.fingerprint, made.pin.toUpperCase(), `${made.pin}0`]) await assert.rejects(openSurvey(made, pin), RangeError);
  await assert.rejects(openSurvey({ ...made, canonical: `${made.canonical} ` }), UnsafeSurvey);
  await assert.rejects(openSurvey({ ...made, fingerprint: "0123456789abcdef" }), UnsafeSurvey);
});

for (const [name, head] of [
  ["a collection", { collection: "shuffle" }],
  ["a step of no length", { step_seconds: 0 }],
  ["a start that is not an integer", { start: "2026-01-05" }],
] as const) {
  test(`unknown: ${name}`, () => assert.rejects(survey([{ k: 9, levels: [ONCE] }], head), UnknownSurvey));
}

for (const [name, level] of [
  ["a mechanism", { mechanism: "PM", eps: 1 }],
  ["a mechanism named like a property of objects", { mechanism: "constructor", eps: 1 }],
  ["a level without its loss", { mechanism: "GRR" }],
] as const) {
  test(`unknown: ${name}`, () => assert.rejects(survey([{ k: 9, levels: [level] }]), UnknownSurvey));
}

test("unknown keys are ignored", async () => {
  const opened = await survey([{ k: 9, domain: { size: 9, later: 7 }, levels: [{ ...ONCE, later: 3 } as Level] }], { later: true });
  assert.deepEqual(opened.attributes[0]!.levels[0]!.losses, { epsInf: Infinity, eps1: 1 });
});

test("unknown: an attribute without a domain, or with a wrong one", async () => {
  for (const domain of [{}, { size: 9, bins: [1, 2, 3] }, { size: 1 }, { values: ["a", 7] }]) {
    await assert.rejects(survey([{ k: 9, domain, levels: [ONCE] }]), UnknownSurvey);
  }
});

test("unknown: text that is not a survey at all", async () => {
  for (const document of [null, 7, [], {}, { fingerprint: "", canonical: 7 }]) await assert.rejects(openSurvey(document), UnknownSurvey);
});

/** Every coin of the survey, as its round's coins and its name. */
function* coins({ mechanisms }: Document): Generator<[any, string]> {
  for (const levels of mechanisms) {
    for (const { coins } of levels) {
      for (const round of Object.values(coins as Record<string, any>)) for (const name of Object.keys(round)) yield [round, name];
    }
  }
}

test("unsafe: a coin that loses more than the survey states, whichever it is", async () => {
  const n = [...coins(all())].length;
  assert.equal(n, 13);
  for (let i = 0; i < n; i++) {
    const made = all();
    const [round, name] = [...coins(made)][i]!;
    round[name] = coin(1 - 2 ** -50);
    await assert.rejects(openSurvey(made), UnsafeSurvey, `coin ${i}`);
  }
});

test("unsafe: a memo that loses more, behind reports that lose less", async () => {
  for (const [eps, safe] of [[2.01, false], [1.99, true]] as const) {
    const made = document([{ k: 9, levels: [LONG] }]);
    const keep = (loss: number) => coin(1 / (1 + 8 * Math.exp(-loss)));
    made.mechanisms[0]![0]!["coins"] = { memo: { keep: keep(eps) }, report: { keep: keep(0.5) } };
    const stated = document([{ k: 9, levels: [LONG] }], {}, made.mechanisms);
    await (safe ? openSurvey(stated) : assert.rejects(openSurvey(stated), /a memo loses/));
    if (safe) await assert.rejects(openSurvey(made), /states another coin memo.keep/);
  }
});

test("unsafe: a coin that is certain", async () => {
  for (const digits of ["", "00"]) {
    for (const inverted of [true, false]) {
      const made = document([{ k: 9, levels: [ONCE] }]);
      made.mechanisms[0]![0]!["coins"] = { report: { keep: { digits, inverted } } };
      await assert.rejects(openSurvey(made), UnsafeSurvey);
    }
  }
});

test("unsafe: a coin whose digits state the larger probability", async () => {
  // the probability of no is 0.51 · 2^-53; the nearest double of the probability of yes would make it 2^-53
  const digits = ((1n << 160n) - (51n << 107n) / 100n).toString(16);
  const made = document([{ k: 2, levels: [{ mechanism: "GRR", eps: 36.74 }] }]);
  made.mechanisms[0]![0]!["coins"] = { report: { keep: { digits, inverted: false } } };
  await assert.rejects(openSurvey(made), /the smaller probability/);
});

test("unsafe: a survey that states a loss beyond the accuracy of the check", async () => {
  await assert.rejects(survey([{ k: 9, levels: [{ mechanism: "GRR", eps: 700.1 }] }]), UnsafeSurvey);
});

test("unsafe: a report's coin that loses one millionth more; safe: a coin that loses less", async () => {
  const keep = (eps: number) => coin(1 / (1 + 8 * Math.exp(-eps)));
  for (const [eps, safe] of [[1 + 1e-6, false], [1, true], [0.5, true]] as const) {
    const made = document([{ k: 9, levels: [ONCE] }]);
    made.mechanisms[0]![0]!["coins"] = { report: { keep: keep(eps) } };
    const stated = document([{ k: 9, levels: [ONCE] }], {}, made.mechanisms);
    await (safe ? openSurvey(stated) : assert.rejects(openSurvey(stated), UnsafeSurvey));
  }
});

test("a width does not make another mechanism a Square Wave", async () => {
  const made = document([{ k: 9, levels: [{ ...LONG, width: 3 }] }]);
  made.mechanisms[0]![0]!["width"] = 3;
  assert.equal((await openSurvey(made)).attributes[0]!.levels[0]!.mechanism.near, 1);
});

test("unsafe: parameters that differ from the survey's text", async () => {
  for (const [key, value] of [["k", 10], ["mechanism", "L-GRR"], ["every_steps", 1], ["lifetime_reports", null], ["omega", 4]] as const) {
    const made = document([{ k: 9, levels: [key === "omega" ? { mechanism: "SS", eps: 1, omega: 3 } : SPACED] }]);
    made.mechanisms[0]![0]![key] = value;
    await assert.rejects(openSurvey(made), UnsafeSurvey);
  }
});

test("unsafe or unknown: odds and sizes of L-SS", async () => {
  const level = { mechanism: "L-SS", eps_inf: 2, eps_1: 1, memo_size: 2, omega: 5 };
  const refused = (error: unknown) => error instanceof UnsafeSurvey || error instanceof UnknownSurvey;
  const asked = document([{ k: 20, levels: [level] }]);
  const made = asked.mechanisms[0]![0]!;
  const { numerator, shift } = made["odds"] as { numerator: string; shift: number };
  await openSurvey(asked);
  for (const odds of [
    { numerator, shift: shift - 1 }, // θ is twice as large: a report loses more
    { numerator: "01", shift: 0 }, { numerator: "01", shift }, // θ is at most 1
    { numerator: `00${numerator}`, shift }, { numerator: `${numerator}0`, shift }, { numerator: "", shift }, { numerator: "0x12", shift }, { numerator: 18, shift },
    { numerator: "ff".repeat(5000), shift }, // the weights have 80 000 bits
    { numerator, shift: 129 }, { numerator, shift: -1 }, { numerator }, null,
  ]) await assert.rejects(openSurvey({ ...asked, mechanisms: [[{ ...made, odds }]] }), refused, JSON.stringify(odds)); // prettier-ignore
  const stated = (change: Record<string, unknown>, both = {}) => openSurvey(document([{ k: 20, levels: [{ ...level, ...change }] }], {}, [[{ ...made, ...both }]]));
  for (const log_odds of [3, -1, 0, "2"]) await assert.rejects(stated({ log_odds }), refused);
  for (const sizes of [{ memo_size: 11 }, { memo_size: 0 }, { omega: 11 }, { omega: 0 }, { memo_size: 1 }, { omega: 4 }]) {
    await assert.rejects(stated(sizes, sizes), refused, JSON.stringify(sizes));
  }
  await assert.rejects(stated({}, { memo_size: 3 }), UnsafeSurvey);
  await assert.rejects(survey([{ k: 1025, levels: [level] }]), UnknownSurvey);
});

test("unknown: sizes beyond the limits of the format", async () => {
  for (const [k, level] of [
    [7_200_008, { mechanism: "OUE", eps: 1 }], // a row of 900 001 bytes
    [2 ** 31 - 1, { ...HASHED, g: 1021 }], // 1021⁴ functions
    [9, { ...HASHED, g: 1031 }],
  ] as const) {
    await assert.rejects(survey([{ k, levels: [level] }]), UnknownSurvey);
  }
});

test("values: texts, indices, integers and bins", async () => {
  const { attributes } = await survey([
    { k: 3, domain: { values: ["a", "7", "ü"] }, levels: [ONCE] },
    { k: 9, levels: [ONCE] },
    { k: 3, domain: { bins: [-1.5, 0, 1, 1e300] }, levels: [ONCE] },
    { k: 2, domain: { values: ["a", "b"], unlisted: "b" }, levels: [ONCE] },
    { k: 9, domain: { size: 9, outside: "nearest" }, levels: [ONCE] },
    { k: 3, domain: { bins: [-1.5, 0, 1, 1e300], outside: "nearest" }, levels: [ONCE] },
  ]);
  const cases: [number, string | number, number | null][] = [
    [3, "c", 1], [3, "b", 1], [3, 2, null], [4, "9", 8], [4, -1, 0], [4, "-12", 0], [4, 1e300, 8], [4, 0.5, null], [4, Infinity, 8],
    [4, `1${"0".repeat(400)}`, 8], [4, "1e9", 8], [5, 1e301, 2], [5, -2, 0], [5, "2e300", 2], [5, Infinity, 2], [5, NaN, null],
    [5, "x", null], [5, 0, 1],
    [0, "7", 1], [0, "ü", 2], [0, 2, 2], [0, 3, null], [0, -1, null], [0, 0.5, null], [0, "A", null],
    [1, "8", 8], [1, 0, 0], [1, "9", null], [1, "1e0", 1], [1, "", null], [1, NaN, null],
    [2, -1.5, 0], [2, -1e-9, 0], [2, 0, 1], [2, "1.0", 2], [2, 1e300, 2], [2, "2e300", null], [2, -2, null],
    [2, "0x1", null], [2, "", null], [2, Infinity, null], [2, NaN, null],
  ]; // prettier-ignore
  for (const [a, value, index] of cases) {
    if (index === null) assert.throws(() => valueIndex(attributes[a]!, value), RangeError);
    else assert.equal(valueIndex(attributes[a]!, value), index);
  }
  for (const other of [undefined, null, true, [7], ["a"], {}, 7n]) {
    for (const attribute of attributes) assert.throws(() => valueIndex(attribute, other as never), RangeError);
  }
});

const FRUIT = { k: 3, domain: { values: ["apple", "pear", "other"], unlisted: "other" }, levels: [ONCE] };
const WEIGHT = { k: 2, domain: { bins: [0, 100, 500] }, levels: [ONCE] };

test("values: a pair has a value for each combination of its attributes' values", async () => {
  const [pair, fruit, weight] = (await survey([{ k: 6, domain: { pair: ["q1", "q2"] }, levels: [ONCE] }, FRUIT, WEIGHT])).attributes;
  assert.deepEqual([pair!.k, pair!.pair![0], pair!.pair![1]], [6, fruit, weight]);
  for (const [value, index] of [[["apple", 7], 0], [["pear", 100], 3], [["kiwi", "5e2"], 5], [[1, 0], 2]] as const) assert.equal(valueIndex(pair!, value), index);
  for (const wrong of ["apple × [0, 100)", 3, [], ["apple"], ["apple", 7, 7], [3, 7], ["apple", 501], ["apple", NaN], [["apple"], 7], null, undefined]) {
    assert.throws(() => valueIndex(pair!, wrong as never), RangeError);
  }
});

test("unknown: a pair of other than two different attributes that are no pairs, and a pair in another format", async () => {
  const asked = (pair: unknown, k = 6, head = {}) => survey([FRUIT, WEIGHT, { k, domain: { pair }, levels: [ONCE] }], head);
  await asked(["q0", "q1"]);
  for (const pair of [["q0"], ["q0", "q0"], ["q0", "q2"], ["q0", "q3"], ["q0", "q1", "q1"], [], "q0", null, [0, 1]]) {
    await assert.rejects(asked(pair), UnknownSurvey, JSON.stringify(pair));
  }
  await assert.rejects(asked(["q0", "q1"], 5), UnsafeSurvey); // another number of values
  for (const format of [3, 4]) await assert.rejects(asked(["q0", "q1"], 6, { format }), UnknownSurvey);
  await assert.rejects(survey([FRUIT], { format: 5 }), UnknownSurvey);
});

const APPS = { k: 5, domain: { values: ["chat", "mail", "other"], choices: 2, unlisted: "other" }, levels: [SETS] };

test("values: a set is an array of different values", async () => {
  const [apps] = (await survey([APPS])).attributes;
  assert.deepEqual([apps!.k, apps!.choices], [5, 2]);
  for (const [value, code] of [[["chat", "mail"], 3], [[1, "chat"], 3], [[], 0], [["fax", "pager"], 4], [["fax", 2], 4]] as const) assert.equal(valueIndex(apps!, value), code);
  for (const wrong of ["chat", 3, null, undefined, ["chat", "chat"], [0, "chat"], ["chat", "mail", "fax"], [3], [-1], [0.5], [NaN], [["chat"]], [null]]) {
    assert.throws(() => valueIndex(apps!, wrong as never), RangeError);
  }
});

test("unknown: a set of single values, of too many values, or in another format", async () => {
  const asked = (domain = {}, level = {}, k = 5, head = {}) => survey([{ k, domain: { ...APPS.domain, ...domain }, levels: [{ ...SETS, ...level }] }], head);
  await asked();
  for (const choices of [0, 4, -1, 1.5, "any", null]) await assert.rejects(asked({ choices }, { choices: 2 }), UnknownSurvey, String(choices));
  await assert.rejects(asked({ values: Array.from({ length: 31 }, (_, v) => `v${v}`), unlisted: undefined }, {}, 33), UnknownSurvey);
  await assert.rejects(asked({}, {}, 5, { collection: "rs+fd" }), UnknownSurvey);
  for (const format of [3, 4, 5]) await assert.rejects(asked({}, {}, 5, { format }), UnknownSurvey);
  await assert.rejects(asked({}, { choices: 3 }), UnsafeSurvey); // another number of values than the attribute
  await assert.rejects(asked({}, {}, 6), UnsafeSurvey);
  await assert.rejects(survey([{ ...APPS, levels: [ONCE] }]), UnknownSurvey);
  await assert.rejects(survey([{ k: 5, levels: [SETS] }]), UnknownSurvey);
  await assert.rejects(survey([APPS, WEIGHT, { k: 10, domain: { pair: ["q0", "q1"] }, levels: [ONCE] }]), UnknownSurvey);
});

test("unsafe: coins of a set that lose more than the survey states", async () => {
  for (const level of [SETS, { mechanism: "PS-GRR", eps: 1, choices: 2 }]) {
    const weaker = document([{ ...APPS, levels: [{ ...level, eps: 1.01, eps_1: 1.01, eps_inf: 2.01 }] }]).mechanisms;
    await assert.rejects(openSurvey(document([{ ...APPS, levels: [level] }], {}, weaker)), UnsafeSurvey);
  }
});

test("values: a text may have very many digits", async () => {
  const [asked] = (await survey([{ k: 10, domain: { size: 10, outside: "nearest" }, levels: [ONCE] }])).attributes;
  const n = 1_000_000; // for so many digits, a pattern that tries every division of them would take hours
  const many = (piece: string) => piece.repeat(n);
  const cases: [string, string, number | null][] = [ // tests/surveys/test_survey.py has the same texts
    ["digits and a letter", `${many("1")}x`, null],
    ["digits, a point and a letter", `${many("1")}.${many("1")}x`, null],
    ["exponent and a letter", `1e${many("1")}x`, null],
    ["spaces and a letter", `${many(" ")}7${many(" ")}x`, null],
    ["points", many("."), null],
    ["fraction", `7.${many("5")}`, null],
    ["zeros in front", `${many("0")}7`, 7],
    ["zeros behind", `7.${many("0")}`, 7],
    ["spaces", `${many(" ")}7${many(" ")}`, 7],
    ["rounded up", `6.${many("9")}`, 7],
    ["zeros and an exponent", `7${many("0")}e-${n}`, 7],
    ["small and an exponent", `0.${many("0")}7e${n + 1}`, 7],
    ["infinite", many("9"), 9],
    ["minus infinite", `-${many("9")}`, 0],
    ["infinite by the exponent", `7e${many("9")}`, 9],
    ["zero by the exponent", `7e-${many("9")}`, 0],
  ];
  for (const [what, text, index] of cases) {
    if (index !== null) assert.equal(valueIndex(asked!, text), index, what);
    else assert.throws(() => valueIndex(asked!, text), (error: Error) => error instanceof RangeError && error.message.length < 100, what);
  }
});
