/**
 * The device: one person's client. It turns true values into reports.
 *
 * Each report is one transaction of the store. The device looks for an envelope of the step. If the step has no envelope, the device
 * recalls or draws the memo, draws the report from the memo, counts the report and stores the envelope with its idempotency key.
 * When the store has kept all this, the device returns the envelope. Therefore:
 *
 * 1. a memo key never gets a second memo, and the memo is in the store before any report from it leaves the device;
 * 2. each step has one report, despite repeated calls, crashes, tabs and processes: a later call returns the same bytes, returns
 *    null, or fails;
 * 3. an envelope has one idempotency key, stored with the envelope, and all attempts use that key;
 * 4. if the survey requires a relay, an envelope has one random moment of sending, stored with the envelope.
 *
 * No error message contains a true value. The store contains true values: see docs/howto/device.md.
 *
 * Records of the store: `device` has the survey's pin and a random id of the enrolment; `attribute/A` has the permanent choices, the
 * counts and the last envelopes; `memo/A/KEY` has a memo.
 */

import { fromText, toText } from "./bytes.js";
import { largestLoss } from "./claims.js";
import { ClockWentBack, CostlySurvey, DeviceError, StepForgotten, StoreCleared, WrongSurvey } from "./errors.js";
import { seal } from "./envelope.js";
import { drawFunction, drawMemo, isMemo, memoKey, reportMemo, reportOnce, type Mechanism } from "./mechanisms.js";
import { lossOfReports } from "./promise.js";
import { below, systemBytes, type RandomBytes } from "./random.js";
import type { Store, Transaction } from "./store.js";
import { attributeIndex, cohortIndex, fingerprintOf, stepAt, type Attribute, type Survey } from "./survey.js";
import { valueIndex, type Value } from "./values.js";

const FORMAT = 2; // format of the records; format 1 has the fingerprint in place of the pin, and is converted
const KEY_BYTES = 16;
const TOLERANCE = 1e-9; // nats; for the rounding of the split budgets
const AHEAD_REPORTS = 24; // room for the reports of future steps while the clock runs ahead: they displace no report of a true step
const MAX_DROPPED = 10_000; // steps of dropped envelopes that an attribute remembers

/** Options of `Device.open`. */
export interface DeviceOptions {
  /** Attribute name -> name of the level that the person chose; by default the first level. The first use fixes the levels. */
  readonly levels?: Readonly<Record<string, string>>;
  /** True if the application knows that this device has enrolled before: an empty store is then a `StoreCleared`. */
  readonly expectEnrolled?: boolean;
  /**
   * The largest loss of all reports that the application allows while the values stay the same, in nats; by default no limit. It is
   * `epsInf` of a memoized level, and `eps1` times the number of reports of a one-time level. A `Wallet` also bounds the loss of
   * changing values.
   */
  readonly maxEps?: number;
  /**
   * The device's present cohort, one of the survey's; absent for a survey without cohorts. Reports carry the cohort in clear, so it must
   * never depend on a value. The store does not keep the cohort: the device may be opened with another one later.
   */
  readonly cohort?: string;
  /** Time in ms since 1970; by default `Date.now`. */
  readonly clock?: () => number;
  /** Source of random bytes, for tests; by default Web Crypto. */
  readonly random?: RandomBytes;
}

/** Why a device makes no report of an attribute at a step: it answers other attributes (smp), it reports at other steps, which are
 * `everySteps` apart, it has made all `lifetime_reports`, or the step is after the survey's last one. */
export type Silence = "other attribute" | "other phase" | "lifetime reports made" | "survey ended";

/** A report that may need another attempt. */
export interface Waiting {
  readonly attribute: string;
  readonly step: number;
  readonly envelope: Uint8Array;
  readonly key: string; // `Idempotency-Key` of all attempts: 128 random bits
  readonly dueMs: number; // time from which the report may leave, in ms since 1970; 0, which means at once, without a relay
}

