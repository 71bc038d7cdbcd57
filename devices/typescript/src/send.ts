/** Sending reports through the gateway: docs/reference/write_a_device.md has the table of answers. */

import type { Device, Waiting } from "./device.js";
import { DeviceError, RelayRequired } from "./errors.js";
import { below, shuffled, systemBytes } from "./random.js";
import { Envoy, type RelayOptions } from "./relay.js";
import { fingerprintOf, openSurvey, requirePinForm, type OpenOptions, type Survey } from "./survey.js";

const [ACCEPTED, NEVER_COUNTS] = [202, 422]; // the final answers, with the gateway's own body
const PROBLEM_TYPE = "urn:ldpstream:problem:";
const DAY_MS = 86_400_000;
const ANSWER_MS = 15_000; // longer than the gateway's time-outs
const TIMEOUT = "no answer: timeout";
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 300_000;
const KEEPALIVE_BYTES = 60_000; // browsers allow 64 KiB in all requests that outlive a page
const REFUSED = "certificate refused";
const REASONS: readonly (readonly [codes: RegExp, reason: string])[] = [
  [/^ECONNREFUSED$/, "connection refused"],
  [/^(ENOTFOUND|EAI_)/, "name not found"],
  [/^(TimeoutError|ETIMEDOUT|UND_ERR_\w+_TIMEOUT)$/, "timeout"],
  [/CERT|LEAF_SIGNATURE/, REFUSED],
  [/^(ERR_SSL_|EPROTO$)/, "TLS failed"],
  [/^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/, "connection closed"],
  [/^HPE_/, "an answer that is not HTTP"],
  [/^ERR_INVALID_URL$/, "a malformed URL"],
];

/** The gateway to which a device posts. */
export interface GatewayOptions {
  readonly url: string; // without /v1/reports
  readonly token?: string; // bearer token, if the gateway needs one
  readonly relay?: RelayOptions; // if the survey requires a relay: reports travel through it, and never directly
  readonly waitMs?: number; // longest wait for an answer, in ms; by default 15 000. On a silent network an attempt takes this time
  readonly fetch?: typeof globalThis.fetch; // for tests
}

/** In place of a gateway: nothing is sent, and each report counts as accepted. */
export const LOCAL = "local";

/** The outcome of one attempt. */
export interface Attempt {
  readonly accepted: number; // number of reports that are in the log
  /** Number of reports that the gateway refused for good: no later attempt counts. A report can have counted by an earlier attempt
   * whose answer was lost. */
  readonly refused: number;
  readonly waiting: number; // number of reports that may count later
  /** Time to the next attempt: the shortest Retry-After of the reports that wait, 0 if one of them got none. With a relay: the time to
   * the next moment of a report. */
  readonly retryAfterMs: number;
  readonly problems: readonly string[]; // such as "step too old (422)", or "no answer: connection refused"
}

/**
 * Returns a survey that a gateway serves.
 *
 * The request reaches the gateway directly. If the gateway must not learn the device's address, ship the survey with the application,
 * and use `openSurvey`.
 *
 * @param pin the pin that the application expects: see `openSurvey`. Needed if the gateway serves several surveys.
 * @param options further conditions that the application sets for the survey.
 * @throws RangeError if `gateway` has a relay, or `pin` does not have 64 hexadecimal digits.
 * @throws DeviceError if the gateway does not answer with a survey; `UnknownSurvey` and others as in `openSurvey`.
 */
export async function fetchSurvey(gateway: GatewayOptions, pin?: string, options: OpenOptions = {}): Promise<Survey> {
  if (gateway.relay) throw new RangeError("fetchSurvey would ask the gateway directly; ship the survey, and use openSurvey");
  if (pin !== undefined) requirePinForm(pin);
  const path = pin === undefined ? "/v1/survey" : `/v1/surveys/${fingerprintOf(pin)}`;
  const answer = await post(gateway, path, { signal: waitOf(gateway) }).catch(noAnswer);
  if (typeof answer === "string" || !answer.ok) {
    throw new DeviceError(`the gateway gave no survey: ${typeof answer === "string" ? answer : titleOf(await documentOf(answer).catch(() => null), answer.status)}`);
  }
  const document: unknown = await answer.json().catch(() => null);
  return openSurvey(document, pin, options);
}

