/** Surveys for tests, made from the formulas of docs/reference/write_a_device.md, and a seeded source of bytes. */

import { createCipheriv, createHash } from "node:crypto";
import { openSurvey, type Survey } from "../src/index.js";
import type { RandomBytes } from "../src/random.js";

export interface Level {
  mechanism: string;
  eps?: number;
  eps_inf?: number;
  eps_1?: number;
  g?: number;
  omega?: number;
  memo_size?: number;
  width?: number;
  choices?: number;
  every_steps?: number;
  lifetime_reports?: number;
}

export interface Document {
  name: string;
  fingerprint: string;
  pin: string;
  canonical: string;
  mechanisms: Record<string, unknown>[][];
}

interface Question {
  k?: number;
  domain?: Record<string, unknown>;
  levels: Level[];
}

/** Returns the device survey of attributes q0, q1, … with levels a, b, …. */
export function document(questions: Question[], head: Record<string, unknown> = {}, given?: Record<string, unknown>[][]): Document {
  const share = head["collection"] === "spl" ? questions.length : 1;
  const mechanisms = given ?? questions.map(({ k = 0, levels }) => levels.map((level) => parameters(level, k, share)));
  const has = (key: string) => questions.some(({ domain }) => domain?.[key] !== undefined);
  const canonical = JSON.stringify({
    format: has("choices") ? 6 : has("pair") ? 5 : 3,
    name: "study",
    start: 1_767_571_200_000,
    step_seconds: 60,
    window_steps: 10,
    lateness_steps: 1,
    collection: "smp",
    ...head,
    attribute: questions.map(({ k, domain, levels }, i) => ({
      name: `q${i}`,
      ...(domain ?? { size: k }),
      level: levels.map((level, j) => ({ name: "abcd"[j], ...stated(mechanisms[i]![j]!), ...level })),
    })),
  });
  const pin = createHash("sha256").update(canonical).digest("hex");
  return { name: "study", fingerprint: pin.slice(0, 16), pin, canonical, mechanisms };
}

export const survey = (questions: Question[], head: Record<string, unknown> = {}): Promise<Survey> =>
  openSurvey(document(questions, head));

const smaller = (digits: string): number => Buffer.from(digits, "hex").reduceRight((sum, digit) => (sum + digit) / 256, 0);

/** Returns the parameters as the canonical text states them. */
function stated({ coins, every_steps, lifetime_reports, odds, ...same }: Record<string, unknown>): Record<string, unknown> {
  const rounds = Object.entries(coins as Record<string, Record<string, ReturnType<typeof coin>>>).map(([part, of]) => [
    part,
    Object.fromEntries(
      Object.entries(of).map(([name, { digits, inverted }]) => [
        name,
        { [inverted ? "no" : "yes"]: Number(smaller(digits).toPrecision(6)) },
      ]),
    ),
  ]);
  const numbers = Object.entries(same).filter(([, value]) => value != null);
  return { ...Object.fromEntries(numbers), ...(odds ? { log_odds: logOdds(odds as Odds) } : {}), coins: Object.fromEntries(rounds) };
}

interface Odds {
  numerator: string;
  shift: number;
}

const logOdds = ({ numerator, shift }: Odds): number => Number(Math.log(Number(BigInt(`0x${numerator}`)) / 2 ** shift).toPrecision(6));

/** The mean overlap of a report of ω values with a memo of m values, if one more common value makes the report θ times as likely. */
function meanOverlap(k: number, m: number, omega: number, theta: number): number {
  const ways = (n: number, j: number): number => (j === 0 ? 1 : (ways(n, j - 1) * (n - j + 1)) / j);
  const weights = Array.from({ length: Math.min(m, omega) + 1 }, (_, j) => ways(m, j) * ways(k - m, omega - j) * theta ** j);
  return weights.reduce((sum, weight, j) => sum + j * weight, 0) / weights.reduce((sum, weight) => sum + weight, 0);
}

