/** The survey, from the device survey that the gateway serves at `GET /v1/surveys/FINGERPRINT`. */

import { fromHex, toHex } from "./bytes.js";
import { DeviceError, UnknownSurvey, UnsafeSurvey, WrongSurvey } from "./errors.js";
import type { Family } from "./families.js";
import { integer, list, number, object, text, type Fields } from "./json.js";
import { MECHANISMS, type Coins, type Mechanism } from "./mechanisms.js";
import { requirePromise, type Losses } from "./promise.js";
import type { Coin } from "./random.js";
import { requireSignature } from "./signatures.js";

export const [CANONICAL_FORMAT, RELAY_FORMAT, PAIR_FORMAT, SET_FORMAT, RECIPE_FORMAT] = [3, 4, 5, 6, 7]; // of the canonical text: 7 with a recipe, else 6 with `choices`, else 5 with a pair, else 4 with `relay`, else 3
const RELAY_LATENESS = 2; // least lateness_steps with a relay
const MAX_K = 2 ** 31 - 1;
const MAX_PAIR_VALUES = 1024;
const MAX_SET_VALUES = 30; // a set is a number of 30 bits
const MAX_LOSS = 700; // nats; for larger losses the check of the coins would not be accurate
const MAX_ROW_BYTES = 900_000;

/**
 * One question of the survey. It has `values`, `edges` or `pair`, or none of them: then its values are the integers below `k`. A
 * pair has a value for each combination of the values of two other attributes, and the device derives it from theirs. With
 * `choices`, a person's value is a set of at most this number of `values`.
 */
export interface Attribute {
  readonly name: string;
  readonly k: number; // number of values; with `choices`, plus `choices`
  readonly values: readonly string[] | null;
  readonly choices: number | null;
  readonly edges: readonly number[] | null; // edges of the bins
  readonly pair: readonly [Attribute, Attribute] | null; // the two attributes of a pair
  readonly unlisted: string | null; // the value that the device reports for a text that is not listed; null: it refuses the text
  readonly recipe: Recipe | null; // how the device computes the value; null: the application gives it
  readonly nearest: boolean; // true: for a number outside, the device reports the nearest value; false: it refuses the number
  readonly levels: readonly Level[];
}

/** A number that the device computes from its activity log: see `activity.ts`. */
export interface Recipe {
  readonly measure: Measure;
  readonly of: string | null; // name of an event
  readonly days: number; // length of the window
  readonly edges: readonly number[] | null; // with `values`: the first value is for numbers below the first edge, and so on
}

export const DAY_MS = 86_400_000;
const MEASURES = ["active_days", "days_without", "uses_per_day", "seconds_per_day", "age", "absence"] as const;
export type Measure = (typeof MEASURES)[number];

/** A privacy level that a person may choose. */
export interface Level {
  readonly name: string;
  readonly losses: Losses; // the losses that the survey states, after the split of the budget; the mechanism loses no more
  readonly mechanism: Mechanism;
}

/** A public fact about a device, such as its version. Each report carries it in clear. */
export interface Cohort {
  readonly name: string;
  readonly values: readonly string[]; // the cohorts
  readonly least: number; // the service publishes a histogram of a cohort only from at least this number of reports
}

/** The survey's own words, as the gateway serves them. They are not a part of the pin: the gateway can change them. */
export interface Words {
  readonly title: string | null;
  readonly description: string | null;
  readonly purpose: string | null;
  readonly owner: string | null;
  readonly contact: string | null;
  readonly keptSeconds: number | null; // how long the service keeps the results; null if the gateway does not say
}

/** A checked survey; see `openSurvey`. */
export interface Survey {
  readonly name: string;
  readonly pin: string; // SHA-256 of the canonical text, as 64 hexadecimal digits
  readonly fingerprint: Uint8Array; // the first 8 bytes of the pin, which envelopes carry
  readonly startMs: number; // beginning of step 0, in ms since 1970
  readonly stepMs: number;
  readonly latenessSteps: number;
  readonly ends: number; // number of steps; Infinity without end
  readonly collection: Collection;
  readonly relay: "required" | null; // "required": reports travel only through a relay
  readonly cohort: Cohort | null;
  readonly attributes: readonly Attribute[];
  readonly words: Words;
}