/** Privacy losses of the reports made for an attribute. They depend on the values: show them only to the person. */
export interface Spent {
  readonly reports: number; // distinct steps reported
  readonly memos: number; // memos behind these reports; 0 for a one-time mechanism
  /**
   * Privacy loss in nats. One-time mechanism: bound for any values. Memoized mechanism: bound between the device's values and any
   * unchanged value; null if the reports come from more than one memo, because changes of a value reveal more.
   */
  readonly epsT: number | null;
}

type Sent = {
  readonly step: number;
  readonly envelope: string; // empty if it was dropped
  readonly key: string | null; // null once the report is settled, or its envelope dropped
  readonly due?: number; // with a relay: a random moment of the step after `step`, in ms since 1970
};

export type Enrolment = {
  readonly level: number;
  readonly answers: boolean;
  readonly hashFunction: number;
  readonly fake: number | null; // the value that the device reports in place of the person's value (rs+fd)
  readonly phase: number; // the device reports only at steps t with t mod everySteps = phase
  readonly reports: number;
  readonly memos: number;
  readonly forgotten: number; // latest forgotten step: no step up to it will be reported; -1 for none
  readonly sent: readonly Sent[]; // the reported steps that are remembered, by step
};

export class Device {
  private readonly unsettled = new Map<string, Waiting>();

  private constructor(
    readonly survey: Survey,
    private readonly store: Store,
    private readonly enrolment: string,
    private readonly cohort: number | null,
    readonly clock: () => number,
    private readonly random: RandomBytes,
  ) {}

  /**
   * Opens a person's device. The first use of a store enrolls permanently: it draws the sampled attribute, the hash functions, the
   * fake values and the phases, and fixes the levels.
   *
   * @throws RangeError if `levels` names an attribute or level that the survey does not have, or the survey does not have the cohort.
   * @throws WrongSurvey if the store belongs to another survey.
   * @throws CostlySurvey if the survey may cost more than `maxEps`, at this device's levels.
   * @throws StoreCleared if `expectEnrolled` is true and the store is empty.
   * @throws DeviceError if the store cannot be used or has other levels.
   */
  static async open(survey: Survey, store: Store, options: DeviceOptions = {}): Promise<Device> {
    const random = options.random ?? systemBytes;
    const levels = levelIndices(survey, options.levels ?? {});
    const cohort = cohortIndex(survey, options.cohort);
    const enrolment = await store.transaction(async (records) => {
      const id = await enrolledAs(records, survey);
      if (id !== null) {
        await requireSameLevels(records, survey, levels);
        requireAtMost(survey, await Promise.all(survey.attributes.map(async (_, a) => (await read(records, a)).level)), options.maxEps);
        return id;
      }
      if (options.expectEnrolled) throw new StoreCleared(`the store of ${survey.name} is empty, but the device had enrolled`);
      const chosen = survey.attributes.map((_, a) => levels.get(a) ?? 0);
      requireAtMost(survey, chosen, options.maxEps);
      const forgotten = isAccount(records) ? await records.admit(chosen) : -1;
      return enroll(records, survey, levels, random, forgotten);
    });
    return new Device(survey, store, enrolment, cohort, options.clock ?? Date.now, random);
  }

