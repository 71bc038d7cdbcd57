/** The mechanisms, by their names, and the randomizer of a device. */

import { BITS, HASHED, SETS, SUBSET, SUBSETS, SYMBOLS, WAVE, type Family, type Sizes } from "./families.js";
import { hash } from "./field.js";
import { below, type Coin, type RandomBytes } from "./random.js";

/** All mechanisms. A memoized mechanism's name begins with `L-`. To add a mechanism, add its name here, or a family in `families.ts`. */
export const MECHANISMS: Readonly<Record<string, Family>> = {
  "GRR": SYMBOLS, "L-GRR": SYMBOLS, "SW": WAVE,
  "SUE": BITS, "OUE": BITS, "THE": BITS, "L-SUE": BITS, "L-OSUE": BITS, "L-SOUE": BITS, "L-OUE": BITS,
  "BLH": HASHED, "OLH": HASHED, "L-BLH": HASHED, "L-OLH": HASHED,
  "SS": SUBSET, "L-SS": SUBSETS,
  "PS-GRR": SETS, "L-PS-GRR": SETS,
}; // prettier-ignore

/** The coins of a memo or of a report, by their names. */
export type Coins = Readonly<Record<string, Coin>>;

/** A mechanism with its parameters, checked by `openSurvey`. */
export interface Mechanism extends Sizes {
  readonly name: string;
  readonly family: Family;
  readonly k: number; // number of values; for sets, plus `choices`
  readonly everySteps: number; // the device reports at one of this many consecutive steps
  readonly lifetimeReports: number; // Infinity for no limit
  readonly memo: Coins | null; // null for a one-time mechanism
  readonly report: Coins;
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
  return m.family.first(m, m.memo, key, hashFunction, random);
}

/** Draws a report from a memo: a row. */
export function reportMemo(m: Mechanism, memo: Uint8Array, random: RandomBytes): Uint8Array {
  return m.family.second(m, memo, random);
}

/** Draws a report of a one-time mechanism: a row. */
export function reportOnce(m: Mechanism, value: number, random: RandomBytes): Uint8Array {
  const hashFunction = below(m.functions, random);
  return m.family.first(m, m.report, memoKey(m, value, hashFunction), hashFunction, random);
}

/** True if a device with this hash function could have drawn the memo. */
export function isMemo(m: Mechanism, row: Uint8Array, hashFunction: number): boolean {
  return row.length === m.rowBytes && m.family.isFirst(m, row, hashFunction);
}
