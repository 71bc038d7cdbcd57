/**
 * The families of mechanisms: the parameters, the draws and the privacy losses. `MECHANISMS` in `mechanisms.ts` maps each name to
 * its family. Rows, memos and the order of random bytes are as in docs/reference/write_a_device.md, which also states the formulas of losses.
 */

import {
  fromLittleEndian, littleEndian, packed, randomBits, randomMember, randomOverlap, randomSubset, randomSymbol, unpacked, width,
} from "./draws.js"; // prettier-ignore
import { UnknownSurvey, UnsafeSurvey } from "./errors.js";
import { parseField, type Field } from "./field.js";
import { integer, object, text, type Fields } from "./json.js";
import type { Coins, Mechanism } from "./mechanisms.js";
import { belowBig, probabilities, type RandomBytes } from "./random.js";

/** The parameters that only some families have. */
export interface Sizes {
  readonly rowBytes: number;
  readonly symbols: number; // number of symbols of a report: k, or the number g of hashed symbols, or k - 1 + near
  readonly near: number; // Square Wave: symbols v … v + near - 1 are near value v; 1 for other mechanisms
  readonly functions: number; // number of hash functions; 1 without hashing
  readonly stride: number; // hashing: a value v has the place v · stride mod k; 1 without hashing
  readonly field: Field | null; // hashing only
  readonly omega: number; // ones in a subset; 0 for other families
  readonly memos: MemoSets | null; // L-SS only
}

/** The memos of L-SS, and the overlaps of a report with its memo. */
export interface MemoSets {
  readonly size: number; // ones in a memo
  readonly logOdds: number; // ln θ: a report with one more member of the memo is θ times as likely
  readonly cumulated: readonly bigint[]; // number j: the weights of the overlaps 0 … j together
}

/** One family. The first round draws a memo, or the report of a one-time mechanism; the second round draws a report from a memo. */
export interface Family {
  readonly coins: { readonly first: readonly string[]; readonly second: readonly string[] }; // names
  readonly sets?: boolean; // true for questions with several answers
  /** Reads and checks the family's own parameters. */
  sizes(k: number, given: Fields, where: string): Partial<Sizes> & Pick<Sizes, "rowBytes">;
  /** Draws the row of the first round from a value or a memo key. */
  first(m: Mechanism, coins: Coins, key: number, hashFunction: number, random: RandomBytes): Uint8Array;
  /** Draws the row of the second round. */
  second(m: Mechanism, memo: Uint8Array, random: RandomBytes): Uint8Array;
  /** True if a device with this hash function could have drawn the row, of `rowBytes` bytes, in the first round. */
  isFirst(m: Mechanism, row: Uint8Array, hashFunction: number): boolean;
  /** Returns the privacy loss of one round, in nats. */
  loss(m: Mechanism, coins: Coins): number;
  /** Returns the loss of t reports of one memo, t >= 1, in nats. */
  lossOfReports(m: Mechanism, memo: Coins, report: Coins, t: number): number;
  /** Returns the loss of a report between any two memos, in nats. */
  lossOfMemos(m: Mechanism, report: Coins): number;
}

const MAX_OVERLAP_K = 1024;
const MAX_WEIGHT_BITS = 65536; // of the sum of the weights
const MAX_FIELD = 1024;
const MAX_HASHED_K = 2 ** 24; // also keeps the number of hash functions below 2^32

// ---- symbols

/** The probabilities of a symbol near the value and of another symbol. */
function ofSymbols(m: Mechanism, coins: Coins): { p: number; q: number } {
  const { yes, no } = probabilities(coins["keep"]!);
  return { p: yes / m.near, q: no / (m.symbols - m.near) };
}

