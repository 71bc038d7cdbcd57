/**
 * Randomness of one device: exact coins and uniform integers from Web Crypto.
 *
 * A coin's probability is a list of base-256 digits 0.d₁d₂…. A toss draws uniform digits u₁, u₂, … one by one:
 *
 *     u₁ < d₁: yes      u₁ > d₁: no      u₁ = d₁: draw u₂ and go on; no, when the digits have ended
 *
 * Hence Pr[yes] is exact, and no floating-point number depends on a value.
 */

import { toHex } from "./bytes.js";

/** Returns n uniform bytes. */
export type RandomBytes = (n: number) => Uint8Array;

const LARGEST_DRAW = 65536; // limit of bytes in one call of getRandomValues

/** Draws n bytes from Web Crypto. */
export function systemBytes(n: number): Uint8Array {
  const bytes = new Uint8Array(n);
  for (let from = 0; from < n; from += LARGEST_DRAW) crypto.getRandomValues(bytes.subarray(from, from + LARGEST_DRAW));
  return bytes;
}

/** An exact probability, stored for tossing. */
export interface Coin {
  /** Base-256 digits of the smaller probability after the point, most significant first. */
  readonly digits: Uint8Array;
  /** True if "no" has the smaller probability. */
  readonly inverted: boolean;
}

/** Pr[yes] and Pr[no] as floating-point numbers, both with a small relative error. */
export function probabilities(coin: Coin): { yes: number; no: number } {
  const smaller = coin.digits.reduceRight((sum, digit) => (sum + digit) / 256, 0);
  return coin.inverted ? { yes: 1 - smaller, no: smaller } : { yes: smaller, no: 1 - smaller };
}

/** Returns n independent tosses of the coin. */
export function toss(coin: Coin, n: number, random: RandomBytes): boolean[] {
  const tosses = new Array<boolean>(n).fill(coin.inverted);
  let undecided = [...tosses.keys()];
  for (const digit of coin.digits) {
    if (undecided.length === 0) break;
    const drawn = random(undecided.length);
    const ties: number[] = [];
    undecided.forEach((place, i) => {
      const u = drawn[i]!;
      if (u < digit) tosses[place] = !coin.inverted;
      else if (u === digit) ties.push(place);
    });
    undecided = ties;
  }
  return tosses;
}

/** Returns a uniform integer in [0, n), 1 <= n <= 2^32, without bias. */
export function below(n: number, random: RandomBytes): number {
  const bits = n > 1 ? 32 - Math.clz32(n - 1) : 0;
  if (bits === 0) return 0;
  for (;;) {
    const drawn = random(Math.ceil(bits / 8)).reduce((number, byte) => number * 256 + byte, 0) % 2 ** bits;
    if (drawn < n) return drawn;
  }
}

/** Returns a uniform integer in [0, n), n >= 1, without bias. */
export function belowBig(n: bigint, random: RandomBytes): bigint {
  const bits = n > 1n ? (n - 1n).toString(2).length : 0;
  if (bits === 0) return 0n;
  for (;;) {
    const drawn = BigInt.asUintN(bits, BigInt(`0x${toHex(random(Math.ceil(bits / 8)))}`));
    if (drawn < n) return drawn;
  }
}

/** Returns the items in a uniformly random order: the shuffle of Fisher and Yates. */
export function shuffled<T>(items: readonly T[], random: RandomBytes): T[] {
  const order = [...items];
  for (let left = order.length; left > 1; left--) {
    const drawn = below(left, random);
    [order[left - 1], order[drawn]] = [order[drawn]!, order[left - 1]!];
  }
  return order;
}
