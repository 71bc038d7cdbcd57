"""The TypeScript device behind a relay, with the real gateway: every report counts, and no request looks like its device."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from ldpstream.device.relay.binary_http import decode_request
from ldpstream.device.relay.capsules import open_request
from tests.gateway.gateway_rig import TOKEN
from tests.producers.relay_rig import GATEWAY, config_of, keys_of, relay_site, relay_survey

PROGRAM = """
import { readFileSync } from "node:fs";
import { Device, MemoryStore, openSurvey, Sender } from "./build/src/node.js";

const { document, gateway, levels, steps, nowMs } = JSON.parse(readFileSync(0, "utf8"));
const survey = await openSurvey(document);
for (const zone of levels) {
  let now = nowMs;
  const device = await Device.open(survey, new MemoryStore(), { levels: { zone }, clock: () => now, consent: "simulated" });
  for (const step of steps) await device.report("zone", 7, step);
  const sender = new Sender(device, gateway);
  await sender.run({ pause: async (ms) => void (now += ms) });
  console.log((await device.waiting()).length);
}
"""


def test_reports_of_the_typescript_device_count_behind_a_relay(
    typescript: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, levels, steps = relay_survey("GRR", "L-OSUE"), ["GRR", "L-OSUE"], [5, 6, 7]
    with relay_site(survey, monkeypatch, tokens=[TOKEN]) as site:
        site.clock.now_ms = survey.opens_ms(8) - 1000  # steps 5, 6 and 7 are open
        relay = {"url": site.relay.url, "keys": config_of(0)}
        gateway = {"url": f"https://{GATEWAY}", "token": TOKEN, "relay": relay}
        document, now_ms = msgspec.to_builtins(survey.device_survey), survey.opens_ms(5)
        told = json.dumps({"document": document, "gateway": gateway, "levels": levels, "steps": steps, "nowMs": now_ms})
        (typescript / "relay.mjs").write_text(PROGRAM)
        command = ["node", "relay.mjs"]
        done = subprocess.run(command, cwd=typescript, input=told, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout.split()) == (0, ["0", "0"]), done.stderr
        seen, counted = site.relay.seen, site.gateway.rig.log.counted()
    assert len(seen) == len(counted) == len(levels) * len(steps)
    assert len({len(request.body) for request in seen}) == 1  # reports of 1 and of 13 bytes
    assert len({request.lines for request in seen}) == 1
    assert len({request.port for request in seen}) == len(seen)
    assert len({request.body[7:39] for request in seen}) == len(seen)
    assert TOKEN not in str([request.lines for request in seen])
    inside = [decode_request(open_request(keys_of(0).private, request.body).message) for request in seen]
    assert len({(request[:4], *(pair for pair in request.headers if pair[0] != b"idempotency-key")) for request in inside}) == 1
    assert {request.content for request in inside} == {envelope for (envelope,) in counted}
