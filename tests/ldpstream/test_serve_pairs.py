"""A pair and a question with several answers through the real `ldpstream serve`: the counts are the tally, and the published
numbers are their estimates."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ldpstream.agents import Record, tally
from ldpstream.device import Device, Sender
from ldpstream.engines.checkpoint import tables_of
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.estimators.pairs import Counted, pair_estimate
from ldpstream.mechanisms.channel import project
from ldpstream.runtime.clock import now_ms
from tests.faults.invariant import numbers_of
from tests.services.rig import wait_until

from .test_serve import Served

DEVICES, ROUNDS, STEP_S = 25, 3, 3
SURVEY = """
name = "pairs"
start = {start}
step_seconds = {step_seconds}
window_steps = 1000
lateness_steps = 2
collection = "spl"
[[attribute]]
name = "mode"
values = ["car", "bus", "other"]
level = [{{ name = "standard", mechanism = "auto", eps_inf = 20.0, eps_1 = 12.0 }}]
[[attribute]]
name = "zone"
bins = [0, 2, 5, 50]
level = [{{ name = "standard", mechanism = "auto", eps_inf = 20.0, eps_1 = 12.0 }}]
[[attribute]]
name = "both"
pair = ["mode", "zone"]
level = [{{ name = "standard", mechanism = "auto", eps_inf = 20.0, eps_1 = 12.0 }}]
[[attribute]]
name = "tickets"
values = ["single", "month", "year"]
choices = 2
level = [{{ name = "standard", mechanism = "auto", eps_inf = 20.0, eps_1 = 12.0 }}]
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, STEP_S)
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    made.survey_file.write_text(SURVEY.format(start=start, step_seconds=STEP_S))
    made.start()
    yield made
    made.kill()


def test_the_counts_of_a_pair_are_the_tally_and_the_table_is_its_estimate(served: Served, tmp_path: Path) -> None:
    """The process is killed once, and devices send what it did not acknowledge again, with the same keys."""
    survey, url = served.survey, f"http://127.0.0.1:{served.gateway}"
    devices = [Device(survey, tmp_path / f"{number}.device") for number in range(DEVICES)]
    senders = [Sender(device, url) for device in devices]
    accepted = step = 0
    for turn in range(ROUNDS):
        served.wait_until_ready()
        step = max(step + 1, survey.step_at(now_ms()))
        wait_until(lambda at=step: survey.step_at(now_ms()) >= at, served.said)  # type: ignore[misc]  # an untyped default
        for number, device in enumerate(devices):
            tickets = ["single", "year"][: number % 3]
            made = device.answer(
                {"mode": ("car", "bus", "walk")[number % 3], "zone": 1 + 3 * (number % 2), "tickets": tickets}, step
            )
            assert set(made) == {"mode", "zone", "both", "tickets"}
            if turn == 1 and number == DEVICES // 2:
                served.kill()
                served.start()
            accepted += senders[number].attempt().accepted
    served.wait_until_ready()
    accepted += sum(sender.attempt().accepted for sender in senders)
    assert all(device.waiting() == [] for device in devices)
    wait_until(lambda: (served.status()["latest_step"] or 0) >= step, served.said)
    found = json.loads(served.get(served.page, f"/api/v1/attributes/both/table?step={step}")[1])
    sets = json.loads(served.get(served.page, f"/api/v1/attributes/tickets/histogram?step={step}&estimator=mi")[1])
    assert served.stop() == 0
    with closing(DataFolder(served.data)) as folder:
        log = FolderLog(folder, survey, now_ms).read(0, 10**6)
        stored = FolderCountStore(folder, survey).tables(range(step + 1))
    first: dict[bytes, Record] = {}
    for record in map(Record, log.offsets, log.appended_ms, log.values, log.keys):
        if record.value and not tally(survey, [record]).rejected:
            first.setdefault(record.key, record)  # the envelopes of two devices may be equal, their keys are not
    counts = tally(survey, list(first.values())).counts
    assert {key: numbers_of(table) for key, table in stored.items()} == {key: numbers_of(t) for key, t in counts.items()}
    assert len(first) >= accepted > DEVICES
    of_window = [
        Counted(
            [
                (
                    m := survey.mechanisms[a][0],
                    sum((tables_of(survey, counts, a, s)[0] for s in range(step + 1)), m.empty_table()),
                )
            ],
            len({key.step for key in counts if key.attribute == a}),
        )
        for a in (2, 0, 1)
    ]
    m = survey.mechanisms[3][0]
    of_sets = sum((tables_of(survey, counts, 3, s)[0] for s in range(step + 1)), m.empty_table())
    np.testing.assert_allclose(sets["frequencies"], 2 * m.inversion(of_sets), rtol=1e-12, atol=1e-14)
    expected = pair_estimate(of_window, (3, 3), same_people=True)
    assert expected is not None
    np.testing.assert_allclose(found["cells"]["shares"], project(expected.shares.ravel()), rtol=1e-12, atol=1e-14)
    assert (found["reports"], found["rows"]["reports"]) == tuple(of.groups[0][1].n for of in of_window[:2])
    assert found["complete"]
