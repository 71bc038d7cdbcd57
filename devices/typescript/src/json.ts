/** Checked reading of the survey's JSON. Everything unexpected is an `UnknownSurvey`. */

import { UnknownSurvey } from "./errors.js";

export type Fields = Readonly<Record<string, unknown>>;

/** Returns a JSON object. */
export function object(raw: unknown, where: string): Fields {
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) throw unexpected(where, "a JSON object", raw);
  return raw as Fields;
}

/** Returns a JSON array of at least one element. */
export function list(raw: unknown, where: string): readonly unknown[] {
  if (!Array.isArray(raw) || raw.length === 0) throw unexpected(where, "a JSON array with elements", raw);
  return raw;
}

/** Returns a text. */
export function text(raw: unknown, where: string): string {
  if (typeof raw !== "string") throw unexpected(where, "a text", raw);
  return raw;
}

/** Returns a finite number. */
export function number(raw: unknown, where: string): number {
  if (typeof raw !== "number" || !Number.isFinite(raw)) throw unexpected(where, "a number", raw);
  return raw;
}

/** Returns an integer in [low, high]. */
export function integer(raw: unknown, where: string, low: number, high: number): number {
  if (!Number.isSafeInteger(raw) || (raw as number) < low || (raw as number) > high) {
    throw unexpected(where, `an integer in [${low}, ${high}]`, raw);
  }
  return raw as number;
}

function unexpected(where: string, wanted: string, raw: unknown): UnknownSurvey {
  const given = JSON.stringify(raw)?.slice(0, 60) ?? "nothing";
  return new UnknownSurvey(`${where} must be ${wanted}, got ${given}`);
}
