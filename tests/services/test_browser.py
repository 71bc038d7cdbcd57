"""Devices in a browser, the gateway, Kafka, an agent and the estimator: the published histogram equals a direct count."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.runtime.clock import now_ms
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import open_envelope
from tests.conftest import give_up
from tests.devices.browser_rig import PageServer, page_server, tab
from tests.publishing.page.conftest import CHROMIUM, QUIET
from tests.publishing.page.page_rig import PATIENCE_MS
from tests.small_survey import small_text

from .rig import LOOPBACK, Services, free_ports, get, wait_until

STANDARD = {"name": "standard", "mechanism": "L-GRR", "eps_inf": 4.0, "eps_1": 2.0}
ZONE = {"name": "zone", "size": 6, "level": [STANDARD]}
LATENESS = 8  # steps take 3 s: 24 s to send the reports
STEP_S, DEVICES, PER_DEVICE = 3, 30, 2
REPORT_AND_SEND = """async ([url, name, devices]) => {
    const { Device, fetchSurvey, IndexedDBStore, Sender } = await import("/build/ldpstream-device.js");
    const gateway = { url };
    const survey = await fetchSurvey(gateway);
    const made = [];
    const live = async (i) => {
        const device = await Device.open(survey, new IndexedDBStore(`${name}-${i}`));
        const envelope = await device.report("zone", i % 4);
        const [report] = await device.waiting();
        made.push([Array.from(envelope), report.key]);
        if (i % 3 == 0) { // the answer to the first attempt is lost
            const headers = { "Content-Type": "application/vnd.ldpstream.envelope", "Idempotency-Key": report.key };
            await fetch(`${url}/v1/reports`, { method: "POST", body: envelope, headers }).catch(() => null);
        }
        await new Sender(device, gateway).run();
    };
    await Promise.all(Array.from({ length: devices }, (_, i) => live(i)));
    return made;
}"""


@pytest.fixture
def server(typescript: Path) -> Iterator[PageServer]:
    with page_server(typescript) as server:
        yield server


def test_reports_of_a_browser_become_a_histogram(services: Services, server: PageServer, tmp_path: Path) -> None:
    if CHROMIUM is None:
        give_up("no Chromium on this machine")
    name = f"browser-{os.getpid()}-{time.time_ns()}"
    (tmp_path / "source.toml").write_text(small_text(ZONE, name=name, window_steps=1, lateness_steps=LATENESS))
    survey_file, (port,) = tmp_path / "survey.toml", free_ports(1)
    survey = rehearse(tmp_path / "source.toml", survey_file, STEP_S, now_s=time.time())
    services.start("agent", survey_file)
    services.start(
        "gateway", survey_file, LDPSTREAM_GATEWAY_PORT=str(port), LDPSTREAM_GATEWAY_ORIGINS=server.url,
        LDPSTREAM_GATEWAY_RATE="1000", LDPSTREAM_METRICS_PORT="0",
    )  # fmt: skip
    wait_until(lambda: get(f"http://{LOOPBACK}:{port}/ready")[0] == 200, services.logs)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        page = tab(browser.new_context(), server)
        made = [
            one
            for turn in range(PER_DEVICE)
            for one in page.evaluate(REPORT_AND_SEND, [f"http://{LOOPBACK}:{port}", f"turn-{turn}", DEVICES])
        ]
        browser.close()

    envelopes = [bytes(envelope) for envelope, _ in made]
    assert len({key for _, key in made}) == len(made) == DEVICES * PER_DEVICE
    opened = [open_envelope(survey, envelope, now_ms()) for envelope in envelopes]
    counts = Counter((envelope.step, envelope.payload[0]) for envelope in opened)
    steps = sorted({envelope.step for envelope in opened})
    made_estimates = services.estimate(survey_file, steps[-1]).values()

    published = {e["step"]: e for e in made_estimates if e["span"] == "step"}
    m = survey.mechanisms[0][0]
    for step in steps:
        direct = np.array([counts[step, value] for value in range(m.k)])
        assert published[step]["reports"] == direct.sum()
        assert published[step]["complete"]
        expected = matrix_inversion(m, m.table(int(direct.sum()), direct))
        assert published[step]["estimators"]["mi"]["frequencies"] == pytest.approx(expected.frequencies.tolist(), abs=1e-12)
    assert sum(one["reports"] for one in published.values()) == len(made)
