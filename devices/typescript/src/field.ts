/** The hash functions of local hashing: linear forms over the finite field GF(g), g = r^e. */

import { UnknownSurvey } from "./errors.js";
import { integer, list, object } from "./json.js";

/** The field, from the device survey. An element 0 … g-1 is a polynomial: its coefficients are the base-r digits, least first. */
export interface Field {
  readonly characteristic: number; // r, a prime
  readonly degree: number; // e
  readonly polynomial: readonly number[]; // monic, of degree e; coefficients, least power first
}

/** Reads a field, with at most `most` elements in its prime field. */
export function parseField(raw: unknown, where: string, most: number): Field {
  const given = object(raw, `${where}: field`);
  const characteristic = integer(given["characteristic"], `${where}: characteristic`, 2, most);
  const degree = integer(given["degree"], `${where}: degree`, 1, 10);
  const polynomial = list(given["polynomial"], `${where}: polynomial`).map((coefficient) =>
    integer(coefficient, `${where}: polynomial`, 0, characteristic - 1),
  );
  if (polynomial.length !== degree + 1 || polynomial[degree] !== 1) {
    throw new UnknownSurvey(`${where}: polynomial must be monic of degree ${degree}`);
  }
  return { characteristic, degree, polynomial };
}

/** Returns Σ a_j v_j in GF(g), over all base-g digits j of the function a and of a value's place. */
export function hash(field: Field, hashFunction: number, place: number): number {
  const { characteristic: r, degree: e, polynomial } = field;
  const g = r ** e;
  const sum = new Array<number>(2 * e - 1).fill(0); // a sum of products of polynomials, reduced at the end
  for (let a = hashFunction, v = place; v > 0; a = Math.floor(a / g), v = Math.floor(v / g)) {
    const left = coefficients(a % g, field);
    const right = coefficients(v % g, field);
    left.forEach((x, i) => right.forEach((y, j) => (sum[i + j] = (sum[i + j]! + x * y) % r)));
  }
  for (let power = 2 * e - 2; power >= e; power--) {
    const top = sum[power]!;
    for (let i = 0; i <= e; i++) sum[power - e + i] = (sum[power - e + i]! + top * (r - polynomial[i]!)) % r;
  }
  return sum.slice(0, e).reduceRight((symbol, coefficient) => symbol * r + coefficient, 0);
}

function coefficients(element: number, { characteristic, degree }: Field): number[] {
  return Array.from({ length: degree }, (_, i) => Math.floor(element / characteristic ** i) % characteristic);
}
