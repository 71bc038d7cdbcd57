/**
 * The envelope, version 1, as msgpack: `[1, fingerprint, attribute, level, step, 1, row]`, or `[1, fingerprint, attribute, level, step,
 * 1, cohort, row]` for a survey with cohorts.
 */

import type { Survey } from "./survey.js";

/** Returns the envelope of one report; `cohort` is an index, and null for a survey without cohorts. */
export function seal(
  fingerprint: Uint8Array,
  attribute: number,
  level: number,
  step: number,
  row: Uint8Array,
  cohort: number | null,
): Uint8Array {
  return Uint8Array.from([
    cohort === null ? 0x97 : 0x98, // an array of seven or eight elements
    ...integer(1),
    ...binary(fingerprint),
    ...integer(attribute),
    ...integer(level),
    ...integer(step),
    ...integer(1),
    ...(cohort === null ? [] : integer(cohort)),
    ...binary(row),
  ]);
}

/** Size in bytes of the survey's largest envelope. */
export function largestEnvelope({ fingerprint, cohort, attributes }: Survey): number {
  const last = cohort && cohort.values.length - 1;
  const sizes = attributes.flatMap(({ levels }, a) =>
    levels.map(({ mechanism }, i) => seal(fingerprint, a, i, Number.MAX_SAFE_INTEGER, new Uint8Array(mechanism.rowBytes), last).length),
  );
  return Math.max(...sizes);
}

/** The shortest msgpack form of an integer in [0, 2^53). */
function integer(n: number): number[] {
  if (n < 0x80) return [n];
  if (n < 0x100) return [0xcc, n];
  if (n < 0x10000) return [0xcd, ...bigEndian(n, 2)];
  return n < 2 ** 32 ? [0xce, ...bigEndian(n, 4)] : [0xcf, ...bigEndian(n, 8)];
}

function* binary(bytes: Uint8Array): Generator<number> {
  const n = bytes.length;
  yield* n < 0x100 ? [0xc4, n] : n < 0x10000 ? [0xc5, ...bigEndian(n, 2)] : [0xc6, ...bigEndian(n, 4)];
  yield* bytes;
}

function bigEndian(n: number, width: number): number[] {
  return Array.from({ length: width }, (_, i) => Math.floor(n / 256 ** (width - 1 - i)) % 256);
}
