/** Sending through a relay: docs/howto/relay.md has the rules. No fault makes a report leave directly, early, with another, or twice. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { toHex } from "../src/bytes.js";
import {
  Device, DeviceError, fetchSurvey, MemoryStore, openSurvey, RelayRequired, Sender, UnknownSurvey, Wallet, type GatewayOptions, type Survey,
} from "../src/index.js";
import { document, LONG, ONCE, survey, type Level } from "./fixtures.js";
import { KEYS, open, response } from "./relay_gateway.js";

const HEAD = { relay: "required", format: 4, lateness_steps: 2, step_seconds: 3600 };
const STEP_MS = 3_600_000;
const RELAYED = await survey([{ k: 5, levels: [LONG] }], HEAD);
const opens = (step: number) => RELAYED.startMs + step * STEP_MS;

type Answer = (capsule: Uint8Array) => Response | Promise<Response>;

/** The gateway's answer with this status. */
const gives = (status: number, retryAfter?: number): Answer => (capsule) => new Response(open(capsule).seal(response(status, retryAfter)));

/** A device at step 5, its sender, the requests of the relay, and the time, which only the tests move. */
async function site(answer: Answer, steps: number[] = [5], asked: Survey = RELAYED) {
  const time = { now: opens(5) };
  const device = await Device.open(asked, new MemoryStore(), { consent: "simulated", clock: () => time.now });
  for (const step of steps) for (const { name } of asked.attributes) await device.report(name, 1, step);
  const requests: { url: string; at: number; headers: string; body: Uint8Array; options: RequestInit }[] = [];
  const state = { answer };
  const fetch = async (url: unknown, options: RequestInit = {}): Promise<Response> => {
    const body = new Uint8Array(options.body as ArrayBuffer);
    requests.push({ url: String(url), at: time.now, headers: JSON.stringify([...new Headers(options.headers)]), body, options });
    return state.answer(body);
  };
  const gateway: GatewayOptions = { url: "https://gateway.example", relay: { url: "https://relay.example/to", keys: KEYS }, fetch: fetch as typeof globalThis.fetch };
  const pause = async (ms: number) => void (time.now += ms);
  return { time, device, sender: new Sender(device, gateway), gateway, requests, state, pause };
}

const dueOf = async (device: Device) => (await device.waiting())[0]!.dueMs;

test("a report leaves at its moment, in one request to the relay, and is settled", async () => {
  const { time, device, sender, requests } = await site(gives(202));
  const [{ envelope, key, dueMs }] = (await device.waiting()) as [Awaited<ReturnType<Device["waiting"]>>[0]];
  assert.ok(dueMs >= opens(6) && dueMs < opens(7));
  for (const now of [time.now, dueMs - 1]) {
    time.now = now;
    assert.deepEqual(await sender.attempt(), { accepted: 0, refused: 0, waiting: 1, retryAfterMs: dueMs - now, problems: [] });
  }
  sender.lastAttempt(); // sends nothing: the report leaves at its moment
  assert.equal(requests.length, 0);
  time.now = dueMs;
  assert.deepEqual(await sender.attempt(), { accepted: 1, refused: 0, waiting: 0, retryAfterMs: 0, problems: [] });
  assert.deepEqual(requests.map(({ url }) => url), ["https://relay.example/to"]);
  assert.equal(requests[0]!.headers, '[["accept-language","*"],["connection","close"],["content-type","message/ohttp-req"]]');
  const { message } = open(requests[0]!.body);
  assert.ok(message.includes(Buffer.from(envelope)) && message.includes(key) && message.includes("gateway.example"));
  assert.deepEqual(await device.waiting(), []);
});

test("the token travels inside", async () => {
  const { time, device, gateway, requests } = await site(gives(202));
  time.now = await dueOf(device);
  await new Sender(device, { ...gateway, token: "secret-token" }).attempt();
  assert.ok(!requests[0]!.headers.includes("secret-token"));
  assert.ok(open(requests[0]!.body).message.includes("Bearer secret-token"));
});

test("422 inside: the report never counts, and is settled", async () => {
  const { sender, device, pause } = await site(gives(422));
  await sender.run({ pause });
  assert.deepEqual(await device.waiting(), []);
});

