/** From a person's value to its index. */

import type { Attribute } from "./survey.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/**
 * Returns the index of a value.
 *
 * @param value a text as the survey writes it, or a number: the index of one of the survey's `values`, an integer below the `size`,
 *   or a number within the `bins`.
 * @throws RangeError if the value is not in the domain. The message hides the value.
 */
export function valueIndex(attribute: Attribute, value: string | number): number {
  const index = attribute.edges ? bin(attribute.edges, numeric(value)) : indexOf(attribute, value);
  if (!(Number.isInteger(index) && index >= 0 && index < attribute.k)) {
    throw new RangeError(`not a value of the attribute ${attribute.name} (${domain(attribute)})`);
  }
  return index;
}

function indexOf(attribute: Attribute, value: string | number): number {
  if (typeof value === "number") return value;
  if (attribute.values) return attribute.values.indexOf(value);
  return /^\d+$/.test(value) ? Number(value) : NaN;
}

function numeric(value: string | number): number {
  if (typeof value === "number") return value;
  return NUMBER.test(value.trim()) ? Number(value) : NaN;
}

/** The bin of a number: from one edge up to, not including, the next; the last bin includes its upper edge. */
function bin(edges: readonly number[], value: number): number {
  const last = edges.length - 2;
  if (value === edges[last + 1]) return last;
  return value >= edges[0]! ? edges.findIndex((edge) => value < edge) - 1 : NaN;
}

function domain({ k, values, edges }: Attribute): string {
  if (values) return `${k} values, ${values[0]} … ${values[k - 1]}`;
  return edges ? `numbers ${edges[0]} … ${edges[k]}` : `integers 0 … ${k - 1}`;
}
