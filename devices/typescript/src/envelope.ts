/** The envelope, version 1: `[1, fingerprint, attribute, level, step, 1, row]` as msgpack. */

/** Returns the envelope of one report. */
export function seal(fingerprint: Uint8Array, attribute: number, level: number, step: number, row: Uint8Array): Uint8Array {
  return Uint8Array.from([
    0x97, // an array of seven elements
    ...integer(1),
    ...binary(fingerprint),
    ...integer(attribute),
    ...integer(level),
    ...integer(step),
    ...integer(1),
    ...binary(row),
  ]);
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