function parameters(level: Level, k: number, share: number): Record<string, unknown> {
  const { mechanism, g, omega } = level;
  const [eps = 0, epsInf = 0, eps1 = 0] = [level.eps, level.eps_inf, level.eps_1].map((x) => x && x / share);
  const given: Record<string, unknown> = {
    mechanism,
    k,
    every_steps: level.every_steps ?? 1,
    lifetime_reports: level.lifetime_reports ?? null,
    row_bytes: Math.ceil(k / 8),
  };
  if (mechanism === "SS") {
    const inside = 1 / (1 + ((k - omega!) / omega!) * Math.exp(-eps));
    return { ...given, omega, coins: { report: { with_value: coin(inside) } } };
  }
  if (mechanism === "L-SS") {
    const [m, w, a, b] = [level.memo_size!, omega!, Math.expm1(epsInf), Math.exp(eps1)];
    const wanted = (w * (b * m + ((k - w) * (b - 1)) / a)) / (b * w + k - w);
    let [low, high] = [1, 1e9]; // θ: the loss of a report is that of subset selection with eps_1
    while (high / low > 1 + 1e-12) {
      const theta = Math.sqrt(low * high);
      [low, high] = meanOverlap(k, m, w, theta) < wanted ? [theta, high] : [low, theta];
    }
    const numerator = Math.floor(low * 2 ** 20).toString(16);
    const odds = { numerator: numerator.padStart(numerator.length + (numerator.length % 2), "0"), shift: 20 };
    const inside = 1 / (1 + ((k - m) / m) * Math.exp(-epsInf));
    return { ...given, omega, memo_size: m, odds, coins: { memo: { with_value: coin(inside) }, report: {} } };
  }
  if (mechanism === "SW") {
    const near = level.width! * Math.exp(eps);
    return { ...given, row_bytes: 1, width: level.width, coins: { report: { keep: coin(near / (near + k - 1)) } } };
  }
  if (mechanism === "OUE") return { ...given, coins: { report: bits(0.5, 1 / (Math.exp(eps) + 1)) } };
  if (mechanism === "L-OSUE") {
    const [p, q] = [0.5, 1 / (Math.exp(epsInf) + 1)];
    const [n, m] = [1 - p, 1 - q];
    const a = p * m * (Math.exp(-eps1) - Math.exp(-epsInf));
    const b = (1 - Math.exp(-eps1)) * (p * q + n * m);
    const c = p * m * (1 - Math.exp(-eps1 - epsInf));
    const r = (b + Math.sqrt(b * b + 4 * a * c)) / (2 * a);
    return { ...given, coins: { memo: bits(p, q), report: bits(r / (r + 1), 1 / (r + 1)) } };
  }
  if (mechanism.endsWith("PS-GRR")) {
    const m = level.choices!;
    const member = (loss: number) => ({ member: coin(m / (m + (k - m) * Math.exp(-loss))) });
    const drawn = (loss: number) => Math.log1p(m * Math.expm1(loss)); // the loss for a drawn member
    if (mechanism === "PS-GRR") return { ...given, row_bytes: 1, choices: m, coins: { report: member(eps) } };
    const [memo, report] = [drawn(epsInf), drawn(eps1)];
    const e = Math.log1p(((1 + (k - 1) * Math.exp(-memo)) * Math.expm1(report)) / (1 - Math.exp(report - memo)));
    const keep = { keep: coin(1 / (1 + (k - 1) * Math.exp(-e))) };
    return { ...given, row_bytes: 1, choices: m, coins: { memo: member(epsInf), report: keep } };
  }
  const symbols = g ?? k;
  const keep = (loss: number) => ({ keep: coin(1 / (1 + (symbols - 1) * Math.exp(-loss))) });
  const second = Math.log1p(
    ((1 + (symbols - 1) * Math.exp(-epsInf)) * Math.expm1(eps1)) / (1 - Math.exp(eps1 - epsInf)),
  );
  const coins = mechanism.startsWith("L-") ? { memo: keep(epsInf), report: keep(second) } : { report: keep(eps) };
  const width = (n: number) => (n <= 256 ? 1 : n <= 65536 ? 2 : 4);
  if (!g) return { ...given, row_bytes: width(k), coins };
  let [functions, digits] = [g, 1];
  for (; functions < k; digits++) functions *= g;
  const field = g === 4 ? { characteristic: 2, degree: 2, polynomial: [1, 1, 1] } : { characteristic: g, degree: 1, polynomial: [0, 1] };
  return { ...given, g, functions, digits, stride: k - 1, field, row_bytes: width(functions) + width(g), coins };
}

