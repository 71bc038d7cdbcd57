/** The programs of the README run, on the browser's file. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import "fake-indexeddb/auto";
import { DAY_MS } from "../src/survey.js";
import { document, LONG, type Level } from "./fixtures.js";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

test("the program for a page reports and delivers once", async (context) => {
  const standard = { ...LONG, name: "standard" };
  const question = { k: 2, domain: { name: "mode", values: ["walk", "bicycle"] }, levels: [standard] };
  const served = document([question], { start: Date.now() - 90_000 });
  const posted: string[] = [];
  context.mock.method(globalThis, "fetch", async (url: string, options: RequestInit) => {
    if (url.endsWith(`/v1/surveys/${served.fingerprint}`)) return Response.json(served);
    posted.push(new Headers(options.headers).get("Idempotency-Key")!);
    return Response.json({ accepted: 1 }, { status: 202 });
  });
  Object.assign(globalThis, { document: new EventTarget(), confirm: (text: string) => /Purpose: not stated/.test(text) });
  for (const name of ["CI", "DO_NOT_TRACK"]) delete process.env[name];
  const program = /```js\n(.*?)```/s.exec(read("README.md"))![1]!
    .replace("./ldpstream-device.js", new URL("../ldpstream-device.js", import.meta.url).href)
    .replace(/[0-9a-f]{64}/, served.pin);
  await import(`data:text/javascript,${encodeURIComponent(program)}`);
  assert.equal(posted.length, 1);
});

test("the program with a wallet admits a survey", async () => {
  const cautious: Level = { mechanism: "GRR", eps: 0.5, every_steps: 1441, lifetime_reports: 100 };
  const served = document([{ k: 2, domain: { name: "mode", values: ["walk", "bicycle"] }, levels: [cautious] }]);
  const program = [...read("README.md").matchAll(/```js\n(.*?)```/gs)][2]![1]!.replace("cautious", "a");
  const run = `
    import { IndexedDBStore, openSurvey, Wallet } from ${JSON.stringify(new URL("../ldpstream-device.js", import.meta.url).href)};
    const survey = await openSurvey(${JSON.stringify(served)});
    ${program}
    export { spent, surveys };`;
  const { spent, surveys } = await import(`data:text/javascript,${encodeURIComponent(run)}`);
  assert.deepEqual([spent, surveys.length, Math.round(surveys[0].forEver)], [0, 1, 50]);
});

test("the program that counts the use of a page reports at once", async (context) => {
  const [{ survey }] = JSON.parse(read("../vectors/recipes.json"));
  const { start, attribute: attributes } = JSON.parse(survey.canonical);
  context.mock.timers.enable({ apis: ["Date"], now: start + DAY_MS });
  const posted = new Set<string>();
  context.mock.method(globalThis, "fetch", async (url: string, options: RequestInit) => {
    if (url === "survey.json") return Response.json(survey);
    posted.add(new Headers(options.headers).get("Idempotency-Key")!);
    return Response.json({ accepted: 1 }, { status: 202 });
  });
  Object.assign(globalThis, { confirm: () => true });
  const program = [...read("README.md").matchAll(/```js\n(.*?)```/gs)][1]![1]!
    .replace("./ldpstream-device.js", new URL("../ldpstream-device.js", import.meta.url).href);
  await import(`data:text/javascript,${encodeURIComponent(program)}`);
  assert.equal(posted.size, attributes.length);
});
