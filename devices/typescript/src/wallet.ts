/**
 * The wallet: one store and one privacy budget of a person, for all surveys of an application.
 *
 * A survey is admitted when the claims of all surveys fit the budget. Claims depend only on surveys and chosen levels. If a device
 * instead stopped when its losses so far reached the budget, its silence could depend on its values.
 *
 * Records of the store: `wallet` has the limits and the surveys' charges; `N/…` has the device's records for survey number N;
 * `consent/PIN` has the person's answers to a survey.
 */

import { claim, together, type Claim } from "./claims.js";
import { Device, type Account, type DeviceOptions, type Enrolment } from "./device.js";
import { DeviceError, nats, StoreCleared, WalletFull } from "./errors.js";
import type { Json, Store, Transaction } from "./store.js";
import { fingerprintOf, stepAt, type Collection, type Survey } from "./survey.js";

const FORMAT = 3; // format of the record `wallet`; format 2 has no consent, format 1 fingerprints in place of pins: both are converted
const TOLERANCE = 1e-9; // relative; three claims of 0.1 fit a budget of 0.3
const [MIN_BUDGET, MAX_BUDGET] = [1e-9, 1e9]; // nats
const MAX_WINDOW_S = 1e12;

/** A wallet's limits, in nats. At least one of `perWindow` and `forEver` is necessary. The first enrolment fixes them permanently. */
export interface WalletLimits {
  /** Largest loss between histories that differ only within `windowSeconds`, for an observer who has all reports of all times. */
  readonly perWindow?: number;
  readonly windowSeconds?: number; // necessary with `perWindow`
  /** Largest loss between any two histories. A level without `lifetime_reports` in a survey without `ends` never fits. */
  readonly forEver?: number;
}

/** Options of `Wallet.open`. */
export interface WalletOptions {
  /** True if the application knows that this wallet has been made before: an empty store is then a `StoreCleared`. */
  readonly expectEnrolled?: boolean;
  /** Time in ms since 1970; by default `Date.now`. */
  readonly clock?: () => number;
}

/** One enrolment in a survey, with the device's loss so far and the wallet's charges. */
export interface SurveySpent {
  readonly survey: string;
  readonly pin: string; // 64 hexadecimal digits; 16 for an enrolment by an earlier version whose device was not used since
  readonly left: boolean; // true if the device has left the survey
  readonly reports: number; // number of reports, over all attributes
  readonly spent: number; // bound of the loss of these reports between any two histories, in nats
  readonly perWindow: number; // charge for a window, in nats
  readonly forEver: number; // charge for ever, in nats; Infinity if the claim has no bound
}

/** The privacy loss that a person has spent in all surveys. The numbers depend on no reported value. */
export interface WalletSpent {
  readonly surveys: readonly SurveySpent[]; // by enrolment, in their order, without those that ended without a report
  readonly spent: number;
  readonly chargedPerWindow: number; // charges for the present window
  readonly chargedForEver: number;
  readonly limits: WalletLimits;
}

type Row = {
  readonly number: number;
  readonly pin: string;
  readonly name: string;
  readonly collection: Collection;
  readonly startMs: number;
  readonly stepMs: number;
  readonly perWindow: number;
  readonly forEver: number | null; // null: without bound
  readonly losses: readonly number[]; // `lossPerReport`, by attribute
  readonly untilMs: number | null; // end of the last step, or of the last reported step after leaving; null: no end
  readonly reports: number | null; // null: enrolled
};

type Book = {
  readonly format: number;
  readonly perWindow: number | null;
  readonly windowSeconds: number | null;
  readonly forEver: number | null;
  readonly next: number; // number of the next survey
  readonly surveys: readonly Row[];
};

export class Wallet {
  private made = false; // true once the store had the wallet's record

  private constructor(
    private readonly store: Store,
    private readonly clock: () => number,
    private readonly empty: Book,
  ) {}

  /**
   * Opens a person's wallet. The first enrolment stores it, and fixes the limits.
   *
   * @throws RangeError if a limit is out of its range or missing.
   * @throws StoreCleared if `expectEnrolled` is true and the store is empty.
   * @throws DeviceError if the store has other limits, belongs to a single device or cannot be used.
   */
  static async open(store: Store, limits: WalletLimits, options: WalletOptions = {}): Promise<Wallet> {
    const wallet = new Wallet(store, options.clock ?? Date.now, newBook(limits));
    await store.transaction((records) => wallet.book(records, options.expectEnrolled));
    return wallet;
  }

  /** Returns the stored book, in the present format; before the first enrolment, an empty one. */
  private async book(records: Transaction, expected = this.made): Promise<Book> {
    if (await records.get("device")) throw new DeviceError("the store belongs to a single device, not to a wallet");
    const kept = (await records.get("wallet")) as Book | undefined;
    if (kept === undefined) {
      if (expected) throw new StoreCleared("the wallet's store is empty, but the wallet had been made");
      return this.empty;
    }
    if (kept.format !== FORMAT && kept.format !== 2 && kept.format !== 1) throw new DeviceError(`the wallet has format ${kept.format}, this program needs format ${FORMAT}`);
    if (shown(kept) !== shown(this.empty)) throw new DeviceError(`the wallet's limits are permanently ${shown(kept)}, got ${shown(this.empty)}`);
    this.made = true;
    const book = kept.format === FORMAT ? kept : converted(kept);
    if (book !== kept) records.put("wallet", book);
    return book;
  }