for (const status of [200, 400, 401, 403, 404, 409, 429, 500, 503, 504]) {
  test(`${status} inside: the report waits, and goes again with the same key, encrypted again`, async () => {
    const { sender, device, requests, state, pause, time } = await site(gives(status, 77));
    time.now = await dueOf(device);
    const outcome = await sender.attempt();
    assert.deepEqual([outcome.waiting, outcome.problems], [1, [`problem ${status} (${status})`]]);
    assert.ok(outcome.retryAfterMs >= 77_000);
    state.answer = gives(202);
    await sender.run({ pause });
    const [first, second] = requests.map(({ body }) => toHex(open(body).message));
    assert.equal(second, first);
    assert.notDeepEqual(requests[0]!.body, requests[1]!.body);
    assert.equal(requests.length, 2);
  });
}

const OWN: Record<string, Answer> = {
  "202 in clear": () => new Response(null, { status: 202 }),
  "422 in clear": () => new Response("{}", { status: 422 }),
  "403 in clear": () => new Response("{}", { status: 403 }),
  "503 in clear": () => new Response("{}", { status: 503 }),
  "200 without an answer": () => new Response(""),
  "200 with noise": () => new Response(new Uint8Array(600)),
  "the answer to another request": () => new Response(OTHER),
  "no response inside": (capsule) => new Response(open(capsule).seal(Buffer.from("0040", "hex"))),
  "no connection": () => Promise.reject(new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } })),
};
let OTHER = new Uint8Array(0);
for (const [name, answer] of Object.entries(OWN)) {
  test(`the relay's own answer settles nothing: ${name}`, async () => {
    const other = await site(gives(202));
    await other.sender.run({ pause: other.pause });
    OTHER = open(other.requests[0]!.body).seal(response(202));
    const { sender, device, requests, state, pause, time } = await site(answer);
    time.now = await dueOf(device);
    const outcome = await sender.attempt();
    assert.deepEqual([outcome.accepted, outcome.refused, outcome.waiting, outcome.problems.length], [0, 0, 1, 1]);
    state.answer = gives(202);
    await sender.run({ pause });
    assert.deepEqual(await device.waiting(), []);
    assert.deepEqual([...new Set(requests.map(({ url }) => url))], ["https://relay.example/to"]);
  });
}

test("while the relay is unreachable, no request goes anywhere else, and the reports are sent one by one later", async () => {
  const { sender, device, requests, state, pause, time } = await site(OWN["503 in clear"]!, [5, 6]);
  while (time.now < opens(7)) await pause((await sender.attempt()).retryAfterMs);
  assert.equal((await device.waiting()).length, 2);
  state.answer = gives(202);
  await sender.run({ pause });
  assert.deepEqual(await device.waiting(), []);
  assert.equal(new Set(requests.map(({ at }) => at)).size, requests.length);
  assert.deepEqual([...new Set(requests.map(({ url }) => url))], ["https://relay.example/to"]);
  assert.ok(time.now < opens(9)); // the later step closes then
});

test("a report that became due during an attempt gets a new moment", async () => {
  const { sender, device, time, state, pause } = await site(gives(202), [5, 6, 7]);
  const [first, second, third] = (await device.waiting()).map(({ dueMs }) => dueMs).sort((a, b) => a - b) as [number, number, number];
  time.now = first;
  state.answer = async (capsule) => {
    time.now = second + 1; // the operator holds the answer
    await device.report("q0", 1, 4); // a report that is due as soon as it is made
    return gives(202)(capsule);
  };
  const { accepted, waiting, retryAfterMs } = await sender.attempt();
  assert.deepEqual([accepted, waiting], [1, 3]);
  assert.ok(retryAfterMs > 0 && retryAfterMs <= third - second - 1); // the control: the third report keeps its moment
  assert.equal((await sender.attempt()).accepted, 0);
  state.answer = gives(202);
  await sender.run({ pause });
  assert.deepEqual(await device.waiting(), []);
});

test("reports that are overdue do not leave together", async () => {
  const { sender, requests, time, pause, device } = await site(gives(202), [5, 6]);
  time.now = opens(8) - 600_000;
  for (let i = 0; i < 100; i++) await sender.attempt(); // an application that does not wait
  assert.equal(requests.length, 1);
  await sender.run({ pause });
  assert.equal(requests.length, 2);
  assert.notEqual(requests[0]!.at, requests[1]!.at);
  assert.deepEqual(await device.waiting(), []);
});

