/** The folder of a device: crashes between any two operations, several processes at once, full disks. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promises } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Device, DeviceError, FileStore, StoreCleared, StoreFull, StoreHeld, type Survey } from "../src/node.js";
import { crashing, Disk, SURVIVALS, takeTurns } from "./disk.js";
import { LONG, survey } from "./fixtures.js";

const FOLDER = "/device";
const asked: Survey = await survey([{ k: 5, levels: [LONG] }]);
const open = (files: any) => Device.open(asked, new FileStore(FOLDER, files), { consent: "simulated" });

async function records(disk: Disk): Promise<Record<string, any>> {
  const numbers = disk.list().map((path) => Number(/state\.(\d+)/.exec(path)?.[1] ?? 0));
  const number = Math.max(0, ...numbers);
  return number ? JSON.parse(await disk.process().readFile(`${FOLDER}/state.${number}`)) : {};
}

/** Runs a device: reports with the same value at steps 0, 1, 2, and one settled report. Adds the envelopes to `released`, by step. */
async function live(files: any, released: Map<number, string>): Promise<void> {
  const device = await open(files);
  for (let step = 0; step < 3; step++) {
    const envelope = String(await device.report("q0", 2, step));
    assert.equal(released.get(step) ?? envelope, envelope, `step ${step} has a second report`);
    released.set(step, envelope);
  }
  for (const report of (await device.waiting()).slice(0, 1)) await device.settle(report);
}

test("a crash between any two operations loses no report that was returned, and makes no second one", async () => {
  for (const survival of SURVIVALS) {
    let n = 0;
    for (let ended = false; !ended; n++) {
      const disk = new Disk();
      const released = new Map<number, string>();
      await live(crashing(disk, n), released).then(
        () => (ended = true),
        (error: Error) => assert.match(error.message, /CRASH/),
      );
      const left = disk.after(survival);
      const before = await records(left);
      await live(left.process(), released); // compares the reports before and after the crash
      const after = await records(left);
      assert.deepEqual([after["attribute/0"].reports, after["attribute/0"].memos], [3, 1]);
      assert.equal(after["memo/0/2"], before["memo/0/2"] ?? after["memo/0/2"]);
    }
    assert.ok(n > 40, `a life has ${n} operations`);
  }
});

test("forget erases the files that a crashed process has left", async () => {
  for (let [n, ended] = [0, false]; !ended; n++) {
    const disk = new Disk();
    await live(crashing(disk, n), new Map()).then(
      () => (ended = true),
      (error: Error) => assert.match(error.message, /CRASH/),
    );
    const device = await open(disk.process());
    await device.report("q0", 2, 9);
    await device.forget("study");
    for (const path of disk.list()) assert.match(await disk.process().readFile(path), /^(\{\})?$/);
  }
});

test("processes that take turns at random operations are one device", async (context) => {
  for (let seed = 1; seed <= 60; seed++) {
    const disk = new Disk();
    const [first, ...others] = await takeTurns(context, disk, seed, async (files) => {
      const device = await open(files);
      const sent: string[] = [];
      for (let step = 0; step < 3; step++) sent.push(String(await device.report("q0", 2, step)));
      return sent;
    });
    for (const other of others) assert.deepEqual(other, first);
    const { reports, memos } = (await records(disk))["attribute/0"];
    assert.deepEqual([reports, memos], [3, 1]);
  }
});

/** A process that sleeps when it is told to. */
function sleeper(disk: Disk): { files: any; nap: (bed: string) => { fallen: Promise<void>; wake: () => void } } {
  const naps: { bed: string; fall: () => void; woken: Promise<void> }[] = [];
  const files = disk.process((operation) => {
    if (operation !== naps[0]?.bed) return undefined;
    const { fall, woken } = naps.shift()!;
    fall();
    return woken;
  });
  const nap = (bed: string) => {
    let [fall, wake] = [() => {}, () => {}];
    const fallen = new Promise<void>((resolve) => (fall = resolve));
    const woken = new Promise<void>((resolve) => (wake = resolve));
    naps.push({ bed, fall, woken }); // before the next operation of this name
    return { fallen, wake };
  };
  return { files, nap };
}