  /**
   * Returns the device that answers a survey. The enrolment charges the survey's claim: `Device.giveConsent` enrolls, or this method
   * if `consent` is not "asked". The device reports no step before the step at which it enrolled.
   *
   * @throws WalletFull if there is no enrolment, and the claim does not fit the budget. The wallet is as before.
   * @throws RangeError, StoreCleared, DeviceError as for `Device.open`.
   */
  device(survey: Survey, options: Omit<DeviceOptions, "clock"> = {}): Promise<Device> {
    const place: Store = {
      transaction: async (work) => {
        const [result, enrolled] = await this.store.transaction(async (records) => {
          const found = new Place(records, completed(records, await this.book(records), survey), survey, this.clock);
          return [await work(found), found.enrolled] as const;
        });
        this.made ||= enrolled;
        return result;
      },
    };
    return Device.open(survey, place, { ...options, clock: this.clock });
  }

  /**
   * Erases the memos, envelopes and choices of a survey permanently. `Device.forget` does the same. The wallet then charges the loss
   * of the reports made instead of the claim. A later `device` for the survey is a new enrolment with a new claim.
   *
   * @param pin the survey's pin, as in `spent`.
   * @throws RangeError if the device is not enrolled in such a survey.
   */
  async leave(pin: string): Promise<void> {
    await this.store.transaction(async (records) => {
      const book = await this.book(records);
      const row = enrolled(book, pin);
      if (!row) throw new RangeError(`pin must be that of a survey in which the device is enrolled, got ${JSON.stringify(pin)}`);
      await leave(records, book, row);
      records.remove(`consent/${pin}`);
    });
  }

  /** Returns the person's losses so far and the wallet's charges. */
  spent(): Promise<WalletSpent> {
    return this.store.transaction(async (records) => {
      const book = await this.book(records);
      const surveys: SurveySpent[] = [];
      for (const row of book.surveys) {
        const { name: survey, pin, perWindow } = row;
        const left = row.reports !== null;
        const { reports, spent } = left ? { reports: row.reports!, spent: row.forEver! } : await spentIn(records, row);
        surveys.push({ survey, pin, left, reports, spent, perWindow, forEver: row.forEver ?? Infinity });
      }
      const charged = charges(book, this.clock());
      const spent = surveys.reduce((sum, row) => sum + row.spent, 0);
      return { surveys, spent, chargedPerWindow: charged.perWindow, chargedForEver: charged.forEver, limits: limitsOf(book) };
    });
  }
}

/** The records of one survey's device during a transaction of the wallet. */
class Place implements Account {
  constructor(
    private readonly records: Transaction,
    private readonly book: Book,
    private readonly survey: Survey,
    private readonly clock: () => number,
    private row = enrolled(book, survey.pin),
  ) {}

  get enrolled(): boolean {
    return this.row !== undefined;
  }

  async get(key: string): Promise<Json | undefined> {
    return this.row && this.records.get(`${this.row.number}/${key}`);
  }

  put(key: string, record: Json): void {
    this.records.put(`${this.row!.number}/${key}`, record);
  }

  remove(prefix: string): void {
    this.records.remove(`${this.row!.number}/${prefix}`);
  }

  answers(): Promise<Json | undefined> {
    return this.records.get(`consent/${this.survey.pin}`);
  }

  keepAnswers(answers: Json): void {
    this.records.put(`consent/${this.survey.pin}`, answers);
  }

  forgetAnswers(): void {
    this.records.remove(`consent/${this.survey.pin}`);
  }

  fitting(levels: readonly number[]): { asked: Claim; first: number } {
    const { book, survey } = this;
    const first = Math.max(0, stepAt(survey, this.clock()));
    const asked = claim(survey, levels, book.windowSeconds);
    const charged = charges(book, survey.startMs + first * survey.stepMs);
    requireRoom(survey, book.windowSeconds, asked.perWindow, charged.perWindow, book.perWindow);
    requireRoom(survey, null, asked.forEver, charged.forEver, book.forEver);
    return { asked, first };
  }

  async admit(levels: readonly number[]): Promise<number> {
    const { book, survey } = this;
    const { asked, first } = this.fitting(levels);
    const row: Row = {
      number: book.next,
      pin: survey.pin,
      name: survey.name,
      collection: survey.collection,
      startMs: survey.startMs,
      stepMs: survey.stepMs,
      perWindow: asked.perWindow,
      forEver: asked.forEver === Infinity ? null : asked.forEver,
      losses: asked.losses,
      untilMs: survey.ends === Infinity ? null : survey.startMs + survey.ends * survey.stepMs,
      reports: null,
    };
    this.row = row;
    this.records.put("wallet", { ...book, next: book.next + 1, surveys: [...book.surveys, row] });
    return first - 1;
  }

