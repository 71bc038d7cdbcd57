/** A store for browsers, in IndexedDB. */

import { DeviceError, StoreFull, StoreHeld } from "./errors.js";
import { Records, type Json, type Store, type Transaction } from "./store.js";

const RECORDS = "records";
const HELD_MS = 60_000; // longest wait for another tab's transaction

/**
 * A store in one IndexedDB database. All tabs and workers of an origin that use the same name share the store.
 *
 * A transaction is one IndexedDB transaction over all records, so the browser runs transactions of several tabs one after the other.
 * Its durability is `strict`: the browser writes to the disk before the transaction ends. The first record makes the database: a
 * transaction that only reads leaves nothing in the browser.
 */
export class IndexedDBStore implements Store {
  private database: Promise<IDBDatabase> | null = null;

  /**
   * @param name name of the database; one for each survey or wallet.
   * @param heldMs how long a transaction waits for other tabs before it fails with `StoreHeld`.
   */
  constructor(
    private readonly name: string,
    private readonly heldMs = HELD_MS,
  ) {}

  async transaction<T>(work: (records: Transaction) => Promise<T>): Promise<T> {
    try {
      if (!this.database && !(await this.isMade())) {
        const records = new Records(new Map());
        const result = await work(records);
        if (!records.changed) return result;
      }
      return await this.attempt(await this.open(), work);
    } catch (error) {
      throw this.translated(error);
    }
  }

  private async isMade(): Promise<boolean> {
    if (!globalThis.indexedDB) throw new DeviceError(`the store ${this.name} cannot be used: this browser has no IndexedDB`);
    return (await indexedDB.databases()).some(({ name }) => name === this.name);
  }

  private open(): Promise<IDBDatabase> {
    if (this.database) return this.database;
    const opening = new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(this.name, 1);
      let late = false;
      const timer = setTimeout(() => {
        late = true;
        reject(this.held());
      }, this.heldMs);
      request.onupgradeneeded = () => request.result.createObjectStore(RECORDS);
      request.onerror = () => {
        clearTimeout(timer);
        reject(request.error);
      };
      request.onsuccess = () => {
        clearTimeout(timer);
        const database = request.result;
        database.onversionchange = () => this.forgetDatabase(database); // somebody deletes the database
        database.onclose = () => this.forgetDatabase(database); // the browser has cleared the storage
        if (late) database.close();
        else resolve(database);
      };
    });
    opening.catch(() => (this.database = null));
    return (this.database = opening);
  }

  private forgetDatabase(database: IDBDatabase): void {
    database.close();
    this.database = null;
  }

  private attempt<T>(database: IDBDatabase, work: (records: Transaction) => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(RECORDS, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(RECORDS);
      let failure: unknown = null;
      const abort = (reason: unknown) => {
        failure ??= reason;
        try {
          transaction.abort();
        } catch {
          // the transaction has ended already, and its event reports how
        }
      };
      const timer = setTimeout(() => abort(this.held()), this.heldMs);
      const records: Transaction = {
        get: (key) =>
          new Promise<Json | undefined>((found, failed) => {
            const request: IDBRequest<Json | undefined> = store.get(key);
            request.onsuccess = () => {
              clearTimeout(timer); // the transaction has begun
              found(request.result);
            };
            request.onerror = () => failed(request.error);
          }),
        put: (key, record) => void store.put(record, key),
        remove: (prefix) => void store.delete(IDBKeyRange.bound(prefix, `${prefix}\uffff`)),
      };
      const result = work(records);
      result.catch(abort);
      transaction.oncomplete = () => {
        clearTimeout(timer);
        result.then(resolve, reject);
      };
      transaction.onabort = () => {
        clearTimeout(timer);
        reject(failure ?? transaction.error ?? new DeviceError("the transaction was aborted"));
      };
    });
  }

  private held(): StoreHeld {
    return new StoreHeld(`another tab has held the store ${this.name} for ${this.heldMs / 1000} s`);
  }

  private translated(error: unknown): unknown {
    if (!(error instanceof DOMException)) return error;
    if (error.name === "QuotaExceededError") return new StoreFull(`the store ${this.name} has no space left`);
    return new DeviceError(`the store ${this.name} cannot be used (${error.name}): browsers refuse it in some private windows, and without cookies`);
  }
}
