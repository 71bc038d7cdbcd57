/** Sending through a gateway: the answers in docs/reference/write_a_device.md, keys, retries, and the end of a page. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { toHex } from "../src/bytes.js";
import { Device, DeviceError, fetchSurvey, MemoryStore, Sender, UnsafeSurvey, WrongSurvey, type GatewayOptions } from "../src/index.js";
import { document, LONG, survey } from "./fixtures.js";

interface Request {
  url: string;
  key: string | null;
  type: string | null;
  token: string | null;
  body: string;
  keepalive: boolean;
}

/** A gateway that gives these answers in turn; "" stands for a lost answer. The last answer repeats. */
function gateway(...answers: (Response | number | "")[]): GatewayOptions & { requests: Request[] } {
  const requests: Request[] = [];
  const answer = async (url: unknown, options: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(options.headers);
    requests.push({
      url: String(url),
      key: headers.get("Idempotency-Key"),
      type: headers.get("Content-Type"),
      token: headers.get("Authorization"),
      body: options.body ? toHex(options.body as Uint8Array) : "",
      keepalive: options.keepalive === true,
    });
    const next = answers.length > 1 ? answers.shift()! : answers[0]!;
    if (next === "") throw new TypeError("fetch failed");
    return typeof next === "number" ? problem(next) : next.clone();
  };
  return { url: "https://gateway.example/", token: "secret", fetch: answer as typeof fetch, requests };
}

function problem(status: number, headers: Record<string, string> = {}): Response {
  const body = status === 202 ? { accepted: 1 } : { type: "urn:ldpstream:problem:x", title: `problem ${status}`, status };
  return Response.json(body, { status, headers });
}

/** Requests or reports in the order of their keys: they are sent in random order. */
function byKey<T extends { key: string | null }>(all: readonly T[]): T[] {
  return [...all].sort((left, right) => (left.key! < right.key! ? -1 : 1));
}

async function deviceWith(reports: number): Promise<Device> {
  const device = await Device.open(await survey([{ k: 5, levels: [LONG] }]), new MemoryStore(), { consent: "simulated" });
  for (let step = 0; step < reports; step++) await device.report("q0", 1, step);
  return device;
}

test("an accepted report has its envelope, key, content type and token, and is settled", async () => {
  const device = await deviceWith(2);
  const waiting = await device.waiting();
  const target = gateway(202);
  const outcome = await new Sender(device, target).attempt();
  assert.deepEqual(outcome, { accepted: 2, refused: 0, waiting: 0, retryAfterMs: 0, problems: [] });
  assert.deepEqual(
    byKey(target.requests),
    byKey(waiting).map(({ key, envelope }) => ({
      url: "https://gateway.example/v1/reports",
      key,
      type: "application/vnd.ldpstream.envelope",
      token: "Bearer secret",
      body: toHex(envelope),
      keepalive: false,
    })),
  );
  assert.deepEqual(await device.waiting(), []);
});

test("reports go in random order, also at the end of a page", async () => {
  const device = await deviceWith(25);
  const made = (await device.waiting()).map(({ key }) => key);
  const keys = async (send: (sender: Sender) => unknown) => {
    const target = gateway("");
    await send(new Sender(device, target));
    const sent = target.requests.map(({ key }) => key!);
    assert.deepEqual([...sent].sort(), [...made].sort());
    return sent;
  };
  const attempt = () => keys((sender) => sender.attempt());
  const orders = [made, await attempt(), await attempt(), await keys((sender) => sender.lastAttempt())].map((order) => order.join());
  assert.equal(new Set(orders).size, 4); // two equal ones: probability 4e-25
});

test("422: the report never counts, and is settled", async () => {
  const device = await deviceWith(1);
  const outcome = await new Sender(device, gateway(422)).attempt();
  assert.deepEqual(outcome, { accepted: 0, refused: 1, waiting: 0, retryAfterMs: 0, problems: ["problem 422 (422)"] });
  assert.deepEqual(await device.waiting(), []);
});