/** The coin of a probability, to 2^-53. */
export function coin(probability: number): { digits: string; inverted: boolean } {
  const inverted = probability > 0.5;
  const smaller = BigInt(Math.round((inverted ? 1 - probability : probability) * 2 ** 53)) * 8n; // 56 bits
  return { digits: smaller.toString(16).padStart(14, "0"), inverted };
}

const bits = (p: number, q: number) => ({ one: coin(p), zero: coin(q) });

/** A reproducible source of bytes: the key stream of AES in counter mode. */
export function seeded(seed: string): RandomBytes {
  const key = createHash("sha256").update(seed).digest();
  const stream = createCipheriv("aes-128-ctr", key.subarray(0, 16), key.subarray(16));
  let pool = Buffer.alloc(0);
  return (n) => {
    if (pool.length < n) pool = Buffer.concat([pool, stream.update(Buffer.alloc(65536 + n))]);
    const drawn = Uint8Array.from(pool.subarray(0, n));
    pool = pool.subarray(n);
    return drawn;
  };
}

/** Returns the given bytes, then throws. */
export function scripted(hex: string): RandomBytes & { left: () => number } {
  let bytes = Buffer.from(hex, "hex");
  const draw = (n: number) => {
    if (n > bytes.length) throw new Error("no random bytes are left");
    const drawn = Uint8Array.from(bytes.subarray(0, n));
    bytes = bytes.subarray(n);
    return drawn;
  };
  return Object.assign(draw, { left: () => bytes.length });
}

/** The row of an envelope whose step is below 65 536. */
export function row(envelope: Uint8Array | null): Uint8Array {
  if (!envelope) throw new Error("no report");
  const at = { 0xcc: 16, 0xcd: 17 }[envelope[14]!] ?? 15; // the first byte after the step
  if (envelope[at] !== 1) throw new Error("not one report");
  return envelope.slice(at + (envelope[at + 1] === 0xc4 ? 3 : 4));
}

export const LONG: Level = { mechanism: "L-GRR", eps_inf: 2, eps_1: 1 };
export const BITS: Level = { mechanism: "L-OSUE", eps_inf: 2, eps_1: 1 };
export const HASHED: Level = { mechanism: "L-OLH", eps_inf: 2, eps_1: 1, g: 4 };
export const ONCE: Level = { mechanism: "GRR", eps: 1 };
export const SETS: Level = { mechanism: "L-PS-GRR", eps_inf: 2, eps_1: 1, choices: 2 };
export const SPACED: Level = { mechanism: "GRR", eps: 1, every_steps: 4, lifetime_reports: 3 };

/** Returns the survey whose only level has these parameters, and states the same losses. */
export function surveyOf(parameters: Record<string, any>): Promise<Survey> {
  const keys = ["mechanism", "eps", "eps_inf", "eps_1", "g", "omega", "memo_size", "width", "choices", "lifetime_reports"].filter((key) => parameters[key] != null);
  const level = { every_steps: parameters["every_steps"], ...Object.fromEntries(keys.map((key) => [key, parameters[key]])) };
  const { k, choices } = parameters;
  const values = Array.from({ length: choices ? k - choices : 0 }, (_, v) => `v${v}`);
  const question: Question = choices ? { domain: { values, choices }, levels: [level as Level] } : { k, levels: [level as Level] };
  return openSurvey(document([question], {}, [[parameters]]));
}