/** GRR, L-GRR: a symbol. ε_t = ln[(E₁E^t + n-1) / (E^t + E₁ + n-2)] for n symbols, E₁ = p₁/q₁, E = p₂/q₂. */
export const SYMBOLS: Family = {
  coins: { first: ["keep"], second: ["keep"] },
  sizes: (k) => ({ rowBytes: width(k) }),
  first: (m, coins, key, _, random) => symbolRow(m, randomSymbol(m.symbols, m.near, key, coins["keep"]!, random)),
  second: (m, memo, random) => symbolRow(m, randomSymbol(m.symbols, m.near, fromLittleEndian(memo), m.report["keep"]!, random)),
  isFirst: (m, row) => fromLittleEndian(row) < m.symbols,
  loss(m, coins) {
    const { p, q } = ofSymbols(m, coins);
    return Math.log(p) - Math.log(q);
  },
  lossOfReports(m, memo, report, t) {
    const [first, second] = [ofSymbols(m, memo), ofSymbols(m, report)];
    const others = (second.q / second.p) ** t; // E^-t
    const ratio = first.p / first.q;
    return Math.log1p(((ratio - 1) * (1 - others)) / (1 + (ratio + m.symbols - 2) * others));
  },
  lossOfMemos: (m, report) => SYMBOLS.loss(m, report),
};

function symbolRow(m: Mechanism, symbol: number): Uint8Array {
  return Uint8Array.from(littleEndian(symbol, m.rowBytes));
}

/** SW: one of the cells near the value, or another cell. */
export const WAVE: Family = {
  ...SYMBOLS,
  sizes(k, given, where) {
    const near = integer(given["width"], `${where}: width`, 1, k);
    return { near, symbols: k - 1 + near, rowBytes: width(k - 1 + near) };
  },
};

/** BLH, OLH, L-BLH, L-OLH: the hash function and a hashed symbol. */
export const HASHED: Family = {
  ...SYMBOLS,
  sizes(k, given, where) {
    const field = parseField(given["field"], where, MAX_FIELD);
    const g = field.characteristic ** field.degree;
    if (g !== given["g"]) throw new UnknownSurvey(`${where}: the field must have g elements, got ${g}`);
    if (g > MAX_FIELD) throw new UnknownSurvey(`${where}: g must be at most ${MAX_FIELD}, got ${g}`);
    if (k > MAX_HASHED_K) throw new UnknownSurvey(`${where}: k must be at most ${MAX_HASHED_K} for hashing, got ${k}`);
    let functions = g;
    while (functions < k) functions *= g;
    const stride = integer(given["stride"], `${where}: stride`, 1, k - 1);
    // a common factor would give several values one place
    if (commonFactor(stride, k) > 1) throw new UnknownSurvey(`${where}: stride must have no common factor with k = ${k}, got ${stride}`);
    return { field, symbols: g, functions, stride, rowBytes: width(functions) + width(g) };
  },
  first: (m, coins, key, hashFunction, random) => hashedRow(m, hashFunction, randomSymbol(m.symbols, 1, key, coins["keep"]!, random)),
  second(m, memo, random) {
    const [hashFunction, symbol] = hashedPair(m, memo);
    return HASHED.first(m, m.report, symbol, hashFunction, random);
  },
  isFirst(m, row, hashFunction) {
    const [kept, symbol] = hashedPair(m, row);
    return kept === hashFunction && symbol < m.symbols;
  },
};

function hashedRow(m: Mechanism, hashFunction: number, symbol: number): Uint8Array {
  return Uint8Array.from([...littleEndian(hashFunction, width(m.functions)), ...littleEndian(symbol, width(m.symbols))]);
}

function hashedPair(m: Mechanism, row: Uint8Array): [number, number] {
  const split = width(m.functions);
  return [fromLittleEndian(row.subarray(0, split)), fromLittleEndian(row.subarray(split))];
}

function commonFactor(a: number, b: number): number {
  return b === 0 ? a : commonFactor(b, a % b);
}

/** The probabilities of a member of the padded set and of another symbol. */
function ofMembers(m: Mechanism, coins: Coins): { p: number; q: number } {
  const { yes, no } = probabilities(coins["member"]!);
  return { p: yes / m.choices, q: no / (m.symbols - m.choices) };
}