/** Posts a device's reports to a gateway. All attempts for a report have its idempotency key, so the report counts at most once. */
export class Sender {
  private readonly envoy: Envoy | null;
  private readonly gateway: GatewayOptions;
  private readonly local: boolean;
  private readonly next = new Map<string, number>(); // with a relay: idempotency key -> the new moment of a report that was due

  /**
   * @throws RelayRequired if the survey requires a relay and `gateway` has none.
   * @throws RangeError if the survey requires no relay and `gateway` has one. With a relay, also if the relay's keys or the gateway's
   *   URL are malformed.
   */
  constructor(
    private readonly device: Device,
    gateway: GatewayOptions | typeof LOCAL,
  ) {
    const { survey } = device;
    this.local = gateway === LOCAL;
    this.gateway = gateway === LOCAL ? { url: "" } : gateway;
    this.envoy = null;
    if (this.local) return;
    const { relay, url, token } = this.gateway;
    if (survey.relay && !relay) throw new RelayRequired(`survey ${survey.name} requires a relay: give the sender one`);
    if (!survey.relay && relay) throw new RangeError(`survey ${survey.name} requires no relay, but the sender has one`);
    this.envoy = relay ? new Envoy(survey, relay.keys, url, token) : null;
  }

  /**
   * Posts every waiting report once; with a relay at most one report, whose moment has come. Settles the reports that are in the log or
   * will never count. The order is random: the order of arrival then shows no order of steps or attributes. Ends early after a report
   * without an answer in `waitMs`.
   */
  async attempt(signal?: AbortSignal): Promise<Attempt> {
    if (this.envoy) return this.attemptOne(signal);
    const totals = { accepted: 0, refused: 0, waiting: 0, gone: 0, problems: [] as string[] };
    const waits: number[] = [];
    const reports = shuffled(await this.device.waiting(), systemBytes);
    for (const report of reports) {
      signal?.throwIfAborted();
      const { outcome, problem, retryAfterMs } = await this.deliver(report, signal ? { signal } : {});
      totals[outcome] += 1;
      if (outcome === "waiting") waits.push(retryAfterMs);
      if (problem && !totals.problems.includes(problem)) totals.problems.push(problem);
      if (problem === TIMEOUT) break;
    }
    const { accepted, refused, problems } = totals;
    const waiting = reports.length - accepted - refused - totals.gone;
    return { accepted, refused, waiting, problems, retryAfterMs: waits.length ? Math.min(...waits) : 0 };
  }