  /**
   * Reports values of several attributes at a step, and all pairs of these attributes. Returns the envelopes by attribute.
   *
   * The device derives the value of a pair. It makes no report of a pair if one of its two attributes is missing. Each report is as
   * from `report`, and an attribute of which the device makes no report has no entry. All values are checked before the first report.
   *
   * @param values value by attribute name, as for `report`; no pair.
   * @param step as for `report`.
   * @throws RangeError as `report`; also if a name is that of a pair.
   * @throws StepForgotten, ClockWentBack, DeviceError as `report`.
   */
  async answer(values: Readonly<Record<string, Value | readonly Value[]>>, step?: number): Promise<Record<string, Uint8Array>> {
    const { attributes } = this.survey;
    for (const name of Object.keys(values)) {
      const { pair } = attributes[attributeIndex(this.survey, name)]!;
      if (pair) throw new RangeError(`${name} is a pair: give the values of ${pair[0].name} and ${pair[1].name}, and the device derives it`);
    }
    const given = (name: string) => Object.hasOwn(values, name);
    const asked = attributes.filter(({ name, pair }) => (pair ? pair.every((one) => given(one.name)) : given(name)));
    const valueOf = ({ name, pair }: Attribute) => (pair ? pair.map((one) => values[one.name] as Value) : values[name]!);
    for (const attribute of asked) valueIndex(attribute, valueOf(attribute));
    const t = step ?? stepAt(this.survey, this.clock());
    const made: Record<string, Uint8Array> = {};
    for (const attribute of asked) {
      const envelope = await this.reportAt(attribute.name, valueOf(attribute), t, step === undefined);
      if (envelope) made[attribute.name] = envelope;
    }
    return made;
  }

  /**
   * Returns the envelope with this device's report of a value; null if the device makes no report at this step.
   *
   * A device makes no report of an attribute that it does not answer, at a step outside its phase, after its lifetime's reports, and
   * after the survey's last step. `silence` gives the reason.
   *
   * The first call for a step draws the report. Later calls return the same bytes, whatever the value, while the envelope is kept:
   * see `waiting` and `settle`. A clock that ran ahead does not stop the device: it reports the true steps once the clock is right.
   *
   * @param attribute name of the attribute.
   * @param value a text as the survey writes it, or a number: an index into `values`, an integer for `size`, or a number for `bins`.
   *   Other texts and numbers become one of the values if the survey says so: `Attribute.unlisted` and `Attribute.nearest`.
   *   For a pair: an array with the values of its two attributes. For an attribute with `choices`: an array with all of the
   *   person's values, at most `choices` different ones, perhaps none.
   * @param step time step; by default the present step of the device's clock.
   * @throws RangeError if the attribute or step does not exist, or the survey refuses the value. The message hides the value.
   * @throws StepForgotten if the step can no longer be reported: its envelope was dropped, later steps are settled, or (in a
   *   wallet) the step is before the enrolment.
   * @throws ClockWentBack for the present step, for the same reason.
   * @throws StoreFull, StoreHeld, StoreCleared, WrongSurvey, DeviceError if the store cannot keep the report. No report is returned.
   */
  async report(attribute: string, value: Value | readonly Value[], step?: number): Promise<Uint8Array | null> {
    return this.reportAt(attribute, value, step ?? stepAt(this.survey, this.clock()), step === undefined);
  }

  private async reportAt(attribute: string, value: Value | readonly Value[], t: number, present: boolean): Promise<Uint8Array | null> {
    const a = attributeIndex(this.survey, attribute);
    requireStep(t);
    const index = valueIndex(this.survey.attributes[a]!, value);
    const sent = await this.transaction(async (records) => {
      const enrolment = await read(records, a);
      if (this.silenceOf(enrolment, a, t)) return null;
      const m = this.survey.attributes[a]!.levels[enrolment.level]!.mechanism;
      const before = enrolment.sent.find((report) => report.step === t);
      if (before?.envelope) return before;
      if (before || t <= enrolment.forgotten) {
        throw new (present ? ClockWentBack : StepForgotten)(attribute, t, earliest(enrolment, t, m.everySteps));
      }
      return this.firstReport(records, a, m, enrolment, enrolment.fake ?? index, t);
    });
    if (!sent) return null;
    for (const waiting of unsettled(attribute, [sent])) this.unsettled.set(waiting.key, waiting);
    return fromText(sent.envelope);
  }

  /**
   * Returns why the device makes no report of an attribute at a step, whatever the value; null if it makes a report, or if `report`
   * throws `StepForgotten`. Errors as of `report`.
   *
   * @param step as for `report`.
   */
  async silence(attribute: string, step?: number): Promise<Silence | null> {
    const [a, t] = [attributeIndex(this.survey, attribute), step ?? stepAt(this.survey, this.clock())];
    requireStep(t);
    return this.transaction(async (records) => this.silenceOf(await read(records, a), a, t));
  }