/** PS-GRR, L-PS-GRR: a member of a padded set. ε_t = ln[(A E^t + 1-A) / (B E^t + 1-B)], A and B the chances of a memo. */
export const SETS: Family = {
  ...SYMBOLS,
  coins: { first: ["member"], second: ["keep"] },
  sets: true,
  first: (m, coins, key, _, random) => symbolRow(m, randomMember(m.symbols, m.choices, key, coins["member"]!, random)),
  loss(m, coins) {
    const { p, q } = ofMembers(m, coins);
    return Math.log(p) - Math.log(q);
  },
  lossOfReports(m, memo, report, t) {
    const [{ p, q }, second] = [ofMembers(m, memo), ofSymbols(m, report)];
    const others = (second.q / second.p) ** t;
    return Math.log1p(((p - q) * (1 - others)) / (q + (1 - q) * others));
  },
};

// ---- bits

/** The probabilities of a one from a one, a zero from a one, a one from a zero, a zero from a zero. */
function ofBits(coins: Coins): { p: number; notP: number; q: number; notQ: number } {
  const [one, zero] = [probabilities(coins["one"]!), probabilities(coins["zero"]!)];
  return { p: one.yes, notP: one.no, q: zero.yes, notQ: zero.no };
}

/** SUE, OUE, THE and their chains: k bits. The loss is largest if every report has a one for one value and a zero for the other. */
export const BITS: Family = {
  coins: { first: ["one", "zero"], second: ["one", "zero"] },
  sizes: (k) => ({ rowBytes: Math.ceil(k / 8) }),
  first(m, coins, key, _, random) {
    const value = new Uint8Array(m.k);
    value[key] = 1;
    return packed(randomBits(value, coins["one"]!, coins["zero"]!, random));
  },
  second: (m, memo, random) => packed(randomBits(unpacked(memo, m.k), m.report["one"]!, m.report["zero"]!, random)),
  isFirst: (m, row) => m.k % 8 === 0 || row[m.rowBytes - 1]! < 2 ** (m.k % 8),
  loss(_, coins) {
    // two values differ in two bits; the worst outcomes of these bits add up
    const { p, notP, q, notQ } = ofBits(coins);
    return Math.log(p) - Math.log(q) + Math.log(notQ) - Math.log(notP);
  },
  lossOfReports(_, memo, report, t) {
    const [first, second] = [ofBits(memo), ofBits(report)];
    const one = (second.q / second.p) ** t;
    const zero = (second.notP / second.notQ) ** t;
    return (
      Math.log((first.p + first.notP * one) / (first.q + first.notQ * one)) +
      Math.log((first.notQ + first.q * zero) / (first.notP + first.p * zero))
    );
  },
  lossOfMemos(m, report) {
    const { p, notP, q, notQ } = ofBits(report); // two memos can differ in all bits
    return m.k * Math.max(Math.abs(Math.log(p / q)), Math.abs(Math.log(notQ / notP)));
  },
};

// ---- subsets

/** SS: k bits, of which ω are ones. */
export const SUBSET: Family = {
  ...BITS,
  coins: { first: ["with_value"], second: [] },
  sizes: (k, given, where) => ({ omega: integer(given["omega"], `${where}: omega`, 1, k - 1), rowBytes: Math.ceil(k / 8) }),
  first: (m, coins, key, _, random) => packed(randomSubset(m.k, m.omega, key, coins["with_value"]!, random)),
  loss(m, coins) {
    // C(k-1, ω-1) sets contain the value, C(k-1, ω) do not; the quotient of these numbers is ω / (k - ω)
    const { yes, no } = probabilities(coins["with_value"]!);
    return Math.log(yes / m.omega) - Math.log(no / (m.k - m.omega));
  },
};