  /**
   * Calls `attempt` until no report waits.
   *
   * The pause before the next attempt is the shortest `Retry-After` of all reports plus a uniformly random part of 1 s, 2 s, 4 s, … up
   * to 5 minutes ("full jitter"), so that many devices do not return at one moment. A report for a future step may have to wait a
   * day, and must not delay the others. With a relay, the pause ends at the next moment of a report.
   *
   * @param options.signal stops the retries: the promise then rejects with the signal's reason. The reports stay in the store.
   * @param options.pause waits for a number of ms; for tests.
   */
  async run(options: { signal?: AbortSignal; pause?: (ms: number) => Promise<void> } = {}): Promise<void> {
    const pause = options.pause ?? ((ms: number) => sleep(ms, options.signal));
    for (let attempts = 0; ; attempts++) {
      const { waiting, retryAfterMs } = await this.attempt(options.signal);
      if (waiting === 0) return;
      options.signal?.throwIfAborted();
      const range = this.envoy ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempts);
      await pause(retryAfterMs + below(range + 1, systemBytes));
    }
  }

  /**
   * Starts a last attempt for the known reports, in random order and at most 60 kB of them, while the page ends, with `fetch` and
   * `keepalive`. If the page ends before an answer comes, the report stays in the store, and the next `attempt` posts it again with the
   * same key. `sendBeacon` cannot be used: it sends neither a key nor a token, so a report could count twice. With a relay,
   * `lastAttempt` sends nothing, because each report leaves at its own moment.
   */
  lastAttempt(): void {
    if (this.envoy || this.local) return;
    let bytes = 0;
    for (const report of shuffled(this.device.known(), systemBytes)) {
      bytes += report.envelope.length;
      if (bytes > KEEPALIVE_BYTES) return;
      this.deliver(report, { keepalive: true }).catch(() => undefined); // the report stays in the store
    }
  }

  /** Calls `lastAttempt` when the page is hidden or ends. Returns a function that removes the listeners. */
  sendAtPageEnd(): () => void {
    const hidden = () => {
      if (document.visibilityState === "hidden") this.lastAttempt();
    };
    document.addEventListener("visibilitychange", hidden);
    return () => document.removeEventListener("visibilitychange", hidden);
  }

  /**
   * Sends one of the due reports. Each report that is due when the answer comes, also if it was not due before, gets a new random
   * moment: no two reports leave together, and the end of an attempt starts no other one.
   */
  private async attemptOne(signal?: AbortSignal): Promise<Attempt> {
    const moment = ({ key, dueMs }: Waiting) => this.next.get(key) ?? dueMs;
    let waiting = await this.device.waiting();
    const due = waiting.filter((report) => moment(report) <= this.device.clock());
    const totals = { accepted: 0, refused: 0, waiting: 0, problems: [] as string[] };
    if (due.length > 0) {
      signal?.throwIfAborted();
      const sent = due[below(due.length, systemBytes)]!;
      const { outcome, problem, retryAfterMs } = await this.deliver(sent, signal ? { signal } : {});
      if (outcome === "accepted" || outcome === "refused") totals[outcome] = 1;
      if (problem) totals.problems.push(problem);
      waiting = await this.device.waiting();
      const now = this.device.clock();
      for (const report of waiting.filter((report) => moment(report) <= now)) {
        this.next.set(report.key, now + (report.key === sent.key ? retryAfterMs : 0) + this.randomPart(report, now));
      }
    }
    for (const key of this.next.keys()) if (!waiting.some((report) => report.key === key)) this.next.delete(key);
    const nextMs = Math.min(...waiting.map(moment));
    const retryAfterMs = waiting.length ? Math.max(0, Math.ceil(nextMs - this.device.clock())) : 0;
    return { ...totals, waiting: waiting.length, retryAfterMs };
  }

  /**
   * A uniformly random part of a range: half of the time to the close of the report's step, so that several attempts fit, but at
   * least `FIRST_PAUSE_MS` and at most a step. After the close, the range is a step.
   */
  private randomPart({ step }: Waiting, now: number): number {
    const { startMs, stepMs, latenessSteps } = this.device.survey;
    const left = startMs + (step + 1 + latenessSteps) * stepMs - now;
    const range = left > 0 ? Math.min(stepMs, Math.max(FIRST_PAUSE_MS, left / 2)) : stepMs;
    return (below(2 ** 32, systemBytes) / 2 ** 32) * range;
  }

  /** Posts a sealed request to the relay. Node closes the connection afterwards; a browser does not let a page decide this. */
  private postCapsule(capsule: Uint8Array<ArrayBuffer>, signal: AbortSignal): Promise<Response> {
    const headers = new Headers({ "Content-Type": "message/ohttp-req", Connection: "close" });
    return send(this.gateway, this.gateway.relay!.url, headers, { method: "POST", body: capsule, signal });
  }

  /**
   * Posts a report once, and settles it if the answer is final. "gone": the person withdrew the consent, or the report does not wait any
   * more. With `keepalive` the page may end: the journal is then written while the request is on its way.
   */
  private async deliver(report: Waiting, { signal, keepalive = false }: { signal?: AbortSignal; keepalive?: boolean }) {
    if (keepalive) this.device.leaves(report).catch(() => undefined);
    else if (!(await this.device.leaves(report, this.local))) return { outcome: "gone" as const, problem: null, retryAfterMs: 0 };
    if (this.local) {
      await this.device.settle(report);
      return { outcome: "accepted" as const, problem: null, retryAfterMs: 0 };
    }
    const sealed = this.envoy && (await this.envoy.seal(this.envoy.message(report.envelope, report.key))); // without a relay no `await`: the page may end
    const timeout = waitOf(this.gateway);
    const stop = signal ? AbortSignal.any([signal, timeout]) : timeout;
    let answer: Response;
    let decides = true; // false: an answer of the relay or of a proxy
    let document: unknown;
    try {
      if (sealed) {
        answer = await this.postCapsule(sealed.capsule, stop);
        decides = answer.status === 200;
        const body = decides ? new Uint8Array(await answer.arrayBuffer()) : null;
        if (body) answer = await sealed.open(body).catch(() => Promise.reject(new NotTheGateway()));
      } else {
        const headers = { "Content-Type": "application/vnd.ldpstream.envelope", "Idempotency-Key": report.key };
        answer = await post(this.gateway, "/v1/reports", { method: "POST", headers, body: report.envelope.slice(), keepalive, signal: stop });
      }
      document = await documentOf(answer);
    } catch (error) {
      signal?.throwIfAborted();
      const problem = error instanceof NotTheGateway ? error.message : noAnswer(error);
      return { outcome: "waiting" as const, problem, retryAfterMs: 0 };
    }
    const own = decides && isOwn(answer.status, document);
    const accepted = own && answer.status === ACCEPTED;
    const never = own && answer.status === NEVER_COUNTS;
    if (accepted || never) await this.device.settle(report);
    const outcome = accepted ? ("accepted" as const) : never ? ("refused" as const) : ("waiting" as const);
    return { outcome, problem: accepted ? null : titleOf(document, answer.status), retryAfterMs: retryAfterMs(answer, this.device.clock()) };
  }
}

