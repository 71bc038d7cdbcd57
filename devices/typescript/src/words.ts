/** Words for the person, as in the Python module `consent.words`: the question that an application shows, and the parts of a report. */

import { toHex } from "./bytes.js";
import { guessBound, losses, type Made } from "./claims.js";
import type { Attribute, Survey } from "./survey.js";

export const DRAWN = "Your device sends a random answer. Your true answer only changes the chances of the draw.";
export const NOT_PROTECTED =
  "Not protected: that you take part, when you send or stay silent, and the question, level and group of a report." +
  " If an answer changes, or your storage is deleted, reports can reveal more.";
export const STOP = "You can stop at any time. Then this device sends nothing more, and erases what it keeps. Reports that it sent stay in the histograms.";
const SAME = "the same for all participants";
const UNSEEN = /[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g; // a gateway could write over other lines of a terminal
const UNITS: readonly [number, string][] = [
  [86_400, "day"],
  [3600, "hour"],
  [60, "minute"],
];

/** Returns the text by which an application asks for consent, as plain text in several lines. `levels` has one index for each attribute. */
export function question(survey: Survey, levels: readonly number[]): string {
  const { title, description, purpose, owner, contact, keptSeconds } = survey.words;
  const every = losses(survey, levels);
  const one = levels.map((level, a): Made => [survey.attributes[a]!.levels[level]!.losses.eps1, 1]);
  const guesses = survey.attributes.map(
    (a) =>
      `A ${guess(a)} is right for at most ${people(survey, a)} without a report, ${people(survey, a, one)} with the reports of one step,` +
      ` and ${people(survey, a, every)} with all reports while your answers stay the same.`,
  );
  const lines = [
    title ?? survey.name,
    description,
    `Purpose: ${purpose || "not stated."}`,
    `Asked by: ${[owner, contact].filter(Boolean).join(", ") || "not stated."}`,
    `Questions: ${survey.attributes.map(({ name }) => name).join(", ")}.`,
    DRAWN,
    ...guesses,
    NOT_PROTECTED,
    keptSeconds === null ? null : `Kept: the service shows the histograms for ${duration(keptSeconds)}. Copies can stay longer.`,
    STOP,
  ];
  return lines.filter((line) => line !== null && line !== "").map((line) => line!.replace(UNSEEN, " ")).join("\n");
}

/** Returns the parts of an envelope of the survey, each with what it can reveal. Together, the parts are the envelope. */
export function explained(survey: Survey, envelope: Uint8Array): [Uint8Array, string][] {
  const parts = split(envelope);
  const [, , a = 0, level = 0, step = 0] = parts.map(unsigned);
  const asked = survey.attributes[a]!;
  const said = [
    `the version of the form: ${SAME}`,
    `that you take part in ${survey.name}: ${SAME}`,
    `the question: ${asked.name}`,
    asked.levels.length > 1 ? `the level that you chose: ${asked.levels[level]!.name}` : `the level: ${SAME}`,
    `the time: step ${step}, of ${duration(survey.stepMs / 1000)}`,
    `the number of reports: ${SAME}`,
    ...(survey.cohort ? [`your device's group: ${survey.cohort.values[unsigned(parts[6]!)]}`] : []),
    `a random answer: a ${guess(asked)} is right for at most ${people(survey, asked, [[asked.levels[level]!.losses.eps1, 1]])}, without it ${people(survey, asked)}`,
  ];
  return [[envelope.slice(0, 1), `the form: ${SAME}`], ...parts.map((part, i): [Uint8Array, string] => [part, said[i]!.replace(UNSEEN, " ")])];
}

/** The preview of a report: its bytes by their parts, and what each part can reveal. */
export function preview(survey: Survey, attribute: string, step: number, silence: string | null, example: boolean, envelope: Uint8Array | null): string {
  const head = `${attribute.replace(UNSEEN, " ")}, step ${step}`;
  if (!envelope) return `${head}: nothing leaves (${silence}).`;
  const kind = example ? "an example, which chance draws anew" : "made, and the same until the step ends";
  const now = silence ? `nothing leaves now (${silence})` : survey.relay ? "leaves at its random moment" : "leaves with the next attempt";
  const lines = explained(survey, envelope).map(([data, reveals]) => `${toHex(data)}  ${reveals}`);
  const last = `Beside it: a random key, drawn for this report alone; the ${survey.relay ? "relay" : "gateway"} sees your network address.`;
  return [`${head}: ${envelope.length} bytes; ${kind}; ${now}.`, ...lines, last].join("\n");
}

/** The elements of an envelope, each in its msgpack form. */
function split(envelope: Uint8Array): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (let at = 1; at < envelope.length; ) {
    const [kind, next, after] = [envelope[at]!, envelope[at + 1]!, envelope[at + 2]!];
    const length = { 0xcc: 2, 0xcd: 3, 0xce: 5, 0xcf: 9, 0xc4: 2 + next, 0xc5: 3 + 256 * next + after }[kind];
    const size = length ?? (kind === 0xc6 ? envelope.length - at : 1);
    found.push(envelope.slice(at, at + size));
    at += size;
  }
  return found;
}

function unsigned(element: Uint8Array): number {
  return element.length === 1 ? element[0]! : element.slice(1).reduce((sum, byte) => 256 * sum + byte, 0);
}

function guess({ name, choices }: Attribute): string {
  return choices ? `guess whether ${name} has a value (yes and no are equally likely at first)` : `guess of ${name} (all answers are equally likely at first)`;
}

/** A bound of the chance of a right guess, rounded up to a number of people. */
function people(survey: Survey, { k, choices }: Attribute, made: readonly Made[] = [[0, 1]]): string {
  const found = Math.ceil(100 * guessBound(survey, choices ? 2 : k, made) - 1e-9);
  return found < 100 ? `${found} of 100` : "no useful limit";
}

/** A time, rounded up to its largest unit that occurs twice. */
function duration(seconds: number): string {
  const [unit, name] = UNITS.find(([unit]) => seconds >= 2 * unit) ?? [1, "second"];
  const n = Math.ceil(seconds / unit);
  return `${n} ${name}${n === 1 ? "" : "s"}`;
}
