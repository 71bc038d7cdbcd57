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
 * Without the person's consent, and while a switch turns devices off (`consent.ts`), the device draws, stores and sends nothing.
 *
 * No error message contains a true value. The store contains true values: see docs/howto/device.md.
 *
 * Records of the store: `device` has the survey's pin and a random id of the enrolment, none after a withdrawal; `attribute/A` has the
 * permanent choices, the counts and the last envelopes; `memo/A/KEY` has a memo; `consent` has the person's answers; `journal` has the
 * last reports that left.
 */

import { fromText, toText } from "./bytes.js";
import { largestLoss } from "./claims.js";
import { Consents, type Consent, type ConsentMode, type NoConsent, type SharedAnswers } from "./consent.js";
import { ClockWentBack, CostlySurvey, DeviceError, StepForgotten, StoreCleared, WrongSurvey } from "./errors.js";
import { seal } from "./envelope.js";
import { drawFunction, drawMemo, isMemo, memoKey, reportMemo, reportOnce, type Mechanism } from "./mechanisms.js";
import { lossOfReports } from "./promise.js";
import { below, systemBytes, type RandomBytes } from "./random.js";
import type { Store, Transaction } from "./store.js";
import { attributeIndex, cohortIndex, fingerprintOf, stepAt, type Attribute, type Survey } from "./survey.js";
import { valueIndex, type Value } from "./values.js";
import { preview, question } from "./words.js";

const FORMAT = 3; // format of the records; format 2 has no consent, format 1 the fingerprint in place of the pin: both are converted
const MAX_JOURNAL = 200; // reports in a journal
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
  /** By default "asked": the device does nothing before `giveConsent`. */
  readonly consent?: ConsentMode;
}

/** Why a device makes no report of an attribute at a step: a switch turns devices off, the person has not agreed, it answers other attributes (smp), it reports at other steps, which are
 * `everySteps` apart, it has made all `lifetime_reports`, or the step is after the survey's last one. */
export type Silence = NoConsent | "other attribute" | "other phase" | "lifetime reports made" | "survey ended" | "survey not begun";

/** A report that may need another attempt. */
export interface Waiting {
  readonly attribute: string;
  readonly step: number;
  readonly envelope: Uint8Array;
  readonly key: string; // `Idempotency-Key` of all attempts: 128 random bits
  readonly dueMs: number; // time from which the report may leave, in ms since 1970; 0, which means at once, without a relay
}

/** A report that left the device or may have left it. Never a true value. */
export interface Left {
  readonly atMs: number; // time of the first attempt by the device's clock, in ms since 1970
  readonly attribute: string;
  readonly step: number;
  readonly envelope: Uint8Array;
  readonly how: "answered" | "sent" | "local"; // "answered": the gateway gave a final answer; "local": it was only shown as sent
}

/** A report that would leave now. */
export interface Preview {
  readonly attribute: string;
  readonly step: number;
  readonly silence: Silence | "already answered" | null; // why it does not leave now; "already answered" by the gateway
  readonly example: boolean; // true if it is not made yet: chance then draws another one
  readonly envelope: Uint8Array | null; // null if the device makes no report of this step. Never send an example: it is not counted
  readonly text: string; // all of this in words: the bytes by their parts, and what each part can reveal
}

type Entry = { readonly atMs: number; readonly attribute: string; readonly step: number; readonly envelope: string; readonly local: boolean; readonly key: string | null };

/** The survey's place in the store during one transaction. */
interface Place {
  readonly muted: ReadonlyMap<string, NoConsent>;
  readonly enrolled: boolean;
}

class NotKept extends Error {
  constructor(readonly previews: Preview[]) {
    super();
  }
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
  private readonly tabs: BroadcastChannel | null; // tells the other tabs of a withdrawal, because a page that ends does not read the store

  private constructor(
    readonly survey: Survey,
    private readonly store: Store,
    private enrolment: string | null,
    private readonly cohort: number | null,
    readonly clock: () => number,
    private readonly random: RandomBytes,
    private readonly consents: Consents,
    private readonly levels: readonly number[],
  ) {
    this.tabs = "document" in globalThis && "BroadcastChannel" in globalThis ? new BroadcastChannel(`ldpstream ${survey.pin}`) : null;
    (this.tabs as { unref?: () => void } | null)?.unref?.(); // Node would wait for messages for ever
    this.tabs?.addEventListener("message", ({ data }: MessageEvent<string[]>) => this.dropKnown(data));
  }