  private silenceOf({ answers, level, phase, reports, sent }: Enrolment, a: number, t: number): Silence | null {
    const { everySteps, lifetimeReports } = this.survey.attributes[a]!.levels[level]!.mechanism;
    if (!answers) return "other attribute";
    if (t >= this.survey.ends) return "survey ended";
    if (t % everySteps !== phase) return "other phase";
    return reports >= lifetimeReports && !sent.some((report) => report.step === t && report.envelope) ? "lifetime reports made" : null;
  }

  /**
   * Returns the reports that are not settled, in the order of steps.
   *
   * The device keeps up to `lateness_steps` + 26 such reports of an attribute. If there are more, it drops the one whose step is
   * farthest from the step of the newest report.
   */
  async waiting(): Promise<Waiting[]> {
    const waiting = await this.transaction(async (records) => {
      const found: Waiting[] = [];
      for (const [a, { name }] of this.survey.attributes.entries()) {
        found.push(...unsettled(name, (await read(records, a)).sent));
      }
      return found.sort((left, right) => left.step - right.step);
    });
    this.unsettled.clear();
    for (const report of waiting) this.unsettled.set(report.key, report);
    return waiting;
  }

  /** Returns the unsettled reports that this object has returned. Does not read the store, so it can be used while a page ends. */
  known(): Waiting[] {
    return [...this.unsettled.values()];
  }

  /**
   * Marks a report as settled: the report is in the log or will never count. A repeated call changes nothing.
   *
   * The device then keeps the `lateness_steps` + 2 latest settled envelopes of the attribute, and drops all earlier ones: the service
   * rejects their steps as too late.
   */
  async settle(report: Waiting): Promise<void> {
    const a = attributeIndex(this.survey, report.attribute);
    await this.transaction(async (records) => {
      const enrolment = await read(records, a);
      if (!enrolment.sent.some(({ key }) => key === report.key)) return;
      const sent = enrolment.sent.map((other) => (other.key === report.key ? { ...other, key: null } : other));
      const settled = sent.filter(({ envelope, key }) => envelope && key === null);
      const oldest = settled.at(-this.survey.latenessSteps - 2)?.step ?? 0;
      const forgotten = Math.max(enrolment.forgotten, oldest - 1);
      records.put(`attribute/${a}`, { ...enrolment, forgotten, sent: sent.filter((other) => other.step >= oldest) });
    });
    this.unsettled.delete(report.key);
  }

  /** Returns the privacy losses of the reports made for an attribute so far. */
  async spent(attribute: string): Promise<Spent> {
    const a = attributeIndex(this.survey, attribute);
    const { level, reports, memos } = await this.transaction((records) => read(records, a));
    const m = this.survey.attributes[a]!.levels[level]!.mechanism;
    return { reports, memos, epsT: memos > 1 ? null : lossOfReports(m, reports) };
  }

  /**
   * Erases memos, enrolment, envelopes and counts permanently. Past losses remain: a new enrolment adds a fresh budget to them.
   *
   * @param confirm the survey's name, to prevent erasing by mistake.
   * @throws RangeError if `confirm` differs from the survey's name. Nothing is erased.
   */
  async forget(confirm: string): Promise<void> {
    const { name } = this.survey;
    if (confirm !== name) throw new RangeError(`confirm must be the survey's name, ${name}, got ${JSON.stringify(confirm)}`);
    await this.transaction(async (records) => (isAccount(records) ? records.leave() : records.remove("")));
    this.unsettled.clear();
  }

  private transaction<T>(work: (records: Transaction) => Promise<T>): Promise<T> {
    return this.store.transaction(async (records) => {
      if ((await enrolledAs(records, this.survey)) !== this.enrolment) {
        throw new StoreCleared(`the store of ${this.survey.name} was cleared; open the device again to enroll again`);
      }
      return work(records);
    });
  }

