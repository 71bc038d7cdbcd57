/** The device's store: records by keys, changed in transactions. */

/** A record, as JSON can write it. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** The store during one transaction. Do not await anything else meanwhile: the transaction would end early. */
export interface Transaction {
  get(key: string): Promise<Json | undefined>;
  put(key: string, record: Json): void;
  /** Deletes all records whose key begins with the prefix; the empty prefix deletes all records. */
  remove(prefix: string): void;
}

/**
 * A store of one device or wallet. All objects, tabs and processes that open the same store are one device or wallet.
 *
 * A transaction is atomic, and transactions run as if one after the other. `transaction` resolves once all changes are on the disk.
 * If `work` fails, nothing changes. A store may run `work` again, from the new records, if another process was faster.
 */
export interface Store {
  /**
   * @throws StoreFull if the storage is full.
   * @throws StoreHeld if other processes hold the store.
   * @throws DeviceError if the store cannot be used.
   */
  transaction<T>(work: (records: Transaction) => Promise<T>): Promise<T>;
}

/** Records in memory; `changed` is true once a transaction has changed them. */
export class Records implements Transaction {
  changed = false;

  constructor(readonly entries: Map<string, Json>) {}

  async get(key: string): Promise<Json | undefined> {
    return this.entries.get(key);
  }

  put(key: string, record: Json): void {
    this.changed = true;
    this.entries.set(key, record);
  }

  remove(prefix: string): void {
    for (const key of [...this.entries.keys()]) if (key.startsWith(prefix)) this.changed = this.entries.delete(key);
  }
}

/** A store that ends with the process, for tests. */
export class MemoryStore implements Store {
  #entries = new Map<string, Json>(); // true values: `console.log` of a store shows no private field
  private last: Promise<unknown> = Promise.resolve();

  transaction<T>(work: (records: Transaction) => Promise<T>): Promise<T> {
    const turn = this.last.then(async () => {
      const records = new Records(new Map(this.#entries));
      const result = await work(records);
      this.#entries = records.entries;
      return result;
    });
    this.last = turn.catch(() => undefined);
    return turn;
  }
}