test("all requests of a survey have one size, the same headers and a key of their own", async () => {
  const wide: Level = { mechanism: "OUE", eps: 1 };
  const asked = await survey([{ k: 5, levels: [ONCE] }, { k: 300, levels: [wide] }], { ...HEAD, collection: "spl" });
  const { sender, requests, pause } = await site(gives(202), [5, 6, 130, 70_000], asked);
  await sender.run({ pause });
  assert.equal(requests.length, 8);
  assert.equal(new Set(requests.map(({ body }) => body.length)).size, 1);
  assert.equal(new Set(requests.map(({ headers }) => headers)).size, 1);
  assert.equal(new Set(requests.map(({ body }) => toHex(body.subarray(7, 39)))).size, 8);
  assert.ok(requests.every(({ options }) => options.credentials === "omit" && options.redirect === "error" && !options.keepalive));
});

test("the moment is uniform over the next step, and outlives a restart", async () => {
  const store = new MemoryStore();
  const [device, wallet] = [await Device.open(RELAYED, store, { consent: "simulated" }), await Wallet.open(new MemoryStore(), { perWindow: 1e9, windowSeconds: 60 })];
  const inWallet = await wallet.device(RELAYED, { consent: "simulated" });
  const step = 600_000;
  for (const one of [device, inWallet]) await one.report("q0", 1, step);
  assert.equal(await dueOf(device), await dueOf(await Device.open(RELAYED, store, { consent: "simulated" })));
  assert.equal(await dueOf(inWallet), await dueOf(await wallet.device(RELAYED, { consent: "simulated" })));
  const cells = new Array<number>(10).fill(0);
  for (let i = 0; i < 500; i++) {
    const made = await Device.open(RELAYED, new MemoryStore(), { consent: "simulated" });
    await made.report("q0", 1, 5);
    cells[Math.floor((((await dueOf(made)) - opens(6)) / STEP_MS) * 10)]! += 1;
  }
  const statistic = cells.reduce((sum, n) => sum + (n - 50) ** 2 / 50, 0);
  assert.ok(statistic < 48, `chi-squared of 9 degrees of freedom: ${statistic}`); // false alarm: 2.5e-7; one empty cell gives at least 55
  assert.equal(cells.length, 10);
});

test("a survey that requires a relay is refused without one, and the reverse", async () => {
  const { device, gateway } = await site(gives(202));
  const { relay, ...direct } = gateway;
  assert.throws(() => new Sender(device, direct), RelayRequired);
  assert.ok(new RelayRequired("") instanceof DeviceError);
  const plain = await Device.open(await survey([{ k: 5, levels: [LONG] }]), new MemoryStore(), { consent: "simulated" });
  assert.throws(() => new Sender(plain, gateway), RangeError);
  await assert.rejects(fetchSurvey(gateway), RangeError);
  for (const keys of ["", "AAAA", "?", KEYS.slice(4), KEYS.slice(0, -4)]) {
    assert.throws(() => new Sender(device, { ...gateway, relay: { ...relay!, keys } }), RangeError, keys);
  }
  for (const url of ["", "gateway.example", "https://gateway.example/path", "https://user@gateway.example", "https://a.example/?x", "ftp://a.example"]) {
    assert.throws(() => new Sender(device, { ...gateway, url }), RangeError, url);
  }
});

test("a canonical text with a relay has its own format, and enough late steps", async () => {
  const made = (head: Record<string, unknown>) => openSurvey(document([{ k: 5, levels: [LONG] }], { ...HEAD, ...head }));
  assert.equal((await made({})).relay, "required");
  assert.equal((await survey([{ k: 5, levels: [LONG] }])).relay, null);
  for (const head of [{ format: 3 }, { format: 5 }, { relay: undefined }, { relay: null }, { relay: "optional" }, { relay: true }, { lateness_steps: 1 }]) {
    await assert.rejects(made(head), UnknownSurvey, JSON.stringify(head));
  }
});

test("a browser without X25519 makes no request", async (context) => {
  const { sender, device, requests, time } = await site(gives(202));
  time.now = await dueOf(device);
  context.mock.method(crypto.subtle, "generateKey", () => Promise.reject(new DOMException("Unrecognized", "NotSupportedError")));
  await assert.rejects(sender.attempt(), /no X25519/);
  assert.equal(requests.length, 0);
});

test("Node opens a connection for each request", async () => {
  const ports: number[] = [];
  const server = createServer((request, answer) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      ports.push(request.socket.remotePort!);
      answer.end(open(Buffer.concat(parts)).seal(response(202)));
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { device, gateway, pause } = await site(gives(202), [5, 6, 7]);
  const { fetch: _, ...real } = gateway;
  await new Sender(device, { ...real, relay: { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/to`, keys: KEYS } }).run({ pause });
  assert.equal(new Set(ports).size, 3);
  server.close();
});