  /** Makes and stores the only report of a step. */
  private async firstReport(
    records: Transaction,
    a: number,
    m: Mechanism,
    enrolment: Enrolment,
    value: number,
    step: number,
  ): Promise<Sent> {
    const { row, drawn } = await this.row(records, a, m, enrolment.hashFunction, value);
    const envelope = toText(seal(this.survey.fingerprint, a, enrolment.level, step, row, this.cohort));
    const key = toText(this.random(KEY_BYTES));
    const report: Sent = { step, envelope, key, ...(this.survey.relay && { due: this.moment(step) }) };
    let sent = [...enrolment.sent, report].sort((left, right) => left.step - right.step);
    // with a skew of at most a step, the service accepts the present step, `lateness_steps` late steps and the next step
    const surplus = sent.filter(({ key }) => key !== null).length - this.survey.latenessSteps - 2 - AHEAD_REPORTS;
    const farthest = sent
      .filter(({ key }) => key !== null)
      .sort((left, right) => Math.abs(right.step - step) - Math.abs(left.step - step)) // of two equally far steps, the earlier stays first
      .slice(0, Math.max(0, surplus));
    sent = sent.map((other) => (farthest.includes(other) ? { step: other.step, envelope: "", key: null } : other));
    const tooMany = sent.filter(({ envelope: kept }) => !kept).at(-MAX_DROPPED - 1)?.step ?? -1;
    const forgotten = Math.max(enrolment.forgotten, tooMany);
    sent = sent.filter((other) => other.envelope || other.step > tooMany);
    const { reports, memos } = enrolment;
    records.put(`attribute/${a}`, { ...enrolment, reports: reports + 1, memos: memos + Number(drawn), forgotten, sent });
    return report;
  }

  /** Draws the moment of sending: uniform over the step after the report's step, whatever the time of the report. */
  private moment(step: number): number {
    const { startMs, stepMs } = this.survey;
    const seconds = below(stepMs / 1000, this.random);
    return startMs + (step + 1) * stepMs + 1000 * seconds + below(1000, this.random);
  }

  /** Draws the row of a report; `drawn` is true if the value had no memo. */
  private async row(
    records: Transaction,
    a: number,
    m: Mechanism,
    hashFunction: number,
    value: number,
  ): Promise<{ row: Uint8Array; drawn: boolean }> {
    if (!m.memo) return { row: reportOnce(m, value, this.random), drawn: false };
    const key = memoKey(m, value, hashFunction);
    const name = `memo/${a}/${key}`;
    const kept = await records.get(name);
    const memo = kept === undefined ? drawMemo(m, key, hashFunction, this.random) : fromText(String(kept));
    if (!isMemo(m, memo, hashFunction)) throw new DeviceError(`the memo of ${this.survey.attributes[a]!.name} is damaged`);
    if (kept === undefined) records.put(name, toText(memo));
    return { row: reportMemo(m, memo, this.random), drawn: kept === undefined };
  }
}

// ---- enrolment

/** The records of one device inside a wallet. */
export interface Account extends Transaction {
  /** Charges the survey's claim at these levels. Returns the latest step that the device may not report. */
  admit(levels: readonly number[]): Promise<number>;
  /** Deletes the device's records and charges what the device has spent. */
  leave(): Promise<void>;
}

function isAccount(records: Transaction): records is Account {
  return "admit" in records;
}

/** Returns the first step after `step`, of the same phase, that the device can still report for the first time. */
function earliest({ forgotten, sent }: Enrolment, step: number, everySteps: number): number {
  let found = step + everySteps * Math.max(1, Math.floor((forgotten - step) / everySteps) + 1);
  for (const reported of sent) if (reported.step === found) found += everySteps;
  return found;
}