const COLLECTIONS = ["smp", "spl", "rs+fd"] as const;
export type Collection = (typeof COLLECTIONS)[number];

/** Returns the step that contains a time in ms since 1970; negative before the start. */
export function stepAt(survey: Survey, timeMs: number): number {
  return Math.floor((timeMs - survey.startMs) / survey.stepMs);
}

/** Returns the index of the attribute with this name. */
export function attributeIndex(survey: Survey, name: string): number {
  const index = survey.attributes.findIndex((attribute) => attribute.name === name);
  if (index < 0) {
    const names = survey.attributes.map((attribute) => attribute.name).join(", ");
    throw new RangeError(`attribute must be one of ${names}, got ${JSON.stringify(name)}`);
  }
  return index;
}

/** Returns the index of a cohort; null if the survey has no cohorts and none is given. */
export function cohortIndex(survey: Survey, cohort: string | undefined): number | null {
  if (!survey.cohort && cohort === undefined) return null;
  const index = survey.cohort?.values.findIndex((value) => value === cohort) ?? -1;
  if (index >= 0) return index;
  const allowed = survey.cohort ? `the cohort (${survey.cohort.name}) must be one of ${survey.cohort.values.join(", ")}` : `survey ${survey.name} has no cohort`;
  throw new RangeError(`${allowed}, got ${JSON.stringify(cohort)}`);
}

/** The conditions that an application may set for a survey. */
export interface OpenOptions {
  /** The public key that must have signed the survey, or several of which one is enough: see `ldpstream sign`. Default: no check. */
  readonly signedBy?: string | readonly string[];
  /** Other keys, one of which must also have signed the survey, for two signatures. Default: no second signature. */
  readonly alsoSignedBy?: string | readonly string[];
}

/**
 * Checks a device survey and returns the survey.
 *
 * The check compares the fingerprint with the hash of the canonical text. It then computes the privacy losses of all mechanisms
 * from their coins, so a wrong or hostile server cannot weaken the losses that the canonical text states.
 *
 * @param document the parsed JSON of the device survey.
 * @param pin the survey's pin that the application expects, as 64 hexadecimal digits; by default any survey is accepted. A
 *   fingerprint, which has 16 digits, is too short: its author can make a second survey with the same one.
 * @param options further conditions of the application.
 * @throws NotSigned if `signedBy` or `alsoSignedBy` is given, and the survey has no signature by such a key.
 * @throws RangeError if one of them is not a public key, if they have a common key, or `pin` does not have 64 hexadecimal digits.
 * @throws DeviceError if Web Crypto is missing, or has no Ed25519 for `signedBy`.
 * @throws UnknownSurvey if this device cannot answer the survey.
 * @throws UnsafeSurvey if the hash or the parameters do not fit the canonical text, or a mechanism could lose more privacy than the
 *   text states.
 * @throws WrongSurvey if the survey has another pin.
 */
export async function openSurvey(document: unknown, pin?: string, { signedBy, alsoSignedBy }: OpenOptions = {}): Promise<Survey> {
  if (pin !== undefined) requirePinForm(pin);
  const fields = object(document, "the device survey");
  const stated = text(fields["fingerprint"], "fingerprint");
  const canonical = text(fields["canonical"], "canonical");
  const hash = await hashOf(canonical);
  const found = toHex(hash);
  if (fingerprintOf(found) !== stated) {
    throw new UnsafeSurvey(`the device survey states the fingerprint ${stated.slice(0, 60)}, its text has ${fingerprintOf(found)}`);
  }
  if (pin !== undefined && pin !== found) throw new WrongSurvey(`the survey has the pin ${found}, expected ${pin}`);
  const required = [signedBy, alsoSignedBy].flatMap((keys) => (keys === undefined ? [] : [typeof keys === "string" ? [keys] : keys]));
  if (required[1]?.some((key) => required[0]!.includes(key))) throw new RangeError("alsoSignedBy must name other keys than signedBy");
  const signatures = fields["signatures"] ?? (fields["signature"] ? [fields["signature"]] : []);
  for (const keys of required) await requireSignature(canonical, Array.isArray(signatures) ? signatures : [], keys, stated);
  return parse(parseJson(canonical), list(fields["mechanisms"], "mechanisms"), hash, object(fields["words"] ?? {}, "words"));
}

