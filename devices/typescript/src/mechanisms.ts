/** The mechanisms' randomizers. Rows, memos and the order of random bytes are as in docs/write_a_device.md. */

import { hash, type Field } from "./field.js";
import { below, toss, type Coin, type RandomBytes } from "./random.js";

/** The mechanisms, by the kind of their reports. A memoized mechanism's name begins with `L-`. */
export const FAMILIES: Readonly<Record<string, Family>> = {
  "GRR": "symbol", "L-GRR": "symbol", "SW": "symbol",
  "SUE": "bits", "OUE": "bits", "THE": "bits", "L-SUE": "bits", "L-OSUE": "bits", "L-SOUE": "bits", "L-OUE": "bits",
  "BLH": "hashed", "OLH": "hashed", "L-BLH": "hashed", "L-OLH": "hashed",
  "SS": "subset",
  "PS-GRR": "symbol", "L-PS-GRR": "symbol",
}; // prettier-ignore

export type Family = "symbol" | "bits" | "hashed" | "subset";

/** The randomization of a memo or of a report. `keep` randomizes a symbol. */
export type Round =
  | { readonly keep: Coin }
  | { readonly member: Coin } // draws a member of a padded set, or another symbol
  | { readonly one: Coin; readonly zero: Coin } // Pr[a one becomes a one], Pr[a zero becomes a one]
  | { readonly withValue: Coin };

/** A mechanism with its parameters, checked by `openSurvey`. */
export interface Mechanism {
  readonly name: string;
  readonly family: Family;
  readonly k: number; // number of values; for sets, plus `choices`
  readonly rowBytes: number;
  readonly everySteps: number; // the device reports at one of this many consecutive steps
  readonly lifetimeReports: number; // Infinity for no limit
  readonly memo: Round | null; // null for a one-time mechanism
  readonly report: Round;
  readonly symbols: number; // number of symbols of a report: k, or the number g of hashed symbols, or k - 1 + near
  readonly near: number; // Square Wave: symbols v … v + near - 1 are near value v; 1 for other mechanisms
  readonly functions: number; // number of hash functions; 1 without hashing
  readonly stride: number; // hashing: a value v has the place v · stride mod k; 1 without hashing
  readonly field: Field | null; // hashing only
  readonly omega: number; // ones in a subset; 0 for other families
  readonly choices: number; // largest number of values of a set; 0 for mechanisms of one value
}

/** Draws the device's permanent hash function; 0 for mechanisms without one. */
export function drawFunction(m: Mechanism, random: RandomBytes): number {
  return m.field && m.memo ? below(m.functions, random) : 0;
}

/** Returns the key of the memo of a value: the value (for a set, its code), or its hashed symbol H_a(v). */
export function memoKey(m: Pick<Mechanism, "k" | "stride" | "field">, value: number, hashFunction: number): number {
  return m.field ? hash(m.field, hashFunction, (value * m.stride) % m.k) : value; // below 2^48, so exact
}

/** Draws a new memo for a memo key: a row. */
export function drawMemo(m: Mechanism, key: number, hashFunction: number, random: RandomBytes): Uint8Array {
  if (!m.memo) throw new TypeError(`${m.name} has no memo`);
  return randomize(m, m.memo, key, hashFunction, random);
}

/** Draws a report from a memo: a row. */
export function reportMemo(m: Mechanism, memo: Uint8Array, random: RandomBytes): Uint8Array {
  if ("one" in m.report) return bits(unpacked(memo, m.k), m.report.one, m.report.zero, random);
  const [hashFunction, symbol] = numbers(m, memo);
  return randomize(m, m.report, symbol, hashFunction, random);
}

/** Draws a report of a one-time mechanism: a row. */
export function reportOnce(m: Mechanism, value: number, random: RandomBytes): Uint8Array {
  const hashFunction = below(m.functions, random);
  return randomize(m, m.report, memoKey(m, value, hashFunction), hashFunction, random);
}

/** True if a device with this hash function could have drawn the memo. */
export function isMemo(m: Mechanism, row: Uint8Array, hashFunction: number): boolean {
  if (row.length !== m.rowBytes) return false;
  if (m.family === "bits") return m.k % 8 === 0 || row[m.rowBytes - 1]! < 2 ** (m.k % 8);
  const [kept, symbol] = numbers(m, row);
  return kept === hashFunction && symbol < m.symbols;
}