for (const [bed, erased] of [["open", false], ["link", false], ["open", true], ["link", true]] as const) {
  const others = erased ? "made a hundred changes and erased the store" : "made a hundred changes";
  test(`a process that slept before ${bed} while others ${others} starts again, and leaves no old records`, async () => {
    const disk = new Disk();
    const fast = await open(disk.process());
    await fast.report("q0", 2, 0);
    const { files, nap } = sleeper(disk);
    const slow = await open(files);
    const { fallen, wake } = nap(bed);
    const late = slow.report("q0", 2, 1);
    await fallen;
    for (let step = 1; step < 100; step++) await fast.report("q0", 2, step);
    if (erased) await fast.forget("study");
    wake();
    await assert.rejects(late, erased ? StoreCleared : /no more/); // it saw the other process's changes
    if (!erased) assert.equal((await fast.spent("q0")).reports, 100);
    const present = erased ? 102 : 101;
    for (const path of disk.list()) {
      assert.match(path, /state/); // no draft
      if (erased || !path.endsWith(`.${present}`)) assert.match(await disk.process().readFile(path), /^(\{\})?$/);
    }
    assert.ok(disk.list().includes(`${FOLDER}/state.${present}`));
  });
}

test("a process that slept before it read a deleted state does not read the copy that a slower process has made", async () => {
  const disk = new Disk();
  const fast = await open(disk.process());
  await fast.report("q0", 2, 0);
  const [slower, slow] = [sleeper(disk), sleeper(disk)];
  const [first, second] = [await open(slower.files), await open(slow.files)];
  const draft = slower.nap("open");
  const writing = first.report("q0", 2, 1);
  await draft.fallen;
  await fast.report("q0", 2, 1); // makes the state that `writing` will copy
  const read = slow.nap("readFile");
  const reading = second.report("q0", 2, 1);
  await read.fallen;
  for (let step = 2; step < 40; step++) await fast.report("q0", 2, step);
  const copied = slower.nap("readdir");
  draft.wake();
  await copied.fallen;
  read.wake();
  await assert.rejects(reading, /no more/); // the copy has another report of step 1
  copied.wake();
  await assert.rejects(writing, /no more/);
});

test("a full disk is StoreFull, a damaged file or another system error a DeviceError, and nothing changes", async () => {
  const disk = new Disk();
  const device = await open(disk.process());
  const first = await device.report("q0", 2, 0);
  for (const [code, kind] of [["ENOSPC", StoreFull], ["EDQUOT", StoreFull], ["EACCES", DeviceError]] as const) {
    for (const failing of ["writeFile", "sync", "link"]) {
      const files = disk.process((operation) => {
        if (operation === failing) throw Object.assign(new Error(code), { code });
      });
      const full = await Device.open(asked, new FileStore(FOLDER, files), { consent: "simulated" });
      await assert.rejects(full.report("q0", 2, 1), kind);
      assert.deepEqual(await full.report("q0", 2, 0), first);
    }
  }
  assert.equal((await device.spent("q0")).reports, 1);
  await disk.process().truncate(`${FOLDER}/state.2`);
  await assert.rejects(device.report("q0", 2, 1), /damaged/);
  await assert.rejects(open(disk.process()), /damaged/);
});

test("a folder in which others are always faster is StoreHeld, and an emptied folder is StoreCleared", async () => {
  const disk = new Disk();
  const device = await open(disk.process());
  const slow = await open(
    disk.process((operation) => {
      if (operation === "link") throw Object.assign(new Error(), { code: "EEXIST" });
    }),
  );
  await assert.rejects(slow.report("q0", 2, 0), StoreHeld);
  for (const path of disk.list()) await disk.process().unlink(path);
  await assert.rejects(device.report("q0", 2, 0), StoreCleared);
});

test("there is no folder before the first record", async () => {
  const folder = join(await promises.mkdtemp(join(tmpdir(), "device-")), "new");
  const device = await Device.open(asked, new FileStore(folder));
  await device.preview({ q0: 1 });
  await assert.rejects(promises.stat(folder), { code: "ENOENT" });
  await device.withdrawConsent();
  assert.ok(await promises.stat(folder));
});

test("processes on one folder are one device", async () => {
  const folder = await promises.mkdtemp(join(tmpdir(), "device-"));
  try {
    const program = `
      import { Device, FileStore } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      import { LONG, survey } from ${JSON.stringify(new URL("./fixtures.js", import.meta.url).href)};
      const device = await Device.open(await survey([{ k: 5, levels: [LONG] }], { lateness_steps: 30 }), new FileStore(process.argv[1]), { consent: "simulated" });
      for (let step = 0; step < 20; step++) console.log(String(await device.report("q0", step % 5, step)));`;
    const run = () => promisify(execFile)(process.execPath, ["--input-type=module", "-e", program, folder]);
    const [first, ...others] = await Promise.all([run(), run(), run()]);
    assert.equal(first!.stdout.trim().split("\n").length, 20);
    for (const other of others) assert.equal(other.stdout, first!.stdout);
    const names = await promises.readdir(folder);
    assert.deepEqual(names.filter((name) => name.startsWith("draft")), []);
    for (const name of names) assert.equal((await promises.stat(join(folder, name))).mode & 0o777, 0o600);
  } finally {
    await promises.rm(folder, { recursive: true });
  }
});
