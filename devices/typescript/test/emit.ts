/**
 * Devices for `python -m devices.conformance`: a program, not a test.
 *
 *     node build/test/emit.js calls SURVEY.json DEVICES SEED [forget]    writes the devices' calls to standard output
 *     node build/test/emit.js SURVEY.json --histories HISTORIES --answers FILE    answers the questions of histories of use
 *     node build/test/emit.js SURVEY.json --gateway URL --devices DEVICES         sends reports of the present step to a gateway
 */

import { readFileSync, writeFileSync } from "node:fs";
import { toHex } from "../src/bytes.js";
import { Activity, Device, fetchSurvey, MemoryStore, openSurvey, Sender, type Attribute, type Survey } from "../src/index.js";
import { below, type RandomBytes } from "../src/random.js";
import { seeded } from "./fixtures.js";

const STEPS = 8;

/**
 * Each device keeps a value for half of the steps, changes it, returns to it, and repeats some calls after a restart. A device
 * that forgets loses its store after each step.
 */
async function calls(survey: Survey, devices: number, seed: string, forgets: boolean): Promise<void> {
  const random = seeded(seed);
  const lines: string[] = [];
  let values: [number, number][] = [];
  for (let n = 0; n < devices; n++) {
    const [identity, run] = [n >> 1, n & 1]; // both runs of an identity have the same values and levels
    const levels = Object.fromEntries(survey.attributes.map(({ name, levels }) => [name, levels[identity % levels.length]!.name]));
    let store = new MemoryStore();
    const cohort = cohortOf(survey, identity);
    const options = { levels, random, ...cohort };
    let device = await Device.open(survey, store, { consent: "simulated", ...options });
    if (!run) values = survey.attributes.map((attribute) => [drawn(attribute, random), drawn(attribute, random)]);
    for (let step = 0; step < STEPS; step++) {
      if (forgets) device = await Device.open(survey, (store = new MemoryStore()), { consent: "simulated", ...options });
      for (let repeat = step % 4 === 3 ? 1 : 0; repeat >= 0; repeat--) {
        for (const [a, { name, pair, choices }] of survey.attributes.entries()) {
          const code = values[a]![Number(step >= STEPS / 2 && step < STEPS - 2)]!;
          const chosenValues = choices ? Array.from({ length: 30 }, (_, v) => v).filter((v) => (code >> v) & 1) : code;
          const envelope = await device.report(name, choices ? chosenValues : pair ? [Math.floor(code / pair[1].k), code % pair[1].k] : code, step);
          const kept = device.known().find((report) => report.attribute === name && report.step === step);
          const chosen = { level: levels[name], ...cohort, run };
          const call = { device: identity, attribute: name, value: chosenValues, step, envelope: envelope && toHex(envelope), ...chosen };
          lines.push(JSON.stringify(kept ? { ...call, key: kept.key } : call));
        }
        if (repeat) device = await Device.open(survey, store, { consent: "simulated", ...options });
      }
    }
  }
  process.stdout.write(`${lines.join("\n")}\n`);
}

/** Draws the index of a value, or the code of a set. */
function drawn(attribute: Attribute, random: RandomBytes): number {
  const { k, values, choices } = attribute;
  if (!choices) return below(k, random);
  const code = below(2 ** values!.length, random);
  return [...code.toString(2)].filter((bit) => bit === "1").length <= choices ? code : drawn(attribute, random);
}

/** All cohorts occur about equally often. */
function cohortOf({ cohort }: Survey, n: number): { cohort?: string } {
  return cohort ? { cohort: cohort.values[n % cohort.values.length]! } : {};
}

/** Makes the calls of each history on a log of its own, and answers the questions. */
async function recipes(survey: Survey, histories: string): Promise<string> {
  let [now, device, log] = [0, "", new Activity(new MemoryStore())];
  const lines: string[] = [];
  for (const text of histories.trim().split("\n")) {
    const line = JSON.parse(text);
    if (line.device !== device) [device, log] = [line.device, new Activity(new MemoryStore(), { consent: "simulated", clock: () => now })];
    now = line.ms;
    if (line.step !== undefined) line.values = await log.values(survey, line.step); // JSON has null for an infinite number
    else if (line.seconds !== undefined) await log.took(line.event, { seconds: line.seconds });
    else if (line.event !== undefined) await log.used(line.event);
    else await log.seen();
    lines.push(JSON.stringify(line));
  }
  return `${lines.join("\n")}\n`;
}

async function send(url: string, devices: number): Promise<void> {
  const survey = await fetchSurvey({ url });
  for (let n = 0; n < devices; n++) {
    const device = await Device.open(survey, new MemoryStore(), { consent: "simulated", ...cohortOf(survey, n) });
    for (const { name } of survey.attributes) await device.report(name, n % 2);
    await new Sender(device, { url }).run({ pause: async () => {} });
  }
}

const [first = "", second = "", third = "", fourth = "", fifth = ""] = process.argv.slice(2);
const opened = (path: string) => openSurvey(JSON.parse(readFileSync(path, "utf8")));
if (first === "calls") await calls(await opened(second), Number(third), fourth, fifth === "forget");
else if (second === "--histories") writeFileSync(fifth, await recipes(await opened(first), readFileSync(third, "utf8")));
else await send(third, Number(fifth));