  private dropKnown(names: readonly string[]): void {
    for (const [key, report] of this.unsettled) if (names.includes(report.attribute)) this.unsettled.delete(key);
  }

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
    const consents = new Consents(survey, options.consent ?? "asked");
    const [enrolment, chosen] = await store.transaction(async (records) => {
      const id = await enrolledAs(records, survey);
      if (id !== null) {
        await requireSameLevels(records, survey, levels);
        const kept: number[] = [];
        for (const a of survey.attributes.keys()) kept.push((await read(records, a)).level);
        requireAtMost(survey, kept, options.maxEps);
        return [id, kept];
      }
      const muted = await consents.muted(records);
      const refused = [...muted.values()].includes("consent withdrawn");
      if (options.expectEnrolled && !refused) throw new StoreCleared(`the store of ${survey.name} is empty, but the device had enrolled`);
      const chosen = survey.attributes.map((_, a) => levels.get(a) ?? 0);
      requireAtMost(survey, chosen, options.maxEps);
      if (isAccount(records)) records.fitting(chosen);
      return [muted.size < survey.attributes.length ? await enroll(records, survey, chosen, random) : null, chosen];
    });
    return new Device(survey, store, enrolment, cohort, options.clock ?? Date.now, random, consents, chosen);
  }

  // ---- consent

  /** Returns the text by which the application asks for consent, as plain text in several lines, from the survey's own words. */
  question(): string {
    return question(this.survey, this.levels);
  }

  /** Returns the person's consent to an attribute. By default to the survey: "unknown" if an attribute's is unknown, else "given" if one is given. */
  async consent(attribute?: string): Promise<Consent> {
    const states = await this.transaction((records) => this.consents.states(records));
    if (attribute !== undefined) return states.get(this.consents.names[attributeIndex(this.survey, attribute)]!)!;
    const found = [...states.values()];
    return found.includes("unknown") ? "unknown" : found.includes("given") ? "given" : "withdrawn";
  }

  /**
   * Returns the attributes about which the application has to ask the person; none while devices are switched off. A new purpose or
   * owner, or a longer storage than the person agreed to, makes a consent unknown again.
   */
  async toAsk(): Promise<string[]> {
    if (this.consents.off) return [];
    const states = await this.transaction((records) => this.consents.states(records));
    return this.consents.names.filter((name) => states.get(name) === "unknown");
  }

  /**
   * Keeps the person's consent to some attributes, by default to all. Enrolls the device permanently. While devices are switched off,
   * it does nothing. After a withdrawal the device enrolls again, with a fresh budget.
   *
   * @throws RangeError if there is no such attribute.
   * @throws WalletFull if the survey does not fit the wallet's budget. Nothing is kept.
   * @throws DeviceError as for `open`.
   */
  async giveConsent(...attributes: string[]): Promise<void> {
    const names = this.named(attributes);
    if (this.consents.off) return;
    this.enrolment = await this.store.transaction(async (records) => {
      const id = (await enrolledAs(records, this.survey)) ?? (await enroll(records, this.survey, this.levels, this.random));
      await this.consents.keep(records, "given", names);
      return id;
    });
    for (const name of names) this.consents.stopped.delete(name);
  }

  /**
   * Withdraws the consent to some attributes, by default to all; before any consent, keeps that the person refused. Nothing more is
   * sent: the device drops the waiting reports. It keeps nothing but the withdrawal, and sends no event. If consent to other attributes
   * remains, the device also keeps the choices of its enrolment and which steps it reported.
   *
   * @throws RangeError if there is no such attribute.
   * @throws DeviceError if the store cannot be written. It may keep the consent then, but this object sends nothing more.
   */
  async withdrawConsent(...attributes: string[]): Promise<void> {
    const names = this.named(attributes);
    for (const name of names) this.consents.stopped.add(name);
    this.dropKnown(names);
    this.tabs?.postMessage(names);
    await this.store.transaction(async (records) => {
      const id = await enrolledAs(records, this.survey);
      const every = await this.consents.keep(records, "withdrawn", names);
      if (every) await erase(records, this.survey);
      else if (id === null && !isAccount(records)) records.put("device", { format: FORMAT, pin: this.survey.pin, id });
      else if (id !== null) for (const name of names) await this.withdrawOne(records, name);
    });
    for (const name of names) this.consents.stopped.delete(name);
  }

  private async withdrawOne(records: Transaction, name: string): Promise<void> {
    const a = attributeIndex(this.survey, name);
    const enrolment = await read(records, a);
    records.remove(`memo/${a}/`);
    const memos = enrolment.memos && 2; // after a new consent, other memos follow the erased ones
    records.put(`attribute/${a}`, { ...enrolment, memos, sent: enrolment.sent.map(({ step }) => ({ step, envelope: "", key: null })) });
    records.put("journal", (await journalOf(records)).filter(({ attribute }) => attribute !== name));
  }

  private named(attributes: readonly string[]): readonly string[] {
    const indices = attributes.map((name) => attributeIndex(this.survey, name));
    return indices.length ? indices.map((a) => this.consents.names[a]!) : this.consents.names;
  }

  /**
   * Returns what `answer` would make and send now, and what each part can reveal. Keeps nothing, and sends nothing. It also shows the
   * reports of a person who has not consented yet. Errors as of `answer`.
   */
  async preview(values: Readonly<Record<string, Value | readonly Value[]>>, step?: number): Promise<Preview[]> {
    const asked = this.asked(values);
    const t = this.at(step);
    try {
      return await this.store.transaction<Preview[]>(async (records) => {
        const fresh = (await enrolledAs(records, this.survey)) === null;
        const muted = await this.consents.muted(records);
        if (fresh) await enroll(records, this.survey, this.levels, this.random);
        const found: Preview[] = [];
        for (const [{ name: attribute }, value] of asked) {
          const a = attributeIndex(this.survey, attribute);
          const kept = await read(records, a);
          const { everySteps } = this.survey.attributes[a]!.levels[kept.level]!.mechanism;
          const enrolment = fresh ? { ...kept, answers: true, phase: t % everySteps } : kept;
          const own = this.silenceOf(enrolment, a, t);
          const example = !enrolment.sent.some((report) => report.step === t);
          const dropped = muted.has(attribute) && enrolment.sent.some((report) => report.step === t && !report.envelope);
          const sent = own || dropped ? null : await this.reportOf(records, a, enrolment, valueIndex(this.survey.attributes[a]!, value), t, step === undefined);
          const answered = sent?.key === null ? ("already answered" as const) : null;
          const [silence, envelope] = [muted.get(attribute) ?? own ?? answered, sent && fromText(sent.envelope)];
          found.push({ attribute, step: t, silence, example, envelope, text: preview(this.survey, attribute, t, silence, example, envelope) });
        }
        throw new NotKept(found);
      });
    } catch (error) {
      if (error instanceof NotKept) return error.previews;
      throw error;
    }
  }

  /** Returns the last reports that left this device or may have left it, the latest last. */
  async journal(): Promise<Left[]> {
    const entries = await this.transaction(journalOf);
    return entries.map(({ envelope, local, key, ...entry }) => ({ ...entry, envelope: fromText(envelope), how: local ? "local" : key === null ? "answered" : "sent" }));
  }

  /**
   * Writes a report into the journal. A sender calls this before each attempt, and sends nothing if the result is false: then consent
   * was withdrawn, devices are switched off, or the report does not wait any more.
   */
  async leaves({ key, attribute }: Waiting, local = false): Promise<boolean> {
    const a = attributeIndex(this.survey, attribute);
    return this.transaction(async (records, { muted }) => {
      if (muted.has(attribute)) return false;
      const sent = (await read(records, a)).sent.find((report) => report.key === key);
      if (!sent) return false;
      const journal = await journalOf(records);
      const before = journal.find((entry) => entry.key === key);
      const entry: Entry = before ? { ...before, local: before.local && local } : { atMs: this.clock(), attribute, step: sent.step, envelope: sent.envelope, local, key };
      records.put("journal", [...journal.filter((other) => other !== before), entry].slice(-MAX_JOURNAL));
      return true;
    });
  }

  // ---- reports

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
    const t = this.at(step);
    const made: Record<string, Uint8Array> = {};
    for (const [{ name }, value] of this.asked(values)) {
      const envelope = await this.reportAt(name, value, t, step === undefined);
      if (envelope) made[name] = envelope;
    }
    return made;
  }

  /** Returns the attributes that get an answer, also the pairs, each with its value. All values are valid. */
  private asked(values: Readonly<Record<string, Value | readonly Value[]>>): [Attribute, Value | readonly Value[]][] {
    const { attributes } = this.survey;
    for (const name of Object.keys(values)) {
      const { pair } = attributes[attributeIndex(this.survey, name)]!;
      if (pair) throw new RangeError(`${name} is a pair: give the values of ${pair[0].name} and ${pair[1].name}, and the device derives it`);
    }
    const given = (name: string) => Object.hasOwn(values, name);
    const asked = attributes.filter(({ name, pair }) => (pair ? pair.every((one) => given(one.name)) : given(name)));
    const valueOf = ({ name, pair }: Attribute) => (pair ? pair.map((one) => values[one.name] as Value) : values[name]!);
    for (const attribute of asked) valueIndex(attribute, valueOf(attribute));
    return asked.map((attribute) => [attribute, valueOf(attribute)]);
  }

  /**
   * Returns the envelope with this device's report of a value; null if the device makes no report at this step.
   *
   * A device makes no report of an attribute that it does not answer, at a step outside its phase, after its lifetime's reports,
   * before the survey's start, and after its last step. `silence` gives the reason.
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
    return this.reportAt(attribute, value, this.at(step), step === undefined);
  }

  /** The step of a call: the given one, or the present one, which is negative before the survey's start. */
  private at(step?: number): number {
    if (step === undefined) return stepAt(this.survey, this.clock());
    if (!Number.isSafeInteger(step) || step < 0) throw new RangeError(`step must be an integer of at least 0, got ${step}`);
    return step;
  }

  private async reportAt(attribute: string, value: Value | readonly Value[], t: number, present: boolean): Promise<Uint8Array | null> {
    const a = attributeIndex(this.survey, attribute);
    const index = valueIndex(this.survey.attributes[a]!, value);
    const sent = await this.transaction(async (records, { muted }) => {
      if (muted.has(attribute)) return null;
      const enrolment = await read(records, a);
      return this.silenceOf(enrolment, a, t) ? null : this.reportOf(records, a, enrolment, index, t, present);
    });
    if (!sent) return null;
    for (const waiting of unsettled(attribute, [sent])) this.unsettled.set(waiting.key, waiting);
    return fromText(sent.envelope);
  }

  /** Returns the report of a step, and makes it if there is none. */
  private async reportOf(records: Transaction, a: number, enrolment: Enrolment, index: number, t: number, present: boolean): Promise<Sent> {
    const { name, levels } = this.survey.attributes[a]!;
    const m = levels[enrolment.level]!.mechanism;
    const before = enrolment.sent.find((report) => report.step === t);
    if (before?.envelope) return before;
    if (before || t <= enrolment.forgotten) {
      throw new (present ? ClockWentBack : StepForgotten)(name, t, earliest(enrolment, t, m.everySteps));
    }
    return this.firstReport(records, a, m, enrolment, enrolment.fake ?? index, t);
  }

  /**
   * Returns why the device makes no report of an attribute at a step, whatever the value; null if it makes a report, or if `report`
   * throws `StepForgotten`. Errors as of `report`.
   *
   * @param step as for `report`.
   */
  async silence(attribute: string, step?: number): Promise<Silence | null> {
    const [a, t] = [attributeIndex(this.survey, attribute), this.at(step)];
    return this.transaction(async (records, { muted }) => muted.get(this.consents.names[a]!) ?? this.silenceOf(await read(records, a), a, t));
  }

  private silenceOf({ answers, level, phase, reports, sent }: Enrolment, a: number, t: number): Silence | null {
    const { everySteps, lifetimeReports } = this.survey.attributes[a]!.levels[level]!.mechanism;
    if (!answers) return "other attribute";
    if (t >= this.survey.ends) return "survey ended";
    if (t < 0) return "survey not begun";
    if (t % everySteps !== phase) return "other phase";
    return reports >= lifetimeReports && !sent.some((report) => report.step === t && report.envelope) ? "lifetime reports made" : null;
  }

  /**
   * Returns the reports that are not settled, in the order of steps; without consent, none.
   *
   * The device keeps up to `lateness_steps` + 26 such reports of an attribute. If there are more, it drops the one whose step is
   * farthest from the step of the newest report.
   */
  async waiting(): Promise<Waiting[]> {
    const waiting = await this.transaction(async (records, { muted }) => {
      const found: Waiting[] = [];
      for (const [a, { name }] of this.survey.attributes.entries()) {
        if (!muted.has(name)) found.push(...unsettled(name, (await read(records, a)).sent));
      }
      return found.sort((left, right) => left.step - right.step);
    });
    this.unsettled.clear();
    for (const report of waiting) this.unsettled.set(report.key, report);
    return waiting;
  }

  /** Returns the unsettled reports that this object has returned. Does not read the store, so it can be used while a page ends. */
  known(): Waiting[] {
    return this.consents.off ? [] : [...this.unsettled.values()];
  }

  /**
   * Marks a report as settled: the report is in the log or will never count. A repeated call changes nothing.
   *
   * The device then keeps the `lateness_steps` + 2 latest settled envelopes of the attribute, and drops all earlier ones: the service
   * rejects their steps as too late.
   */
  async settle(report: Waiting): Promise<void> {
    const a = attributeIndex(this.survey, report.attribute);
    await this.transaction(async (records, { enrolled }) => {
      if (!enrolled) return;
      const journal = await journalOf(records);
      if (journal.some(({ key }) => key === report.key)) {
        records.put("journal", journal.map((entry) => (entry.key === report.key ? { ...entry, key: null } : entry)));
      }
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
    const kept = await this.transaction((records, { enrolled }) => (enrolled ? read(records, a) : Promise.resolve(null)));
    if (!kept) return { reports: 0, memos: 0, epsT: 0 };
    const { level, reports, memos } = kept;
    const m = this.survey.attributes[a]!.levels[level]!.mechanism;
    return { reports, memos, epsT: memos > 1 ? null : lossOfReports(m, reports) };
  }

  /**
   * Erases memos, enrolment, envelopes, counts, consent and journal permanently. Past losses remain: a new enrolment adds a fresh
   * budget to them.
   *
   * @param confirm the survey's name, to prevent erasing by mistake.
   * @throws RangeError if `confirm` differs from the survey's name. Nothing is erased.
   */
  async forget(confirm: string): Promise<void> {
    const { name } = this.survey;
    if (confirm !== name) throw new RangeError(`confirm must be the survey's name, ${name}, got ${JSON.stringify(confirm)}`);
    await this.transaction(async (records) => {
      if (!isAccount(records)) return records.remove("");
      await records.leave();
      records.forgetAnswers();
    });
    this.unsettled.clear();
  }

  /** A device that asks goes on with an enrolment that another tab or process made after a withdrawal. */
  private transaction<T>(work: (records: Transaction, place: Place) => Promise<T>): Promise<T> {
    return this.store.transaction(async (records) => {
      const id = await enrolledAs(records, this.survey);
      const muted = await this.consents.muted(records);
      const consented = muted.size < this.survey.attributes.length;
      if (consented && (id === null || (this.consents.mode !== "asked" && id !== this.enrolment))) {
        throw new StoreCleared(`the store of ${this.survey.name} was cleared; open the device again to enroll again`);
      }
      return work(records, { muted, enrolled: id !== null });
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
export interface Account extends Transaction, SharedAnswers {
  /** Requires that the survey's claim at these levels fits the budget. */
  fitting(levels: readonly number[]): unknown;
  forgetAnswers(): void;
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

/** Returns the id of the store's enrolment in this survey; null if the store is empty, or has only a withdrawal. */
async function enrolledAs(records: Transaction, survey: Survey): Promise<string | null> {
  const kept = (await records.get("device")) as { format: number; pin?: string; fingerprint?: string; id: string | null } | undefined;
  if (kept === undefined) {
    if (await records.get("wallet")) throw new DeviceError("the store is a wallet; use Wallet.device to answer a survey");
    return null;
  }
  const former = kept.format === 1;
  if (kept.format !== FORMAT && kept.format !== 2 && !former) throw new DeviceError(`the store has format ${kept.format}, this program needs format ${FORMAT}`);
  if (former ? kept.fingerprint !== fingerprintOf(survey.pin) : kept.pin !== survey.pin) {
    throw new WrongSurvey(
      `the store belongs to the survey with the pin ${kept.pin ?? `${kept.fingerprint}…`}, not to ${survey.name} with the pin ` +
        `${survey.pin}; each survey needs its own store and its own budget`,
    );
  }
  if (kept.format !== FORMAT) records.put("device", { format: FORMAT, pin: survey.pin, id: kept.id });
  return kept.id;
}

/** Draws and stores the choices that a device makes at its first use. Returns the enrolment's id. */
async function enroll(records: Transaction, survey: Survey, levels: readonly number[], random: RandomBytes): Promise<string> {
  const forgotten = isAccount(records) ? await records.admit(levels) : -1; // latest step that the device will not report
  const sampled = below(survey.attributes.length, random);
  survey.attributes.forEach((attribute, a) => {
    const level = levels[a]!;
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

/** Erases everything but the withdrawal. */
async function erase(records: Transaction, survey: Survey): Promise<void> {
  if (isAccount(records)) return records.leave();
  const kept = await records.get("consent");
  records.remove("");
  records.put("consent", kept!);
  records.put("device", { format: FORMAT, pin: survey.pin, id: null });
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

async function journalOf(records: Transaction): Promise<readonly Entry[]> {
  return ((await records.get("journal")) ?? []) as unknown as readonly Entry[];
}

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