for (const [status, body] of [[202, ""], [202, "<html>"], [202, '{"accepted":"1"}'], [422, "<html>"], [422, '{"title":"x"}'], [422, "null"]] as const) {
  test(`a proxy's ${status} settles nothing: ${body}`, async () => {
    const device = await deviceWith(1);
    const outcome = await new Sender(device, gateway(new Response(body, { status }))).attempt();
    assert.deepEqual([outcome.accepted, outcome.refused, outcome.waiting], [0, 0, 1]);
    assert.equal((await device.waiting()).length, 1);
  });
}

test("a silent network holds an attempt for one wait", async () => {
  const asked: unknown[] = [];
  const connection = setInterval(() => undefined, 1000); // keeps the process running, as a socket does
  const fetch = (url: unknown, { signal }: RequestInit) => new Promise<Response>((_, reject) => {
    asked.push(url);
    signal!.addEventListener("abort", () => reject(signal!.reason as Error));
  });
  const outcome = await new Sender(await deviceWith(3), { url: "https://gateway.example", waitMs: 1, fetch: fetch as typeof globalThis.fetch }).attempt();
  assert.deepEqual(outcome, { accepted: 0, refused: 0, waiting: 3, retryAfterMs: 0, problems: ["no answer: timeout"] });
  assert.equal(asked.length, 1);
  clearInterval(connection);
});

const OTHERS = [
  200, 204, 301, 400, 401, 403, 404, 405, 408, 409, 411, 413, 415, 417, 421, 426, 429, 431, 500, 501, 502, 503, 504, "",
] as const;
for (const status of OTHERS) {
  test(`${status || "no answer"}: the report waits, and goes again with the same key`, async () => {
    const device = await deviceWith(1);
    const target = gateway(status === "" ? "" : new Response(status === 204 ? null : "<html>", { status, headers: { "Retry-After": "7" } }));
    const outcome = await new Sender(device, target).attempt();
    const named = status === "" ? "no answer" : `no problem document (${status})`;
    assert.deepEqual(outcome, { accepted: 0, refused: 0, waiting: 1, retryAfterMs: status === "" ? 0 : 7000, problems: [named] });
    await new Sender(device, target).attempt();
    assert.deepEqual(target.requests[1], target.requests[0]);
  });
}

test("the outcome says why there was no answer, and nothing of the URL", async () => {
  const device = await deviceWith(2);
  for (const [code, reason] of [
    ["ECONNREFUSED", "connection refused"], ["ENOTFOUND", "name not found"], ["EAI_AGAIN", "name not found"],
    ["DEPTH_ZERO_SELF_SIGNED_CERT", "certificate refused (DEPTH_ZERO_SELF_SIGNED_CERT)"],
    ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", "certificate refused (UNABLE_TO_VERIFY_LEAF_SIGNATURE)"],
    ["UND_ERR_CONNECT_TIMEOUT", "timeout"], ["ERR_SSL_WRONG_VERSION_NUMBER", "TLS failed"], ["UND_ERR_SOCKET", "connection closed"],
    ["HPE_INVALID_CONSTANT", "an answer that is not HTTP"], ["ENETUNREACH", "ENETUNREACH"],
  ] as const) {
    const fails = () => Promise.reject(new TypeError("https://secret", { cause: Object.assign(new Error("secret"), { code }) }));
    const outcome = await new Sender(device, { url: "https://secret", fetch: fails as typeof fetch }).attempt();
    assert.deepEqual(outcome.problems, [`no answer: ${reason}`]);
  }
  const late = () => Promise.reject(new DOMException("secret", "TimeoutError"));
  assert.deepEqual((await new Sender(device, { url: "https://secret", fetch: late as typeof fetch }).attempt()).problems, ["no answer: timeout"]);
});

