/** A disk in memory that loses unsynced writes, and processes that crash or sleep between any two operations. */

import type { TestContext } from "node:test";

interface Inode {
  data: string;
  synced: string;
}

type Folder = Map<string, Inode>;

const failure = (code: string) => Object.assign(new Error(code), { code });

/** State of the disk after a crash: names and contents, each as last synced or as last written. */
export interface Survival {
  readonly names: "synced" | "written";
  readonly contents: "synced" | "written";
}

export const SURVIVALS: readonly Survival[] = (["synced", "written"] as const).flatMap((names) =>
  (["synced", "written"] as const).map((contents) => ({ names, contents })),
);

export class Disk {
  constructor(
    private names: Folder = new Map(),
    private syncedNames: Folder = new Map(),
  ) {}

  /** The disk after a power failure. */
  after({ names, contents }: Survival): Disk {
    const left = new Map([...(names === "synced" ? this.syncedNames : this.names)].map(([name, inode]) => {
      const data = inode[contents === "synced" ? "synced" : "data"];
      return [name, { data, synced: data }];
    }));
    return new Disk(left, new Map(left));
  }

  list(): string[] {
    return [...this.names.keys()];
  }

  /**
   * Returns the disk's operations for one process.
   *
   * @param before is called before each operation; it may throw or wait.
   */
  process(before: (operation: string, path: string) => unknown = () => undefined): any {
    const find = (path: string): Inode => {
      const inode = this.names.get(path);
      if (!inode) throw failure("ENOENT");
      return inode;
    };
    const operations = {
      mkdir: () => undefined,
      readdir: async () => {
        const seen = this.list();
        await before("readdir ends", ""); // names that appear or vanish meanwhile are not found
        return seen.filter((path) => this.names.has(path)).map((path) => path.slice(path.lastIndexOf("/") + 1));
      },
      readFile: (path: string) => find(path).data,
      open: (path: string, flags: string) => {
        if (flags === "r") return handle(null, path);
        if (this.names.has(path)) throw failure("EEXIST");
        const inode = { data: "", synced: "" };
        this.names.set(path, inode);
        return handle(inode, path);
      },
      link: (from: string, to: string) => {
        const inode = find(from);
        if (this.names.has(to)) throw failure("EEXIST");
        this.names.set(to, inode);
      },
      truncate: (path: string) => void (find(path).data = ""),
      unlink: (path: string) => {
        find(path);
        this.names.delete(path);
      },
    };
    const handle = (inode: Inode | null, path: string) =>
      intercepted(
        {
          writeFile: (text: string) => void (inode!.data = text),
          sync: () => {
            if (inode) inode.synced = inode.data;
            else this.syncedNames = new Map(this.names);
          },
          close: () => undefined,
        },
        () => path,
      );
    function intercepted(all: Record<string, (...given: any[]) => unknown>, name: (path: string) => string) {
      return Object.fromEntries(
        Object.entries(all).map(([operation, run]) => [
          operation,
          async (...given: any[]) => {
            await before(operation, name(given[0]));
            return run(...given);
          },
        ]),
      );
    }
    return intercepted(operations, String);
  }
}

/** A process that ends at its nth operation: this and all further operations fail. */
export function crashing(disk: Disk, n: number): any {
  let operations = 0;
  return disk.process(() => {
    if (++operations > n) throw failure("CRASH");
  });
}

/**
 * Runs three processes. One process at a time makes some operations. The seed determines the order, because time is simulated.
 *
 * @param live runs the process with this number; it must await nothing but the disk.
 * @returns the results of the three processes.
 */
export async function takeTurns<T>(context: TestContext, disk: Disk, seed: number, live: (files: any, i: number) => Promise<T>): Promise<T[]> {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let state = seed;
  const random = (n: number) => (state = (state * 48271) % 2147483647) % n;
  const ready = [0, 1, 2].map((): (() => void)[] => []); // the next operation of each process
  const lives = ready.map((queue, i) => live(disk.process(() => new Promise<void>((resolve) => queue.push(resolve))), i));
  let living = true;
  const all = Promise.all(lives).finally(() => (living = false));
  all.catch(() => undefined);
  while (living) {
    const queue = ready[random(3)]!;
    for (let burst = random(30); living && burst >= 0; burst--) {
      queue.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    context.mock.timers.tick(1000); // longer than a process sleeps
  }
  context.mock.timers.reset();
  return all;
}
