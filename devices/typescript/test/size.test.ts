/** The browser's file stays small and has no dependency. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url));

test("the bundle has at most 15 kB after compression, and imports nothing", (context) => {
  const bundle = read("build/ldpstream-device.js");
  const size = gzipSync(bundle, { level: 9 }).length;
  context.diagnostic(`${size} bytes after compression`);
  assert.ok(size <= 15_000, `${size} bytes`);
  assert.doesNotMatch(bundle.toString(), /\b(import|require)\s*[("'{*]/);
  assert.equal(JSON.parse(read("package.json").toString()).dependencies, undefined);
});

test("random numbers come from Web Crypto alone", () => {
  assert.doesNotMatch(read("build/ldpstream-device.js").toString(), /Math\.random/);
});
