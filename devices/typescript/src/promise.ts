/** The privacy losses that a mechanism's coins realise, in nats, and the check that they keep the survey's promise. */

import { nats, UnsafeSurvey } from "./errors.js";
import type { Mechanism } from "./mechanisms.js";

/** The losses that a level of the survey states, after the split of the budget. */
export interface Losses {
  readonly epsInf: number; // loss of any number of reports of one memo; Infinity for a one-time mechanism
  readonly eps1: number; // loss of one report
}

const TOLERANCE = 1e-9; // nats; the rounding of the probabilities changes a loss by less than 1e-11

/**
 * Checks that the coins lose no more privacy than the survey states.
 *
 * @throws UnsafeSurvey if they do.
 */
export function requirePromise(m: Mechanism, stated: Losses, where: string): void {
  requireAtMost(lossOfReports(m, 1), stated.eps1, `${where}: a report`);
  if (m.memo) requireAtMost(m.family.loss(m, m.memo), stated.epsInf, `${where}: a memo`);
}

/**
 * Returns the loss of t reports: of a one-time mechanism for any values, of a memoized mechanism for one value that did not change.
 * The Python module `mechanisms.ledger.losses` derives the formulas. For L-SS and t > 1 the result is the upper bound of a memo.
 */
export function lossOfReports(m: Mechanism, t: number): number {
  if (t === 0) return 0;
  return m.memo ? m.family.lossOfReports(m, m.memo, m.report, t) : t * Math.abs(m.family.loss(m, m.report));
}

/**
 * Returns the largest loss that one report adds, for an observer who knows all other reports and all memos. These losses add up.
 * For a memoized mechanism this is the loss of the second round.
 */
export function lossPerReport(m: Mechanism): number {
  return Math.abs(m.memo ? m.family.lossOfMemos(m, m.report) : m.family.loss(m, m.report));
}

function requireAtMost(realised: number, stated: number, what: string): void {
  if (!(Math.abs(realised) <= stated + TOLERANCE)) {
    throw new UnsafeSurvey(`${what} loses ${nats(realised, 17)}, the survey states ${stated}`);
  }
}
