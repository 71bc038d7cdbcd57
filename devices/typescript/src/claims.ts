/** A survey's claim on a wallet: bounds of the loss of its reports, computed in advance. docs/reference/write_a_device.md has the formulas. */

import type { Mechanism } from "./mechanisms.js";
import { lossPerReport } from "./promise.js";
import type { Survey } from "./survey.js";

const MOST_REPORTS = 1000; // more reports of one-time levels count as certainty, or by their whole loss

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

/** The loss ε of one report of an attribute in nats, and the number of reports. */
export type Made = readonly [number, number];

/**
 * Returns what a device makes of each attribute while the value stays the same. All reports of a memoized level count as one report with
 * the loss of its memo.
 *
 * @param levels index of the chosen level, for each attribute.
 */
export function losses(survey: Survey, levels: readonly number[]): Made[] {
  return survey.attributes.map((attribute, a) => {
    const { losses, mechanism } = attribute.levels[levels[a]!]!;
    return mechanism.memo ? [losses.epsInf, 1] : [losses.eps1, reportsIn(mechanism, survey.ends)];
  });
}

/**
 * Returns a bound of the loss of all reports while the values stay the same; Infinity if nothing bounds the loss. If the values of a
 * memoized level change, the loss can be larger.
 */
export function largestLoss(survey: Survey, levels: readonly number[]): number {
  return lossOf(survey, losses(survey, levels));
}

/** Returns an upper bound of the chance of a right guess among k equally likely values; docs/reference/write_a_device.md has the formula. */
export function guessBound(survey: Pick<Survey, "collection">, k: number, made: readonly Made[]): number {
  const added: Made = [Math.max(...made.map(([eps]) => eps)), made.reduce((sum, [, n]) => sum + n, 0)];
  const worst = survey.collection === "spl" ? [added] : made;
  const ofLoss = 1 / (1 + (k - 1) * Math.exp(-lossOf(survey, made)));
  return Math.min(ofLoss, Math.max(...worst.map(([eps, n]) => guessOfReports(k, eps, n))));
}

function guessOfReports(k: number, eps: number, n: number): number {
  if (n > MOST_REPORTS) return 1;
  const [h, back] = [1 / (1 + Math.exp(-eps)), Math.exp(-eps)];
  let [bound, chance, yes, no] = [1, h ** n, 0, 0];
  for (let j = n; 2 * j >= n; j--) {
    const x = (k - 1) * Math.exp((n - 2 * j) * eps);
    bound = Math.min(bound, ((yes - no) * x + 1) / (x + 1));
    [yes, no] = [yes + chance, (no + chance) * back ** 2];
    chance *= (j / (n - j + 1)) * back;
  }
  return bound;
}

function lossOf(survey: Pick<Survey, "collection">, made: readonly Made[]): number {
  return together(survey, made.map(([eps, n]) => eps * n));
}

/** Returns the loss of all attributes together: the sum under spl, else the largest. */
export function together(survey: Pick<Survey, "collection">, losses: readonly number[]): number {
  return survey.collection === "spl" ? losses.reduce((sum, loss) => sum + loss, 0) : Math.max(...losses);
}

function reportsIn(m: Mechanism, steps: number): number {
  return Math.min(Math.ceil(steps / m.everySteps), m.lifetimeReports);
}