/** The fingerprint of the survey with this pin, as 16 hexadecimal digits. */
export function fingerprintOf(pin: string): string {
  return pin.slice(0, 16);
}

/** Requires the form of a pin. */
export function requirePinForm(pin: string): void {
  if (!/^[0-9a-f]{64}$/.test(pin)) throw new RangeError(`pin must have 64 lower-case hexadecimal digits, as \`ldpstream check\` prints it, got ${JSON.stringify(pin)}`);
}

async function hashOf(canonical: string): Promise<Uint8Array> {
  if (!globalThis.crypto?.subtle) throw new DeviceError("a device needs Web Crypto: serve the page over https or from localhost");
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical)));
}

function parseJson(canonical: string): unknown {
  try {
    return JSON.parse(canonical);
  } catch {
    throw new UnknownSurvey("canonical must be a JSON text");
  }
}

function parse(canonical: unknown, parameters: readonly unknown[], hash: Uint8Array, words: Fields): Survey {
  const survey = object(canonical, "canonical");
  const relay = survey["relay"] === undefined ? null : "required";
  const attributes = list(survey["attribute"], "attribute").map((raw, a) => object(raw, `attribute[${a}]`));
  const isPair = (attribute: Fields) => attribute["pair"] !== undefined;
  const [recipes, sets] = ["recipe", "choices"].map((key) => attributes.some((attribute) => attribute[key] !== undefined));
  const format = recipes ? RECIPE_FORMAT : sets ? SET_FORMAT : attributes.some(isPair) ? PAIR_FORMAT : relay ? RELAY_FORMAT : CANONICAL_FORMAT;
  if (survey["format"] !== format) {
    throw new UnknownSurvey(`the canonical text has format ${shown(survey["format"] ?? 1)}, this device needs format ${format}`);
  }
  if (relay && survey["relay"] !== relay) throw new UnknownSurvey(`relay must be ${relay}, got ${shown(survey["relay"])}`);
  const collection = COLLECTIONS.find((known) => known === survey["collection"]);
  if (!collection) throw new UnknownSurvey(`collection must be one of ${COLLECTIONS.join(", ")}, got ${shown(survey["collection"])}`);
  if (parameters.length !== attributes.length) throw new UnknownSurvey("mechanisms must have one entry for each attribute");
  if (collection === "rs+fd" && sets) throw new UnknownSurvey("choices needs the collection smp or spl");
  const share = collection === "spl" ? attributes.length : 1;
  const start = integer(survey["start"], "start", 0, Number.MAX_SAFE_INTEGER);
  const parsed = (raw: Fields, a: number, others: readonly (Attribute | null)[]) => parseAttribute(raw, parameters[a], `attribute[${a}]`, share, others);
  const stepMs = 1000 * integer(survey["step_seconds"], "step_seconds", 1, 1e9);
  if (recipes && (stepMs % DAY_MS || stepMs > 28 * DAY_MS || start % DAY_MS)) throw new UnknownSurvey("a recipe needs steps of 1 to 28 whole days, which begin at midnight UTC");
  const single = attributes.map((raw, a) => (isPair(raw) ? null : parsed(raw, a, [])));
  const short = single.find((attribute) => attribute?.recipe && attribute.recipe.days * DAY_MS < stepMs);
  if (short) throw new UnknownSurvey(`the recipe of ${short.name} must have days of at least a step`);
  const word = (key: string) => (words[key] == null ? null : text(words[key], `words.${key}`));
  const kept = words["retention_steps"] == null ? null : (stepMs / 1000) * integer(words["retention_steps"], "words.retention_steps", 1, 100_000);
  return {
    words: { title: word("title"), description: word("description"), purpose: word("purpose"), owner: word("owner"), contact: word("contact"), keptSeconds: kept },
    name: text(survey["name"], "name"),
    pin: toHex(hash),
    fingerprint: hash.slice(0, 8),
    startMs: start,
    stepMs,
    latenessSteps: integer(survey["lateness_steps"], "lateness_steps", relay ? RELAY_LATENESS : 0, 10_000),
    ends: survey["ends"] === undefined ? Infinity : integer(survey["ends"], "ends", 1, Number.MAX_SAFE_INTEGER),
    collection,
    relay,
    cohort: survey["cohort"] === undefined ? null : parseCohort(object(survey["cohort"], "cohort")),
    attributes: attributes.map((raw, a) => single[a] ?? parsed(raw, a, single)),
  };
}