/** Size in bytes of the smallest unsigned integer type that holds 0 … n-1. */
export function width(n: number): number {
  return n <= 2 ** 8 ? 1 : n <= 2 ** 16 ? 2 : 4;
}

/** Applies a round to a value or a hashed symbol. */
function randomize(m: Mechanism, round: Round, symbol: number, hashFunction: number, random: RandomBytes): Uint8Array {
  if ("one" in round) {
    const value = new Uint8Array(m.k);
    value[symbol] = 1;
    return bits(value, round.one, round.zero, random);
  }
  if ("withValue" in round) return subset(m, symbol, round.withValue, random);
  const drawn = "member" in round ? randomMember(m, symbol, round.member, random) : randomSymbol(m, symbol, round.keep, random);
  const parts = m.field ? [...littleEndian(hashFunction, width(m.functions))] : [];
  return Uint8Array.from([...parts, ...littleEndian(drawn, width(m.symbols))]);
}

/** Draws one of the symbols `symbol` … `symbol` + near - 1, or one of the others. */
function randomSymbol(m: Mechanism, symbol: number, keep: Coin, random: RandomBytes): number {
  if (toss(keep, 1, random)[0]) return symbol + below(m.near, random);
  const other = below(m.symbols - m.near, random);
  return other >= symbol ? other + m.near : other;
}

/** Draws a member of a padded set, or one of the other symbols. Bit v of the code is set if the set has the value v. */
function randomMember(m: Mechanism, code: number, member: Coin, random: RandomBytes): number {
  const n = m.symbols - m.choices; // number of values
  const chosen = Array.from({ length: n }, (_, v) => v).filter((v) => (code >> v) & 1);
  const padded = [...chosen, ...Array.from({ length: m.choices - chosen.length }, (_, i) => n + i)];
  if (toss(member, 1, random)[0]) return padded[below(m.choices, random)]!;
  const others = Array.from({ length: m.symbols }, (_, s) => s).filter((s) => !padded.includes(s));
  return others[below(n, random)]!;
}

function bits(ones: Uint8Array, one: Coin, zero: Coin, random: RandomBytes): Uint8Array {
  const nOnes = ones.reduce((sum, bit) => sum + bit, 0);
  const ofOnes = toss(one, nOnes, random);
  const ofZeros = toss(zero, ones.length - nOnes, random);
  let o = 0;
  let z = 0;
  return packed(ones.map((bit) => Number(bit ? ofOnes[o++]! : ofZeros[z++]!)));
}

/** Draws whether the set contains the value, then the other members by Floyd's algorithm. */
function subset(m: Mechanism, value: number, withValue: Coin, random: RandomBytes): Uint8Array {
  const inside = toss(withValue, 1, random)[0]!;
  const nOthers = m.omega - Number(inside);
  const others = new Set<number>();
  for (let last = m.k - 1 - nOthers; last < m.k - 1; last++) {
    const drawn = below(last + 1, random);
    others.add(others.has(drawn) ? last : drawn);
  }
  const members = new Uint8Array(m.k);
  for (const other of others) members[other >= value ? other + 1 : other] = 1;
  members[value] = Number(inside);
  return packed(members);
}

/** Packs bits into bytes; bit 0 is the least significant bit of byte 0. */
function packed(ones: Uint8Array): Uint8Array {
  const row = new Uint8Array(Math.ceil(ones.length / 8));
  ones.forEach((bit, i) => (row[i >> 3]! |= bit << (i & 7)));
  return row;
}

function unpacked(row: Uint8Array, k: number): Uint8Array {
  return new Uint8Array(k).map((_, i) => (row[i >> 3]! >> (i & 7)) & 1);
}

/** The hash function (0 without hashing) and the symbol of a row. */
function numbers(m: Mechanism, row: Uint8Array): [number, number] {
  const split = m.field ? width(m.functions) : 0;
  const number = (bytes: Uint8Array) => bytes.reduceRight((sum, byte) => sum * 256 + byte, 0);
  return [number(row.subarray(0, split)), number(row.subarray(split))];
}

function littleEndian(n: number, bytes: number): number[] {
  return Array.from({ length: bytes }, (_, i) => Math.floor(n / 256 ** i) % 256);
}
