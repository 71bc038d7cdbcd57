"""The end of a survey on its way to the log: devices, simulated devices and the gateway stop after the last step."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from devices.conformance.calls import Call
from devices.conformance.rules import check_rules
from ldpstream.device import Device
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_live
from ldpstream.producers.sinks import MemorySink
from ldpstream.producers.values import MarkovValues
from ldpstream.services.demo import Demo
from ldpstream.surveys import SurveyError, check_envelope
from tests.producers.samples import one_question

N_STEPS = 3
ENDLESS = one_question("L-GRR")
SURVEY = replace(ENDLESS, ends=N_STEPS)


def test_simulated_devices_stop_after_the_last_step() -> None:
    sent: list[bytes] = []
    now_ms = SURVEY.start_ms

    def sleep(seconds: float) -> bool:
        nonlocal now_ms
        now_ms += round(1000 * seconds)
        return False

    population = Population(SURVEY, MarkovValues(SURVEY, 50, 6, 1), 1)
    done = produce_live(SURVEY, population, MemorySink(sent.append), lambda: now_ms, sleep, print)
    assert [step for step, _ in done] == list(range(N_STEPS))
    for step, raw in enumerate(sent):
        assert check_envelope(SURVEY, raw, SURVEY.opens_ms(step)).step == step
    now_ms = SURVEY.opens_ms(N_STEPS)
    with pytest.raises(SurveyError, match="sample has ended: the present step is 3, the last step was 2"):
        next(produce_live(SURVEY, population, MemorySink(sent.append), lambda: now_ms, sleep, print))


def test_a_demo_stops_after_the_last_step() -> None:
    demo = Demo(SURVEY, MarkovValues(SURVEY, 50, 6, 1), 1)
    demo.run(lambda step, made: None)
    assert {p.step for p in demo.service.results.history()} == set(range(N_STEPS))
    assert not demo.service.rejected()


def test_the_conformance_check_knows_the_end(tmp_path: Path) -> None:
    """Silence after the end is not a fault, and a report after the end is one. Without an end, silence is the fault."""
    device = Device(SURVEY, tmp_path / "device", consent="simulated")
    silent = [_call(device, step) for step in range(N_STEPS + 2)]
    assert check_rules(SURVEY, silent).faults == []
    assert check_rules(
        ENDLESS, [_call(Device(ENDLESS, tmp_path / "endless", consent="simulated"), 0), *silent[N_STEPS:]]
    ).faults
    late = Device(replace(SURVEY, ends=N_STEPS + 1), tmp_path / "late", consent="simulated")
    faults = check_rules(SURVEY, [_call(late, N_STEPS)]).faults
    assert any("wrong survey" in str(fault) for fault in faults)  # another end is another survey


def _call(device: Device, step: int) -> Call:
    envelope = device.report("zone", 1, step)
    key = next((report.key for report in device.waiting() if report.envelope == envelope), None)
    return Call("call", "device", 0, 1, step, envelope, key)