/** The relay gave an answer that does not open with the request's key. */
class NotTheGateway extends Error {
  override readonly message = "an answer that is not the gateway's";
}

function post(gateway: GatewayOptions, path: string, options: RequestInit): Promise<Response> {
  const headers = new Headers(options.headers);
  if (gateway.token !== undefined) headers.set("Authorization", `Bearer ${gateway.token}`);
  return send(gateway, gateway.url.replace(/\/+$/, "") + path, headers, options);
}

function send(gateway: GatewayOptions, url: string, headers: Headers, options: RequestInit): Promise<Response> {
  headers.set("Accept-Language", "*"); // the user's languages would help to link reports; so would the page's address
  const fetch = gateway.fetch ?? globalThis.fetch.bind(globalThis);
  return fetch(url, { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", ...options, headers });
}

/** The error of a request as text, without the URL. Node names a code; browsers show the reason only on their console. */
function noAnswer(error: unknown): string {
  const { name, cause } = error as { name?: unknown; cause?: { code?: unknown } };
  const code = name === "TimeoutError" ? name : cause?.code;
  if (typeof code !== "string") return "no answer";
  const reason = REASONS.find(([codes]) => codes.test(code))?.[1];
  return `no answer: ${reason === undefined ? code : reason === REFUSED ? `${reason} (${code})` : reason}`;
}

function waitOf(gateway: GatewayOptions): AbortSignal {
  return AbortSignal.timeout(gateway.waitMs ?? ANSWER_MS);
}

/** The JSON of an answer's body; null if the body is something else. Throws if the body does not arrive. */
async function documentOf(answer: Response): Promise<unknown> {
  const body = await answer.text();
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** False for an answer that would be final, 202 or 422, but does not have the gateway's body: a proxy gave it. */
function isOwn(status: number, document: unknown): boolean {
  const { accepted, type } = Object(document) as { accepted?: unknown; type?: unknown };
  return status === ACCEPTED ? typeof accepted === "number" : status !== NEVER_COUNTS || String(type).startsWith(PROBLEM_TYPE);
}

/** The title of a problem document and the status. */
function titleOf(document: unknown, status: number): string {
  const { title } = Object(document) as { title?: unknown };
  return `${title === undefined ? "no problem document" : String(title)} (${status})`;
}

/** The wait that Retry-After asks for, in ms, at most a day: seconds, or a time by the answer's Date, else by our clock. 0 for none. */
function retryAfterMs(answer: Response, now: number): number {
  const [told, date] = [answer.headers.get("Retry-After") ?? "", answer.headers.get("Date") ?? ""];
  if (/^\d+$/.test(told)) return Math.min(1000 * Number(told), DAY_MS);
  const wait = timeOf(told) - (timeOf(date) || now);
  return wait > 0 ? Math.min(wait, DAY_MS) : 0;
}

/** A time in the form of HTTP, in ms since 1970; NaN for another text. */
function timeOf(text: string): number {
  return /^[A-Z][a-z]+, .* GMT$/.test(text) ? Date.parse(text) : NaN;
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
