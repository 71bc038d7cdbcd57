/** The draws of the mechanisms, in the order of docs/reference/write_a_device.md, and the rows that they make. */

import { below, toss, type Coin, type RandomBytes } from "./random.js";

/** Draws one of the symbols `symbol` … `symbol` + near - 1, or one of the other symbols. */
export function randomSymbol(symbols: number, near: number, symbol: number, keep: Coin, random: RandomBytes): number {
  if (toss(keep, 1, random)[0]) return symbol + below(near, random);
  const other = below(symbols - near, random);
  return other >= symbol ? other + near : other;
}

/** Draws a member of a padded set, or one of the other symbols. Bit v of the code is set if the set has the value v. */
export function randomMember(symbols: number, choices: number, code: number, member: Coin, random: RandomBytes): number {
  const n = symbols - choices; // number of values
  const chosen = Array.from({ length: n }, (_, v) => v).filter((v) => (code >> v) & 1);
  const padded = [...chosen, ...Array.from({ length: choices - chosen.length }, (_, i) => n + i)];
  if (toss(member, 1, random)[0]) return padded[below(choices, random)]!;
  const others = Array.from({ length: symbols }, (_, s) => s).filter((s) => !padded.includes(s));
  return others[below(n, random)]!;
}

/** Randomizes each bit: the ones first, then the zeros. */
export function randomBits(ones: Uint8Array, one: Coin, zero: Coin, random: RandomBytes): Uint8Array {
  const nOnes = ones.reduce((sum, bit) => sum + bit, 0);
  const ofOnes = toss(one, nOnes, random);
  const ofZeros = toss(zero, ones.length - nOnes, random);
  let o = 0;
  let z = 0;
  return ones.map((bit) => Number(bit ? ofOnes[o++]! : ofZeros[z++]!));
}

/** Draws whether a set of `size` of k values contains the value, then the other members. Returns k bits. */
export function randomSubset(k: number, size: number, value: number, withValue: Coin, random: RandomBytes): Uint8Array {
  const members = new Uint8Array(k);
  members[value] = Number(toss(withValue, 1, random)[0]!);
  for (const other of chosen(size - members[value], k - 1, random)) members[other >= value ? other + 1 : other] = 1;
  return members;
}

/** Draws `inside` of the ones and `outside` of the zeros. Returns as many bits. */
export function randomOverlap(bits: Uint8Array, inside: number, outside: number, random: RandomBytes): Uint8Array {
  const places = [...bits.keys()];
  const [ones, zeros] = [places.filter((i) => bits[i]), places.filter((i) => !bits[i])];
  const drawn = new Uint8Array(bits.length);
  for (const i of chosen(inside, ones.length, random)) drawn[ones[i]!] = 1;
  for (const i of chosen(outside, zeros.length, random)) drawn[zeros[i]!] = 1;
  return drawn;
}

/** Draws n of the numbers below `from` by Floyd's algorithm: each set of n numbers is equally likely. */
export function chosen(n: number, from: number, random: RandomBytes): Set<number> {
  const numbers = new Set<number>();
  for (let last = from - n; last < from; last++) {
    const drawn = below(last + 1, random);
    numbers.add(numbers.has(drawn) ? last : drawn);
  }
  return numbers;
}

/** Packs bits into bytes; bit 0 is the least significant bit of byte 0. */
export function packed(ones: Uint8Array): Uint8Array {
  const row = new Uint8Array(Math.ceil(ones.length / 8));
  ones.forEach((bit, i) => (row[i >> 3]! |= bit << (i & 7)));
  return row;
}

export function unpacked(row: Uint8Array, k: number): Uint8Array {
  return new Uint8Array(k).map((_, i) => (row[i >> 3]! >> (i & 7)) & 1);
}

/** Size in bytes of the smallest unsigned integer type that holds 0 … n-1. */
export function width(n: number): number {
  return n <= 2 ** 8 ? 1 : n <= 2 ** 16 ? 2 : 4;
}

export function littleEndian(n: number, bytes: number): number[] {
  return Array.from({ length: bytes }, (_, i) => Math.floor(n / 256 ** i) % 256);
}

export function fromLittleEndian(bytes: Uint8Array): number {
  return bytes.reduceRight((sum, byte) => sum * 256 + byte, 0);
}
