/** The browser's file stays small and has no dependency. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url));

test("the bundle has the size that the README states, and imports nothing", () => {
  const bundle = read("build/ldpstream-device.js");
  const size = gzipSync(bundle, { level: 9 }).length;
  const [, stated] = /([\d.]+) kB\s+after\s+compression with gzip/.exec(read("README.md").toString()) ?? [];
  assert.ok(Math.abs(size / 1000 - Number(stated)) <= 0.3, `${size} bytes after compression; README.md: ${stated} kB`);
  assert.doesNotMatch(bundle.toString(), /\b(import|require)\s*[("'{*]/);
  assert.equal(JSON.parse(read("package.json").toString()).dependencies, undefined);
});

test("random numbers come from Web Crypto alone", () => {
  assert.doesNotMatch(read("build/ldpstream-device.js").toString(), /Math\.random/);
});
