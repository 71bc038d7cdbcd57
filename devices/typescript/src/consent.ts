/**
 * Consent: the person's answer to the survey, and the switches that turn a device off.
 *
 * The store keeps the answer by attribute, with the terms that the person agreed to. If the survey's purpose or owner changes, or the
 * service keeps the results longer, the consent is unknown, so the application asks again. A new version of a survey, with another
 * question or another loss, has another pin: it always asks. A switch turns everything off, whatever the person answered:
 *
 * - in Node: the environment variable `DO_NOT_TRACK` or `CI`, unless it is empty, `0`, `false` or `no`;
 * - in Node: the operator's file `/etc/ldpstream/off`, under Windows `%ProgramData%\ldpstream\off`;
 * - in a browser: Global Privacy Control or Do Not Track.
 */

import { DeviceError } from "./errors.js";
import type { Json, Transaction } from "./store.js";
import type { Survey } from "./survey.js";

export type Consent = "unknown" | "given" | "withdrawn";

/** "asked": the device keeps the person's answer, and does nothing before `giveConsent`. "given": the application has asked in another
 * way, and the person agreed. "simulated": there is no person, so no switch counts. A withdrawal in the store counts always. */
export type ConsentMode = "asked" | "given" | "simulated";
export type NoConsent = "switched off" | "consent unknown" | "consent withdrawn";

type Environment = Readonly<Record<string, string | undefined>>;
type Answer = { readonly state: "given" | "withdrawn"; readonly purpose?: string | null; readonly owner?: string | null; readonly keptSeconds?: number };
type FileSystem = { statSync(path: string): unknown };
type NodeProcess = { env: Environment; getBuiltinModule?: (name: string) => FileSystem | undefined };

const node = (globalThis as { process?: NodeProcess }).process;
const VARIABLES = ["DO_NOT_TRACK", "CI"];

/** Path of the operator's file; a test sets another one. */
export const operator = { file: `${node?.env["PROGRAMDATA"] ?? "/etc"}/ldpstream/off` };

/** Returns the switch that turns all devices off: a variable, the operator's file, or the browser's signal; null for no switch. */
export function switchedOff(): string | null {
  for (const name of node ? VARIABLES : []) {
    if (!["", "0", "false", "no"].includes((node!.env[name] ?? "").trim().toLowerCase())) return name;
  }
  const browser = (globalThis as { navigator?: { globalPrivacyControl?: boolean; doNotTrack?: string | null } }).navigator;
  if (browser?.globalPrivacyControl) return "Global Privacy Control";
  if (browser?.doNotTrack === "1") return "Do Not Track";
  return isPresent(node?.getBuiltinModule?.("node:fs")) ? operator.file : null;
}

/** True if the operator's file is present. A file that the device may not look for counts as present. */
function isPresent(files: FileSystem | undefined): boolean {
  if (!files) return false;
  try {
    files.statSync(operator.file);
    return true;
  } catch (error) {
    return !["ENOENT", "ENOTDIR"].includes(String((error as { code?: unknown }).code));
  }
}

/** The consent of one device. */
export class Consents {
  readonly stopped = new Set<string>(); // attributes that the person withdrew, until the store has the withdrawal
  readonly names: readonly string[];
  private readonly startsOff = switchedOff() !== null; // such a device has no enrolment, and stays off

  /** @throws RangeError for another mode. */
  constructor(
    private readonly survey: Survey,
    readonly mode: ConsentMode,
  ) {
    if (!["asked", "given", "simulated"].includes(mode)) throw new RangeError(`consent must be one of asked, given, simulated, got ${JSON.stringify(mode)}`);
    this.names = survey.attributes.map(({ name }) => name);
  }

  get off(): boolean {
    return this.mode !== "simulated" && (this.startsOff || switchedOff() !== null);
  }

  /** @throws DeviceError if the kept answers are damaged. */
  async states(records: Transaction): Promise<Map<string, Consent>> {
    const kept = await this.kept(records);
    return new Map(this.names.map((name) => [name, this.state(name, kept[name])]));
  }

  private state(name: string, answer: Answer | undefined): Consent {
    if (this.stopped.has(name) || answer?.state === "withdrawn") return "withdrawn";
    if (this.mode !== "asked") return "given";
    const { purpose, owner, keptSeconds } = this.survey.words;
    const same = answer !== undefined && answer.purpose === purpose && answer.owner === owner;
    return same && (keptSeconds ?? Infinity) <= (answer.keptSeconds ?? Infinity) ? "given" : "unknown";
  }

  /** The attributes without consent, each with the reason of the silence. */
  async muted(records: Transaction): Promise<Map<string, NoConsent>> {
    if (this.off) return new Map(this.names.map((name) => [name, "switched off"]));
    const states = [...(await this.states(records))];
    return new Map(states.flatMap(([name, state]) => (state === "given" ? [] : [[name, `consent ${state}` as NoConsent] as const])));
  }

  /** Keeps the answer for some attributes. Returns true if the person has then withdrawn all attributes. */
  async keep(records: Transaction, state: "given" | "withdrawn", names: readonly string[]): Promise<boolean> {
    const { purpose, owner, keptSeconds } = this.survey.words;
    const answer: Answer = state === "withdrawn" ? { state } : { state, purpose, owner, ...(keptSeconds !== null && { keptSeconds }) };
    const answers = { ...(await this.kept(records)), ...Object.fromEntries(names.map((name) => [name, answer])) };
    if (isShared(records)) records.keepAnswers(answers as unknown as Json);
    else records.put("consent", answers as unknown as Json);
    return this.names.every((name) => answers[name]?.state === "withdrawn");
  }

  private async kept(records: Transaction): Promise<Record<string, Answer>> {
    const kept = await (isShared(records) ? records.answers() : records.get("consent"));
    if (kept !== undefined && (typeof kept !== "object" || kept === null)) throw new DeviceError(`the consent to ${this.survey.name} is damaged`);
    return (kept ?? {}) as Record<string, Answer>;
  }
}

/** The records of a device in a wallet, which keeps the answers outside the enrolment. */
export interface SharedAnswers {
  answers(): Promise<Json | undefined>;
  keepAnswers(answers: Json): void;
}

function isShared(records: Transaction): records is Transaction & SharedAnswers {
  return "keepAnswers" in records;
}