/** L-SS: the memo is a subset of `memos.size` values, the report one of ω values, likelier the more values both have. */
export const SUBSETS: Family = {
  ...SUBSET,
  sizes(k, given, where) {
    const largest = Math.floor(Math.min(k, MAX_OVERLAP_K) / 2);
    integer(k, `${where}: k`, 2, MAX_OVERLAP_K);
    const size = integer(given["memo_size"], `${where}: memo_size`, 1, largest);
    const omega = integer(given["omega"], `${where}: omega`, 1, largest);
    return { omega, memos: parseMemoSets(k, size, omega, object(given["odds"], `${where}: odds`), where), rowBytes: Math.ceil(k / 8) };
  },
  first: (m, coins, key, _, random) => packed(randomSubset(m.k, m.memos!.size, key, coins["with_value"]!, random)),
  second(m, memo, random) {
    const { cumulated } = m.memos!;
    const drawn = belowBig(cumulated.at(-1)!, random);
    const overlap = cumulated.findIndex((sum) => sum > drawn);
    return packed(randomOverlap(unpacked(memo, m.k), overlap, m.omega - overlap, random));
  },
  isFirst: (m, row) => BITS.isFirst(m, row, 0) && unpacked(row, m.k).reduce((sum, bit) => sum + bit, 0) === m.memos!.size,
  loss: (m, coins) => SUBSET.loss({ ...m, omega: m.memos!.size }, coins),
  lossOfReports(m, memo, _, t) {
    if (t > 1) return SUBSETS.loss(m, memo); // an upper bound; the service knows the exact loss
    const { size, logOdds } = m.memos!;
    const logs = [0];
    for (let j = 0; j < Math.min(size, m.omega); j++) {
      logs.push(logs[j]! + logOdds + Math.log(((size - j) * (m.omega - j)) / ((j + 1) * (m.k - size - m.omega + j + 1))));
    }
    const largest = Math.max(...logs);
    const chances = logs.map((log) => Math.exp(log - largest));
    const mean = (of: (j: number) => number) => chances.reduce((sum, chance, j) => sum + of(j) * chance, 0) / chances.reduce((sum, chance) => sum + chance, 0);
    const overlap = mean((j) => j);
    const { yes, no } = probabilities(memo["with_value"]!);
    const [inside, outside] = [overlap / size, (m.omega - overlap) / (m.k - size)]; // chances of a member of the memo, and of another value
    const p = yes * inside + no * outside;
    const notP = (yes * mean((j) => size - j)) / size + no * (1 - outside); // 1 - inside would cancel for large losses
    return Math.log(p / m.omega) - Math.log(notP / (m.k - m.omega));
  },
  lossOfMemos: (m) => Math.min(m.memos!.size, m.omega) * m.memos!.logOdds,
};

function parseMemoSets(k: number, size: number, omega: number, odds: Fields, where: string): MemoSets {
  const shift = integer(odds["shift"], `${where}: odds.shift`, 0, 128);
  const digits = text(odds["numerator"], `${where}: odds.numerator`);
  const most = Math.min(size, omega);
  const lost = (4 * digits.length - 8) * most >= MAX_WEIGHT_BITS; // the weights would be too large to compute
  if (lost || !/^(?!00)([0-9a-f]{2})+$/.test(digits)) throw new UnknownSurvey(`${where}: odds.numerator must be a short hexadecimal number`);
  const [numerator, denominator] = [BigInt(`0x${digits}`), 1n << BigInt(shift)];
  if (numerator <= denominator) throw new UnsafeSurvey(`${where}: odds must be above 1`);
  const cumulated: bigint[] = [];
  let sum = 0n;
  for (let j = 0; j <= most; j++) {
    sum += ways(size, j) * ways(k - size, omega - j) * numerator ** BigInt(j) * denominator ** BigInt(most - j);
    cumulated.push(sum);
  }
  if (sum >> BigInt(MAX_WEIGHT_BITS)) throw new UnknownSurvey(`${where}: the weights of the overlaps are too large`);
  return { size, logOdds: Math.log1p(Number(numerator - denominator) / Number(denominator)), cumulated };
}

/** Returns the number of subsets of j of n values. */
function ways(n: number, j: number): bigint {
  let number = 1n;
  for (let i = 1; i <= j; i++) number = (number * BigInt(n - j + i)) / BigInt(i);
  return number;
}