function parseCohort(cohort: Fields): Cohort {
  return {
    name: text(cohort["name"], "cohort.name"),
    values: list(cohort["values"], "cohort.values").map((value) => text(value, "cohort.values")),
    least: integer(cohort["least"], "cohort.least", 1, 1e9),
  };
}

/** Parses an attribute. `others` are the attributes that a pair may name; null stands for a pair. */
function parseAttribute(attribute: Fields, parameters: unknown, where: string, share: number, others: readonly (Attribute | null)[]): Attribute {
  const given = ["values", "size", "bins", "pair"].filter((key) => attribute[key] !== undefined);
  if (given.length !== 1) throw new UnknownSurvey(`${where} must have one of values, size, bins and pair, got ${given.length}`);
  const pair = attribute["pair"] === undefined ? null : parsePair(list(attribute["pair"], `${where}.pair`), where, others);
  const values = attribute["values"] === undefined ? null : list(attribute["values"], `${where}.values`);
  const edges = attribute["bins"] === undefined ? null : list(attribute["bins"], `${where}.bins`);
  const unlisted = attribute["unlisted"] === undefined ? null : text(attribute["unlisted"], `${where}.unlisted`);
  const outside = attribute["outside"];
  if (outside !== undefined && (values || pair || outside !== "nearest")) {
    throw new UnknownSurvey(`${where}.outside must be absent, or "nearest" for numbers, got ${shown(outside)}`);
  }
  if (unlisted !== null && !values?.includes(unlisted)) throw new UnknownSurvey(`${where}.unlisted must be one of the values`);
  const choices = attribute["choices"] === undefined ? null : integer(attribute["choices"], `${where}.choices`, 1, values?.length ?? 0);
  if (choices && values!.length > MAX_SET_VALUES) throw new UnknownSurvey(`${where} must have at most ${MAX_SET_VALUES} values with choices`);
  const k = values ? values.length + (choices ?? 0) : (edges ? edges.length - 1 : pair ? pair[0].k * pair[1].k : integer(attribute["size"], `${where}.size`, 2, MAX_K));
  if ((values?.length ?? k) < 2) throw new UnknownSurvey(`${where} must have at least 2 values, got ${k}`);
  if (pair && k > MAX_PAIR_VALUES) throw new UnknownSurvey(`${where} must have at most ${MAX_PAIR_VALUES} pairs of values, got ${k}`);
  const recipe = attribute["recipe"] === undefined ? null : parseRecipe(object(attribute["recipe"], `${where}.recipe`), `${where}.recipe`);
  if (recipe && (pair || choices || unlisted !== null || !(values ? recipe.edges?.length === values.length - 1 : outside && !recipe.edges))) {
    throw new UnknownSurvey(`${where}.recipe needs values with edges, or size or bins without`);
  }
  const levels = list(attribute["level"], `${where}.level`);
  const ofLevels = list(parameters, `mechanisms of ${where}`);
  if (ofLevels.length !== levels.length) throw new UnknownSurvey(`${where} must have one mechanism for each level`);
  return {
    name: text(attribute["name"], `${where}.name`),
    k,
    values: values && values.map((value) => text(value, `${where}.values`)),
    choices,
    edges: edges && edges.map((edge) => number(edge, `${where}.bins`)),
    pair,
    unlisted,
    recipe,
    nearest: outside === "nearest",
    levels: levels.map((level, i) => parseLevel(level, ofLevels[i], `${where}.level[${i}]`, k, share, choices)),
  };
}