test("a gateway without TLS, and a closed port, are named", async () => {
  const server = createServer((socket) => socket.resume().end("HTTP/1.1 400 Bad Request\r\n\r\n")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  assert.deepEqual((await new Sender(await deviceWith(1), { url }).attempt()).problems, ["no answer: TLS failed"]);
  server.close();
  await once(server, "close");
  await assert.rejects(fetchSurvey({ url }), new DeviceError("the gateway gave no survey: no answer: connection refused"));
});

test("run retries with Retry-After and full jitter until nothing waits", async () => {
  const device = await deviceWith(1);
  const pauses: number[] = [];
  const target = gateway(problem(503, { "Retry-After": "30" }), "", ...Array<number>(13).fill(500), 202);
  await new Sender(device, target).run({ pause: async (ms) => void pauses.push(ms) });
  assert.equal(new Set(target.requests.map(({ key, body }) => key! + body)).size, 1);
  assert.equal(pauses.length, 15);
  assert.ok(pauses[0]! >= 30_000 && pauses[0]! <= 31_000);
  pauses.slice(1).forEach((ms, i) => assert.ok(ms <= Math.min(300_000, 2000 * 2 ** i)));
  assert.ok(pauses.slice(9).some((ms) => ms > 10_000)); // all six below 10 s: probability 1.4e-9
  assert.deepEqual(await device.waiting(), []);
});

test("a report that must wait long delays no other", async () => {
  const device = await deviceWith(2);
  const target = gateway(problem(503, { "Retry-After": "80000" }), problem(503, { "Retry-After": "7" }));
  assert.equal((await new Sender(device, target).attempt()).retryAfterMs, 7000);
});

test("a Retry-After is seconds or a time by the answer's clock, at most a day, and another text is none", async () => {
  const device = await deviceWith(1);
  for (const [told, waitMs] of [
    ["86401", 86_400_000], ["9".repeat(5000), 86_400_000], ["-1", 0], ["7.5", 0], ["2030-01-01", 0], ["Tue, 24 Nov 2026", 0],
    ["Tue, 24 Nov 2026 10:01:30 GMT", 90_000], ["Tue, 24 Nov 2026 09:59:00 GMT", 0], ["Fri, 31 Dec 9999 23:59:59 GMT", 86_400_000],
  ] as const) {
    const target = gateway(problem(503, { "Retry-After": told, Date: "Tue, 24 Nov 2026 10:00:00 GMT" }));
    assert.equal((await new Sender(device, target).attempt()).retryAfterMs, waitMs);
  }
});

test("run ends with its signal, and the report stays", async () => {
  const device = await deviceWith(1);
  const stop = new AbortController();
  const running = new Sender(device, gateway(500)).run({ signal: stop.signal });
  stop.abort(new RangeError("enough"));
  await assert.rejects(running, RangeError);
  assert.equal((await device.waiting()).length, 1);
});

test("a last attempt outlives the page, has the same key, and settles if the page stays open", async () => {
  const device = await deviceWith(3);
  const lost = gateway("");
  new Sender(device, lost).lastAttempt(); // sends before it returns: the page may end now
  assert.equal(lost.requests.length, 3);
  const target = gateway(202);
  new Sender(device, target).lastAttempt();
  assert.deepEqual(byKey(target.requests), byKey(lost.requests));
  assert.ok(target.requests.every(({ keepalive }) => keepalive));
  while (device.known().length) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(await device.waiting(), []);
});

test("the survey of a gateway, checked", async () => {
  const made = document([{ k: 5, levels: [LONG] }]);
  for (const [pin, path] of [[made.pin, `/v1/surveys/${made.fingerprint}`], [undefined, "/v1/survey"]] as const) {
    const served = gateway(Response.json(made));
    assert.equal((await fetchSurvey(served, pin)).name, "study");
    assert.deepEqual([served.requests[0]!.url, served.requests[0]!.token], [`https://gateway.example${path}`, "Bearer secret"]);
  }
  await assert.rejects(fetchSurvey(gateway(Response.json(made)), made.fingerprint + "0".repeat(48)), WrongSurvey);
  await assert.rejects(fetchSurvey(gateway(Response.json(made)), made.fingerprint), RangeError);
  await assert.rejects(fetchSurvey(gateway(Response.json({ ...made, canonical: "{}" }))), UnsafeSurvey);
  await assert.rejects(fetchSurvey(gateway(401)), (error: Error) => error instanceof DeviceError && /problem 401 \(401\)/.test(error.message));
});