  async leave(): Promise<void> {
    if (this.row) await leave(this.records, this.book, this.row);
    this.row = undefined;
  }
}

function enrolled(book: Book, pin: string): Row | undefined {
  return book.surveys.find((row) => row.pin === pin && row.reports === null);
}

/** Completes the pin of an enrolment in this survey by an earlier version. */
function completed(records: Transaction, book: Book, survey: Survey): Book {
  const former = enrolled(book, survey.pin) ? undefined : enrolled(book, fingerprintOf(survey.pin));
  if (!former) return book;
  const found = { ...book, surveys: book.surveys.map((row) => (row === former ? { ...row, pin: survey.pin } : row)) };
  records.put("wallet", found);
  return found;
}

/** A book of an earlier format in the present format. The first use of each survey of format 1 completes its pin. */
function converted(book: Book): Book {
  if (book.format === 2) return { ...book, format: FORMAT };
  const surveys = book.surveys.map((row) => {
    const { fingerprint, ...others } = row as Row & { fingerprint: string };
    return { ...others, pin: fingerprint };
  });
  return { ...book, format: FORMAT, surveys };
}

/** Returns the sums of the surveys' charges: of those per window that end after `fromMs`, and of those for ever. */
function charges(book: Book, fromMs: number): { perWindow: number; forEver: number } {
  const total = (rows: readonly Row[], charge: (row: Row) => number) => rows.reduce((sum, row) => sum + charge(row), 0);
  const near = book.surveys.filter(({ untilMs }) => untilMs === null || untilMs + 1000 * (book.windowSeconds ?? 0) > fromMs);
  return { perWindow: total(near, (row) => row.perWindow), forEver: total(book.surveys, (row) => row.forEver ?? Infinity) };
}

/** Returns the number of reports made in a survey, and the bound of their loss. */
async function spentIn(records: Transaction, row: Row): Promise<{ reports: number; spent: number; lastStep: number }> {
  const kept: Enrolment[] = [];
  for (const a of row.losses.keys()) kept.push((await records.get(`${row.number}/attribute/${a}`)) as unknown as Enrolment);
  return {
    reports: kept.reduce((sum, { reports }) => sum + reports, 0),
    spent: together(row, kept.map(({ reports }, a) => reports * row.losses[a]!)),
    lastStep: Math.max(-1, ...kept.flatMap(({ sent }) => sent.map(({ step }) => step))),
  };
}

async function leave(records: Transaction, book: Book, row: Row): Promise<void> {
  const { reports, spent, lastStep } = await spentIn(records, row);
  const untilMs = row.startMs + (lastStep + 1) * row.stepMs;
  const left: Row = { ...row, reports, perWindow: Math.min(row.perWindow, spent), forEver: spent, untilMs };
  const surveys = book.surveys.flatMap((other) => (other.number !== row.number ? [other] : reports ? [left] : []));
  records.put("wallet", { ...book, surveys });
  records.remove(`${row.number}/`);
}

function requireRoom(survey: Survey, windowSeconds: number | null, asked: number, charged: number, limit: number | null): void {
  if (limit !== null && !(asked + charged <= limit * (1 + TOLERANCE))) {
    throw new WalletFull(survey.name, windowSeconds, asked, Math.max(0, limit - charged));
  }
}

// ---- limits

function newBook({ perWindow, windowSeconds, forEver }: WalletLimits): Book {
  if (perWindow === undefined && forEver === undefined) {
    throw new RangeError("a wallet needs a limit: perWindow with windowSeconds, or forEver, or both");
  }
  if ((perWindow === undefined) !== (windowSeconds === undefined)) throw new RangeError("perWindow and windowSeconds belong together");
  for (const [name, nats] of Object.entries({ perWindow, forEver })) {
    if (nats !== undefined && !(nats >= MIN_BUDGET && nats <= MAX_BUDGET)) {
      throw new RangeError(`${name} must be a number in [${MIN_BUDGET}, ${MAX_BUDGET}], got ${nats}`);
    }
  }
  if (windowSeconds !== undefined && !(Number.isInteger(windowSeconds) && windowSeconds >= 1 && windowSeconds <= MAX_WINDOW_S)) {
    throw new RangeError(`windowSeconds must be an integer in [1, ${MAX_WINDOW_S}], got ${windowSeconds}`);
  }
  const orNull = (given: number | undefined) => given ?? null;
  return {
    format: FORMAT,
    perWindow: orNull(perWindow),
    windowSeconds: orNull(windowSeconds),
    forEver: orNull(forEver),
    next: 1,
    surveys: [],
  };
}

function limitsOf({ perWindow, windowSeconds, forEver }: Book): WalletLimits {
  return { ...(perWindow !== null && windowSeconds !== null && { perWindow, windowSeconds }), ...(forEver !== null && { forEver }) };
}

function shown({ perWindow, windowSeconds, forEver }: Book): string {
  const window = perWindow === null ? [] : [`${nats(perWindow, 12)} within ${windowSeconds} s`];
  return [...window, ...(forEver === null ? [] : [`${nats(forEver, 12)} for ever`])].join(" and ");
}