function parseRecipe(recipe: Fields, where: string): Recipe {
  const measure = MEASURES.find((known) => known === recipe["measure"]);
  if (!measure) throw new UnknownSurvey(`${where}: this device does not know the measure ${shown(recipe["measure"])}`);
  const unknown = Object.keys(recipe).find((key) => !["measure", "of", "days", "edges"].includes(key));
  if (unknown) throw new UnknownSurvey(`${where}: this device does not know the key ${shown(unknown)}`);
  const windowed = measure !== "age" && measure !== "absence";
  const of = recipe["of"] === undefined ? null : text(recipe["of"], `${where}.of`);
  if (of === null ? windowed && measure !== "active_days" : !windowed) throw new UnknownSurvey(`${where}.of does not fit ${measure}`);
  return {
    measure,
    of,
    days: windowed ? integer(recipe["days"], `${where}.days`, 1, 28) : Infinity,
    edges: recipe["edges"] === undefined ? null : list(recipe["edges"], `${where}.edges`).map((edge) => number(edge, `${where}.edges`)),
  };
}

function parsePair(names: readonly unknown[], where: string, others: readonly (Attribute | null)[]): readonly [Attribute, Attribute] {
  const [first, second, ...more] = names.map((name) => others.find((other) => other?.name === name));
  if (!first || !second || first.choices || second.choices || more.length || first === second) throw new UnknownSurvey(`${where}.pair must name two other attributes, got ${shown(names)}`);
  return [first, second];
}

function parseLevel(raw: unknown, parameters: unknown, where: string, k: number, share: number, choices: number | null): Level {
  const level = object(raw, where);
  const name = text(level["mechanism"], `${where}.mechanism`);
  const family = Object.hasOwn(MECHANISMS, name) ? MECHANISMS[name] : undefined;
  if (!family) throw new UnknownSurvey(`${where}: this device does not know the mechanism ${shown(name)}`);
  if ((family.sets ?? false) !== (choices !== null)) throw new UnknownSurvey(`${where}: ${shown(name)} is not for ${choices ? "sets" : "single values"}`);
  const memoized = name.startsWith("L-");
  const loss = (key: string) => statedLoss(level[key], `${where}.${key}`) / share;
  const losses: Losses = memoized ? { epsInf: loss("eps_inf"), eps1: loss("eps_1") } : { epsInf: Infinity, eps1: loss("eps") };
  const chosen = {
    mechanism: name,
    k,
    every_steps: level["every_steps"] ?? 1,
    lifetime_reports: level["lifetime_reports"] ?? null,
    g: level["g"],
    omega: level["omega"],
    memo_size: level["memo_size"],
    width: level["width"],
    choices,
    row_bytes: level["row_bytes"],
    functions: level["functions"],
    digits: level["digits"],
    stride: level["stride"],
    field: level["field"],
  };
  const given = object(parameters, `mechanism of ${where}`);
  for (const [key, value] of Object.entries(chosen)) {
    if (shown(given[key] ?? null) !== shown(value ?? null)) {
      throw new UnsafeSurvey(`${where}: the survey states ${key} = ${shown(value)}, its mechanism has ${shown(given[key])}`);
    }
  }
  const mechanism = parseMechanism(given, where, family, memoized);
  requirePromise(mechanism, losses, where);
  const [odds, stated] = [mechanism.memos?.logOdds ?? 0, number(level["log_odds"] ?? 0, `${where}.log_odds`)];
  if (!(Math.abs(odds - stated) <= 1e-5 * stated)) throw new UnsafeSurvey(`${where}: the survey states log_odds = ${stated}, its mechanism has ${odds}`);
  requireCoins(object(given["coins"], where), object(level["coins"], `${where}.coins`), where);
  return { name: text(level["name"], `${where}.name`), losses, mechanism };
}

