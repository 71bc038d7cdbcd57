/**
 * The activity log: what a device remembers of the use of an application, and the recipes that turn it into values.
 *
 * The log has for each day of world time (UTC) and each event the number of events and their total duration. It keeps the first day
 * and the 64 days that are nearest to the present one, so it forgets nothing true after the clock was wrong. All values of a step
 * follow from the days before the step: every call within a step gives the same values, and so does every tab and process.
 *
 * The record `activity` of the store contains the true use. `Activity.forget` erases it.
 */

import { switchedOff } from "./consent.js";
import type { Device } from "./device.js";
import { DeviceError } from "./errors.js";
import type { Json, Store } from "./store.js";
import { DAY_MS, stepAt, type Recipe, type Survey } from "./survey.js";
import type { Value } from "./values.js";

const FORMAT = 1;
const RECORD = "activity";
const MOST_DAYS = 64; // a window of 28 days, a step of 28 days, and some days for a clock that runs ahead
const MOST_EVENTS = 100; // different events of a day
const FIRST_DAY = 18_262; // 2020-01-01: a clock that shows an earlier day was never set
const SEEN = ""; // the event that the application was used
const EVENT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

type Day = { readonly [event: string]: readonly [number, number] }; // number and total duration in ms
type Days = { readonly [day: string]: Day };

/** Use of an application by days since 1970, in order, each with its events. */
export type Log = readonly (readonly [number, Day])[];

/** The activity log of an application. All tabs and processes that open the same store share the log. */
export class Activity {
  private readonly clock: () => number;

  /**
   * @param store a store for the log alone, not the one of a device.
   * @param options `consent`: "given", the default: the person has agreed; while a switch turns devices off (`switchedOff`), nothing is
   *   recorded. "simulated": there is no person, so the switches do not count. `clock`: time in ms since 1970; by default `Date.now`.
   */
  constructor(
    private readonly store: Store,
    private readonly options: { readonly consent?: "given" | "simulated"; readonly clock?: () => number } = {},
  ) {
    this.clock = options.clock ?? Date.now;
  }

  /** Records that the application was used today. All methods throw a `DeviceError` if the store is full, damaged or of a newer version. */
  async seen(): Promise<void> {
    await this.record(SEEN, 0);
  }

  /**
   * Records an event.
   *
   * @param event a name that the application's code contains, never a text of the person: 1 to 64 letters, digits, dots, underscores
   *   or hyphens, and at most 100 names a day.
   * @throws RangeError if the name is invalid, or there are too many.
   */
  async used(event: string): Promise<void> {
    await this.record(checked(event), 0);
  }

  /**
   * Records an event and its duration in seconds, in [0, 10^6].
   *
   * @throws RangeError as `used`, and if the duration is out of range.
   */
  async took(event: string, { seconds }: { readonly seconds: number }): Promise<void> {
    if (!(seconds >= 0 && seconds <= 1e6)) throw new RangeError("seconds must be a number in [0, 1000000]"); // without the true duration
    await this.record(checked(event), Math.floor(1000 * seconds));
  }

  /** Returns the values of the attributes with a recipe, by name; none for a step without use of the application. */
  async values(survey: Survey, step: number): Promise<Record<string, number>> {
    const log = await this.store.transaction(async (records) => sorted(days(await records.get(RECORD))));
    if (!log.some(([day]) => stepAt(survey, DAY_MS * day) === step)) return {};
    const found = survey.attributes.flatMap(({ name, recipe }) => (recipe ? [[name, place(recipe, measured(recipe, log, survey, step))]] : []));
    return Object.fromEntries(found);
  }

  /**
   * Reports the attributes with a recipe at the present step, and other values; see `Device.answer`.
   *
   * A device reports the attributes with a recipe only at steps at which the application was used. So their reports count the people
   * who used it.
   *
   * @param values values of other attributes.
   * @throws RangeError as `Device.answer`, and for a value of an attribute with a recipe.
   * @throws StepForgotten, DeviceError as `Device.answer`.
   */
  async answer(device: Device, values: Readonly<Record<string, Value | readonly Value[]>> = {}): Promise<Record<string, Uint8Array>> {
    const given = device.survey.attributes.find(({ name, recipe }) => recipe && Object.hasOwn(values, name));
    if (given) throw new RangeError(`${given.name} has a recipe: give no value, since the device computes it`);
    const step = stepAt(device.survey, this.clock());
    return step < 0 ? {} : device.answer({ ...values, ...(await this.values(device.survey, step)) }, step);
  }

