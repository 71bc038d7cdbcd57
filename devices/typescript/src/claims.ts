/** A survey's claim on a wallet: bounds of the loss of its reports, computed in advance. docs/reference/write_a_device.md has the formulas. */

import type { Mechanism } from "./mechanisms.js";
import { lossPerReport } from "./promise.js";
import type { Survey } from "./survey.js";

/** Bounds of the loss of all reports of one survey, in nats. */
export interface Claim {
  readonly perWindow: number; // between histories that differ only within the window; 0 for a wallet without a window
  readonly forEver: number; // between any two histories; Infinity without a limit
  readonly losses: readonly number[]; // `lossPerReport`, by attribute
}

/**
 * Returns a survey's claim.
 *
 * @param levels index of the chosen level, for each attribute.
 * @param windowSeconds length of the wallet's window; null for a wallet without a window.
 */
export function claim(survey: Survey, levels: readonly number[], windowSeconds: number | null): Claim {
  const chosen = survey.attributes.map((attribute, a) => attribute.levels[levels[a]!]!.mechanism);
  const losses = chosen.map(lossPerReport);
  // a window need not begin with a step
  const touched = windowSeconds === null ? 0 : Math.ceil((1000 * windowSeconds) / survey.stepMs) + 1;
  const bound = (steps: number) => together(survey, chosen.map((m, a) => reportsIn(m, steps) * losses[a]!));
  return { perWindow: bound(Math.min(touched, survey.ends)), forEver: bound(survey.ends), losses };
}

/**
 * Returns a bound of the loss of all reports while the values stay the same: `epsInf`, or `eps1` times the largest number of reports;
 * Infinity if nothing bounds the loss. If the values of a memoized level change, the loss can be larger.
 *
 * @param levels index of the chosen level, for each attribute.
 */
export function largestLoss(survey: Survey, levels: readonly number[]): number {
  return together(survey, survey.attributes.map((attribute, a) => {
    const { losses, mechanism } = attribute.levels[levels[a]!]!;
    return mechanism.memo ? losses.epsInf : losses.eps1 * reportsIn(mechanism, survey.ends);
  })); // prettier-ignore
}

/** Returns the loss of all attributes together: the sum under spl, else the largest. */
export function together(survey: Pick<Survey, "collection">, losses: readonly number[]): number {
  return survey.collection === "spl" ? losses.reduce((sum, loss) => sum + loss, 0) : Math.max(...losses);
}

function reportsIn(m: Mechanism, steps: number): number {
  return Math.min(Math.ceil(steps / m.everySteps), m.lifetimeReports);
}
