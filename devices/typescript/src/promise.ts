/** The privacy losses that a mechanism's coins realise, in nats, and the check that they keep the survey's promise. */

import { nats, UnsafeSurvey } from "./errors.js";
import type { Mechanism, Round } from "./mechanisms.js";
import { probabilities } from "./random.js";

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
  const report = matrix(m, m.report);
  const memo = m.memo && matrix(m, m.memo);
  requireAtMost(memo ? chainLoss(m, memo, report) : loss(m, report), stated.eps1, `${where}: a report`);
  if (memo) requireAtMost(loss(m, memo), stated.epsInf, `${where}: a memo`);
}

/**
 * Returns the loss of t reports: of a one-time mechanism for any values, of a memoized mechanism for one value that did not change.
 *
 * Sets: ε_t = ln[(A E^t + 1-A) / (B E^t + 1-B)], with the probabilities A and B of a memo in and outside the padded set.
 * Symbols: ε_t = ln[(E₁E^t + n-1) / (E^t + E₁ + n-2)] for n symbols, E₁ = p₁/q₁, E = p₂/q₂. Bits: the loss is largest if every report
 * has a one for one value and a zero for the other. The Python module `mechanisms.ledger.losses` derives the formulas of symbols and bits.
 */
export function lossOfReports(m: Mechanism, t: number): number {
  const report = matrix(m, m.report);
  if (t === 0 || !m.memo) return t && t * loss(m, report);
  const memo = matrix(m, m.memo);
  if (m.family === "bits") {
    const one = (report.q / report.p) ** t;
    const zero = (report.notP / report.notQ) ** t;
    return (
      Math.log((memo.p + memo.notP * one) / (memo.q + memo.notQ * one)) +
      Math.log((memo.notQ + memo.q * zero) / (memo.notP + memo.p * zero))
    );
  }
  const others = (report.q / report.p) ** t; // E^-t
  if (m.choices) return Math.log1p(((memo.p - memo.q) * (1 - others)) / (memo.q + (1 - memo.q) * others));
  const first = memo.p / memo.q;
  return Math.log1p(((first - 1) * (1 - others)) / (1 + (first + m.symbols - 2) * others));
}

/**
 * Returns the largest loss that one report adds, for an observer who knows all other reports and all memos. These losses add up.
 * For a memoized mechanism this is the loss of the second round; for bits, between two memos that differ in all bits.
 */
export function lossPerReport(m: Mechanism): number {
  const report = matrix(m, m.report);
  if (!m.memo || m.family !== "bits") return loss(m, report);
  return m.k * Math.max(Math.abs(Math.log(report.p / report.q)), Math.abs(Math.log(report.notQ / report.notP)));
}

function requireAtMost(realised: number, stated: number, what: string): void {
  if (!(realised <= stated + TOLERANCE)) {
    throw new UnsafeSurvey(`${what} loses ${nats(realised, 17)}, the survey states ${stated}`);
  }
}

/** Probabilities of the two outcomes that differ most between two values. Their meaning depends on the family. */
interface Matrix {
  /** Symbols: the symbol, or one near it. Bits: a one from a one. Subset: a set that contains the value. */
  readonly p: number;
  /** Bits: a zero from a one. */
  readonly notP: number;
  /** Symbols: one of the other symbols. Bits: a one from a zero. Subset: a set that does not contain the value. */
  readonly q: number;
  /** Bits: a zero from a zero. */
  readonly notQ: number;
}

function matrix(m: Mechanism, round: Round): Matrix {
  if ("one" in round) {
    const one = probabilities(round.one);
    const zero = probabilities(round.zero);
    return { p: one.yes, notP: one.no, q: zero.yes, notQ: zero.no };
  }
  if ("withValue" in round) {
    // C(k-1, ω-1) sets contain the value, C(k-1, ω) do not; the quotient of these numbers is ω / (k - ω)
    const { yes, no } = probabilities(round.withValue);
    return { p: yes / m.omega, notP: 0, q: no / (m.k - m.omega), notQ: 0 };
  }
  if ("member" in round) {
    const { yes, no } = probabilities(round.member);
    return { p: yes / m.choices, notP: 0, q: no / (m.symbols - m.choices), notQ: 0 };
  }
  const { yes, no } = probabilities(round.keep);
  return { p: yes / m.near, notP: 0, q: no / (m.symbols - m.near), notQ: 0 };
}

function loss(m: Mechanism, { p, notP, q, notQ }: Matrix): number {
  const first = Math.log(p) - Math.log(q);
  if (m.family !== "bits") return Math.abs(first);
  // two values differ in two bits; the worst outcomes of these bits add up
  const second = Math.log(notQ) - Math.log(notP);
  return Math.max(first, -second) + Math.max(-first, second);
}

/** The loss of one report of a memo. */
function chainLoss(m: Mechanism, memo: Matrix, report: Matrix): number {
  if (m.family === "bits") {
    return loss(m, {
      p: memo.p * report.p + memo.notP * report.q,
      notP: memo.p * report.notP + memo.notP * report.notQ,
      q: memo.q * report.p + memo.notQ * report.q,
      notQ: memo.q * report.notP + memo.notQ * report.notQ,
    });
  }
  if (m.choices) {
    const of = (first: number) => first * report.p + (1 - first) * report.q;
    return loss(m, { p: of(memo.p), notP: 0, q: of(memo.q), notQ: 0 });
  }
  const n = m.symbols;
  const p = memo.p * report.p + (n - 1) * memo.q * report.q;
  const q = memo.p * report.q + memo.q * report.p + (n - 2) * memo.q * report.q;
  return loss(m, { p, notP: 0, q, notQ: 0 });
}