  /** Erases the log permanently. */
  async forget(): Promise<void> {
    await this.store.transaction(async (records) => records.remove(RECORD));
  }

  private async record(event: string, durationMs: number): Promise<void> {
    const today = Math.floor(this.clock() / DAY_MS);
    if (today < FIRST_DAY || (this.options.consent !== "simulated" && switchedOff() !== null)) return;
    await this.store.transaction(async (records) => {
      const kept = days(await records.get(RECORD));
      const day = kept[today] ?? {};
      if (event !== SEEN && Object.keys(day).filter((name) => name !== SEEN && name !== event).length >= MOST_EVENTS) {
        throw new RangeError(`event must be one of at most ${MOST_EVENTS} names a day`);
      }
      const [n, ms] = Object.hasOwn(day, event) ? day[event]! : [0, 0];
      const log = sorted({ ...kept, [today]: { ...day, [event]: [n + 1, ms + durationMs] } });
      const distance = ([at]: Log[number]) => Math.abs(at - today);
      const nearest = new Set([log[0], ...[...log].sort((one, other) => distance(one) - distance(other) || one[0] - other[0]).slice(0, MOST_DAYS)]);
      records.put(RECORD, { format: FORMAT, days: Object.fromEntries(log.filter((entry) => nearest.has(entry))) });
    });
  }
}

/** Returns what the device reports for a number: with `edges` the index of a value, otherwise the number itself. */
export function place({ edges }: Recipe, number: number): number {
  return edges ? edges.filter((edge) => edge <= number).length : number;
}

/** Returns a recipe's number at a step; docs/reference/write_a_device.md defines it. It depends only on the log's days before the step. */
export function measured({ measure, of, days: width }: Recipe, log: Log, survey: Survey, step: number): number {
  const stepOf = (day: number) => stepAt(survey, DAY_MS * day);
  if (measure === "age") return step - Math.min(step, ...log.map(([day]) => stepOf(day)));
  const before = log.filter(([day]) => stepOf(day) < step);
  if (!before.length) return measure === "absence" ? Infinity : 0;
  const last = Math.max(...before.map(([day]) => stepOf(day)));
  if (measure === "absence") return step - last;
  const end = (survey.startMs + (last + 1) * survey.stepMs) / DAY_MS;
  const used = before.filter(([day]) => day >= end - width);
  const events = used.flatMap(([, day]) => (of !== null && Object.hasOwn(day, of) ? [day[of]!] : []));
  if (measure === "active_days") return of === null ? used.length : events.length;
  if (measure === "days_without") return used.length - events.length;
  if (measure === "uses_per_day") return events.reduce((sum, [n]) => sum + n, 0) / used.length;
  return events.reduce((sum, [, ms]) => sum + ms, 0) / 1000 / used.length;
}

function checked(event: string): string {
  if (typeof event !== "string" || !EVENT.test(event)) throw new RangeError("event must be a name with 1 to 64 letters, digits, dots, underscores or hyphens");
  return event;
}

function sorted(kept: Days): Log {
  return Object.entries(kept)
    .map(([day, events]) => [Number(day), events] as const)
    .sort(([one], [other]) => one - other);
}

/** The days of a record; none without a record. */
function days(record: Json | undefined): Days {
  if (record === undefined) return {};
  const { format, days: kept } = (record ?? {}) as { readonly format?: Json; readonly days?: Days };
  if (format !== FORMAT) throw new DeviceError(`the activity log has format ${JSON.stringify(format ?? null)}, this program needs format ${FORMAT}`);
  if (typeof kept !== "object" || kept === null) throw new DeviceError("the activity log is damaged");
  return kept;
}
