/** A store for Node, in a folder. */

import { promises } from "node:fs";
import { join } from "node:path";
import { toText } from "./bytes.js";
import { DeviceError, StoreFull, StoreHeld } from "./errors.js";
import { below, systemBytes } from "./random.js";
import { Records, type Json, type Store, type Transaction } from "./store.js";

const ATTEMPTS = 100; // number of attempts of a transaction while other processes are faster
const LONGEST_PAUSE_MS = 50;
const EMPTY_STATES = 8; // number of emptied states that are kept before the present state

type FileSystem = Pick<typeof promises, "mkdir" | "readdir" | "readFile" | "open" | "link" | "truncate" | "unlink">;

/**
 * A store in a folder. All objects and processes that use the folder share the store.
 *
 * The file `state.N` has all records after the Nth change; the file with the highest N counts. A transaction writes the new records
 * to a file of its own and syncs it. A hard link then gives this file the name `state.N+1`. The link fails if another process has
 * made `state.N+1`; the transaction then starts again from the new records. So there is no lock that a killed process could leave.
 *
 * A transaction empties the old states, and deletes them 8 changes later. Until then, no process can make an old state again, and
 * every look at the folder finds one of the last states. A process that has slept for more than 8 changes can make a deleted state
 * again. After each change, a process therefore looks for a higher number. If there is one, it erases its own state and starts again.
 *
 * The folder must be on a local disk with hard links. Only the files' owner can read the files.
 */
export class FileStore implements Store {
  private last: Promise<unknown> = Promise.resolve();

  /**
   * @param folder the folder; it is created if missing.
   * @param files the file system, for tests.
   */
  constructor(
    private readonly folder: string,
    private readonly files: FileSystem = promises,
  ) {}

  transaction<T>(work: (records: Transaction) => Promise<T>): Promise<T> {
    const turn = this.last.then(() => this.attempts(work));
    this.last = turn.catch(() => undefined);
    return turn;
  }

  private async attempts<T>(work: (records: Transaction) => Promise<T>): Promise<T> {
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const number = await this.highest();
        const before = await this.read(number);
        if (before !== null) {
          const records = new Records(before);
          const result = await work(records);
          if (!records.changed || (await this.write(number + 1, records.entries))) return result;
        }
        await new Promise((resolve) => setTimeout(resolve, below(LONGEST_PAUSE_MS, systemBytes)));
      }
    } catch (error) {
      throw this.translated(error);
    }
    throw new StoreHeld(`other processes were faster in ${ATTEMPTS} attempts to change the store ${this.folder}`);
  }

  /** Returns the highest number of a state; 0 for a new store, which has no folder before its first record. */
  private async highest(): Promise<number> {
    const names = await this.files.readdir(this.folder).catch((error) => (ignoreMissing(error), []));
    return Math.max(0, ...names.map((name) => Number(/^state\.(\d+)$/.exec(name)?.[1] ?? 0)));
  }

  /** Returns the records of a state; null if another process has made a later state. */
  private async read(number: number): Promise<Map<string, Json> | null> {
    const path = join(this.folder, `state.${number}`);
    try {
      const text = number === 0 ? "{}" : await this.files.readFile(path, "utf8");
      if ((await this.highest()) > number) return null; // the text may be empty, or of a state that was made a second time
      return new Map(Object.entries(JSON.parse(text) as Record<string, Json>));
    } catch (error) {
      if (code(error) === "ENOENT") return null;
      if (error instanceof SyntaxError) throw new DeviceError(`${path} is damaged`);
      throw error;
    }
  }

  /** Makes a state. Returns false if another process has made this or a later state. */
  private async write(number: number, entries: Map<string, Json>): Promise<boolean> {
    const draft = join(this.folder, `draft.${number}.${toText(systemBytes(9))}`);
    await this.files.mkdir(this.folder, { recursive: true, mode: 0o700 });
    try {
      await this.writeSynced(draft, JSON.stringify(Object.fromEntries(entries)));
      await this.files.link(draft, join(this.folder, `state.${number}`));
    } catch (error) {
      await this.files.unlink(draft).catch(ignoreMissing);
      if (code(error) === "EEXIST" || code(error) === "ENOENT") return false; // ENOENT: a later state's process deleted the draft
      throw error;
    }
    const present = await this.highest();
    await this.syncFolder(); // the present state must be on the disk before older ones are emptied
    await this.tidy(present);
    return present === number;
  }

  private async writeSynced(path: string, text: string): Promise<void> {
    const file = await this.files.open(path, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  private async syncFolder(): Promise<void> {
    if (process.platform === "win32") return; // Windows cannot sync a folder
    const folder = await this.files.open(this.folder, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  /** Empties the states before the present one, deletes the oldest, and deletes the drafts of all states up to the present one. */
  private async tidy(present: number): Promise<void> {
    for (const name of await this.files.readdir(this.folder)) {
      const [, kind, digits] = /^(state|draft)\.(\d+)/.exec(name) ?? [];
      const age = present - Number(digits);
      const path = join(this.folder, name);
      if (kind === "draft" ? age >= 0 : age > EMPTY_STATES) await this.files.unlink(path).catch(ignoreMissing);
      else if (kind === "state" && age > 0) await this.files.truncate(path).catch(ignoreMissing);
    }
  }

  private translated(error: unknown): unknown {
    if (error instanceof DeviceError || code(error) === null) return error;
    if (code(error) === "ENOSPC" || code(error) === "EDQUOT") return new StoreFull(`the store ${this.folder} has no space left`);
    return new DeviceError(`the store ${this.folder} cannot be used: ${code(error)}`);
  }
}

function ignoreMissing(error: unknown): void {
  if (code(error) !== "ENOENT") throw error;
}

/** The system's code of an error, such as `ENOENT`; null for other errors. */
function code(error: unknown): string | null {
  return error instanceof Error && "code" in error ? String(error.code) : null;
}