/** Returns the id of the store's enrolment in this survey; null if the store is empty. */
async function enrolledAs(records: Transaction, survey: Survey): Promise<string | null> {
  const kept = (await records.get("device")) as { format: number; pin?: string; fingerprint?: string; id: string } | undefined;
  if (kept === undefined) {
    if (await records.get("wallet")) throw new DeviceError("the store is a wallet; use Wallet.device to answer a survey");
    return null;
  }
  const former = kept.format === 1;
  if (kept.format !== FORMAT && !former) throw new DeviceError(`the store has format ${kept.format}, this program needs format ${FORMAT}`);
  if (former ? kept.fingerprint !== fingerprintOf(survey.pin) : kept.pin !== survey.pin) {
    throw new WrongSurvey(
      `the store belongs to the survey with the pin ${kept.pin ?? `${kept.fingerprint}…`}, not to ${survey.name} with the pin ` +
        `${survey.pin}; each survey needs its own store and its own budget`,
    );
  }
  if (former) records.put("device", { format: FORMAT, pin: survey.pin, id: kept.id });
  return kept.id;
}

/** Draws and stores the choices that a device makes at its first use. Returns the enrolment's id. */
function enroll(
  records: Transaction,
  survey: Survey,
  levels: ReadonlyMap<number, number>,
  random: RandomBytes,
  forgotten: number, // latest step that the device will not report; -1 for none
): string {
  const sampled = below(survey.attributes.length, random);
  survey.attributes.forEach((attribute, a) => {
    const level = levels.get(a) ?? 0;
    const m = attribute.levels[level]!.mechanism;
    const fake = survey.collection === "rs+fd" && a !== sampled ? below(m.k, random) : null;
    const enrolment: Enrolment = {
      level,
      answers: survey.collection !== "smp" || a === sampled,
      fake,
      hashFunction: drawFunction(m, random),
      phase: below(m.everySteps, random),
      reports: 0,
      memos: 0,
      forgotten,
      sent: [],
    };
    records.put(`attribute/${a}`, enrolment);
  });
  const id = crypto.randomUUID();
  records.put("device", { format: FORMAT, pin: survey.pin, id });
  return id;
}

function requireStep(step: number): void {
  if (!Number.isSafeInteger(step) || step < 0) throw new RangeError(`step must be an integer of at least 0, got ${step}`);
}

/** Translates the names of attributes and levels into indices. */
function levelIndices(survey: Survey, levels: Readonly<Record<string, string>>): Map<number, number> {
  return new Map(
    Object.entries(levels).map(([attribute, level]) => {
      const a = attributeIndex(survey, attribute);
      const names = survey.attributes[a]!.levels.map(({ name }) => name);
      if (!names.includes(level)) {
        throw new RangeError(`the level of ${attribute} must be one of ${names.join(", ")}, got ${JSON.stringify(level)}`);
      }
      return [a, names.indexOf(level)];
    }),
  );
}

function requireAtMost(survey: Survey, levels: readonly number[], maxEps = Infinity): void {
  const asked = largestLoss(survey, levels);
  if (!(asked <= maxEps + TOLERANCE)) throw new CostlySurvey(survey.name, asked, maxEps);
}

async function requireSameLevels(records: Transaction, survey: Survey, levels: ReadonlyMap<number, number>): Promise<void> {
  for (const [a, level] of levels) {
    const kept = (await read(records, a)).level;
    const { name, levels: known } = survey.attributes[a]!;
    if (kept !== level) {
      throw new DeviceError(
        `the level of ${name} is permanently ${known[kept]!.name}, got ${known[level]!.name}; ` +
          "a second level would need a second privacy budget",
      );
    }
  }
}

// ---- records

async function read(records: Transaction, a: number): Promise<Enrolment> {
  const record = await records.get(`attribute/${a}`);
  if (record === undefined) throw new DeviceError(`the store is damaged: attribute ${a} is missing`);
  return record as unknown as Enrolment;
}

/** Returns an attribute's reports that are not settled. */
function unsettled(attribute: string, sent: readonly Sent[]): Waiting[] {
  return sent.flatMap(({ step, envelope, key, due: dueMs = 0 }) =>
    key === null ? [] : [{ attribute, step, envelope: fromText(envelope), key, dueMs }],
  );
}
