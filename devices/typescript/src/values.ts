/** Converts a person's value to its index. */

import type { Attribute } from "./survey.js";

const NUMBER = /^ *[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)? *$/i;

/** A person's value of one attribute. */
export type Value = string | number;

/**
 * Returns the index that the device reports for a value; the code of a set, whose bit v is set if the set has the value v.
 *
 * @param value a text as the survey writes it, or a number: the index of one of the survey's `values`, an integer for a `size`, or a
 *   number for `bins`. The survey decides whether other texts and numbers become one of its values: `unlisted` and `nearest`.
 *   For a pair: an array with the values of its two attributes. For an attribute with `choices`: an array with all of the person's
 *   values, at most `choices` different ones, perhaps none.
 * @throws RangeError if the survey refuses the value. The message hides the value.
 */
export function valueIndex(attribute: Attribute, value: Value | readonly Value[]): number {
  const { values, edges, k, pair, choices } = attribute;
  if (pair) return combination(attribute, pair, value);
  if (choices) return setCode(attribute, choices, value);
  if (typeof value === "object") value = NaN;
  const index = values ? listed(attribute, value) : edges ? bin(attribute, edges, numeric(value)) : size(attribute, numeric(value));
  if (!(Number.isInteger(index) && index >= 0 && index < k)) {
    throw new RangeError(`not a value of the attribute ${attribute.name} (${domain(attribute)})`);
  }
  return index + 0; // never -0
}

function combination({ name }: Attribute, [first, second]: readonly [Attribute, Attribute], value: Value | readonly Value[]): number {
  if (!Array.isArray(value) || value.length !== 2) {
    throw new RangeError(`${name} is a pair: its value must be an array with the values of ${first.name} and ${second.name}`);
  }
  return valueIndex(first, value[0]) * second.k + valueIndex(second, value[1]);
}

function setCode(attribute: Attribute, choices: number, given: Value | readonly Value[]): number {
  const { name, values, unlisted } = attribute;
  if (!Array.isArray(given)) throw new RangeError(`${name} has several answers: its value must be an array of values`);
  const single = { ...attribute, k: values!.length, choices: null };
  const found = given.map((value: Value) => valueIndex(single, value));
  // texts that are not listed may become one value; a listed value occurs once
  const own = found.filter((_, i) => typeof given[i] !== "string" || unlisted === null || values!.includes(given[i]));
  if (new Set(own).size < own.length) throw new RangeError(`a value of the attribute ${name} is given twice`);
  const chosen = new Set(found);
  if (chosen.size > choices) throw new RangeError(`more than ${choices} values of the attribute ${name}`);
  return [...chosen].reduce((code, v) => code + 2 ** v, 0);
}

function listed({ values, unlisted }: Attribute, value: string | number): number {
  if (typeof value !== "string") return value;
  const index = values!.indexOf(value);
  return index < 0 && unlisted !== null ? values!.indexOf(unlisted) : index;
}

function size({ k, nearest }: Attribute, value: number): number {
  // a fraction is refused, and an infinite number is a number outside
  return nearest && (Number.isInteger(value) || Math.abs(value) === Infinity) ? Math.min(Math.max(value, 0), k - 1) : value;
}

/** The number of a text: decimal digits, perhaps with a point, a sign, an exponent, and spaces around; NaN for any other text. */
function numeric(value: string | number): number {
  if (typeof value === "number") return value;
  return typeof value === "string" && NUMBER.test(value) ? Number(value) : NaN; // JavaScript callers may pass anything
}

/** The bin of a number: from one edge up to, not including, the next; the last bin includes its upper edge. */
function bin({ nearest }: Attribute, edges: readonly number[], value: number): number {
  const last = edges.length - 2;
  if (value === edges[last + 1] || (nearest && value > edges[last + 1]!)) return last;
  if (value < edges[0]!) return nearest ? 0 : NaN;
  return value >= edges[0]! ? edges.findIndex((edge) => value < edge) - 1 : NaN;
}

function domain({ k, values, edges }: Attribute): string {
  if (values) return `${k} values, ${values[0]} … ${values[k - 1]}`;
  return edges ? `numbers ${edges[0]} … ${edges[k]}` : `integers 0 … ${k - 1}`;
}