/** Requires the coins that the canonical text states, with six digits of each smaller probability. The service reads reports by them. */
function requireCoins(given: Fields, stated: Fields, where: string): void {
  for (const [part, coins] of Object.entries(given)) {
    for (const [name, raw] of Object.entries(object(coins, where))) {
      const { digits, inverted } = parseCoin(raw, where);
      const smaller = digits.reduceRight((sum, digit) => (sum + digit) / 256, 0);
      const entry = object(object(stated[part], `${where}.coins`)[name], `${where}.coins`);
      const expected = number(entry["yes"] ?? entry["no"], `${where}.coins`);
      const turned = (entry["yes"] === undefined) !== inverted && expected !== 0.5;
      if (turned || !(Math.abs(smaller - expected) <= 1e-5 * expected)) {
        throw new UnsafeSurvey(`${where}: the survey states another coin ${part}.${name} than its mechanism has`);
      }
    }
  }
}

/** Returns a loss of the canonical text, in nats, before a division of the budget. */
function statedLoss(raw: unknown, where: string): number {
  const loss = number(raw, where);
  if (!(loss > 0 && loss <= MAX_LOSS)) throw new UnsafeSurvey(`${where} must be in (0, ${MAX_LOSS}] nats, got ${loss}`);
  return loss;
}

function parseMechanism(given: Fields, where: string, family: Family, memoized: boolean): Mechanism {
  const k = given["k"] as number;
  const sizes = { symbols: k, near: 1, functions: 1, stride: 1, field: null, omega: 0, memos: null, ...family.sizes(k, given, where) };
  const coins = object(given["coins"], `${where}: coins`);
  const limit = given["lifetime_reports"];
  if (sizes.rowBytes > MAX_ROW_BYTES) throw new UnknownSurvey(`${where}: a report must take at most ${MAX_ROW_BYTES} bytes, got ${sizes.rowBytes}`);
  integer(given["row_bytes"], `${where}: row_bytes`, sizes.rowBytes, sizes.rowBytes);
  integer(given["functions"] ?? 1, `${where}: functions`, sizes.functions, sizes.functions);
  return {
    ...sizes,
    name: given["mechanism"] as string,
    family,
    k,
    everySteps: integer(given["every_steps"], `${where}.every_steps`, 1, 10_000),
    lifetimeReports: limit === null ? Infinity : integer(limit, `${where}.lifetime_reports`, 1, 1e9),
    memo: memoized ? parseCoins(coins["memo"], family.coins.first, `${where}: coins.memo`) : null,
    report: parseCoins(coins["report"], memoized ? family.coins.second : family.coins.first, `${where}: coins.report`),
    choices: (given["choices"] as number | undefined) ?? 0, // as the attribute states
  };
}

function parseCoins(raw: unknown, names: readonly string[], where: string): Coins {
  const coins = object(raw, where);
  return Object.fromEntries(names.map((name) => [name, parseCoin(coins[name], where)]));
}

function parseCoin(raw: unknown, where: string): Coin {
  const coin = object(raw, where);
  const digits = fromHex(text(coin["digits"], `${where}: digits`));
  if (!digits || typeof coin["inverted"] !== "boolean") throw new UnknownSurvey(`${where} must have hexadecimal digits and inverted`);
  // digits of a probability near one would hide a part of the loss: as a floating-point number, one minus it is inexact
  if (digits[0]! > 0x80) throw new UnsafeSurvey(`${where}: digits must state the smaller probability`);
  return { digits, inverted: coin["inverted"] };
}

function shown(raw: unknown): string {
  return JSON.stringify(raw)?.slice(0, 60) ?? "nothing";
}
