"""The sender behind a relay: reports leave alone, in requests of one size, and never directly; no fault loses a report."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import chisquare

from devices.vectors.vectors import Recorded
from ldpstream.device import Attempt, Device, Relay, RelayRequired, Sender, routes
from ldpstream.device.relay.capsules import OVERHEAD_BYTES, KeyConfig, encode_configs
from ldpstream.device.reports import Waiting
from ldpstream.device.routes import STALE_KEY, STALE_KEY_TYPE
from ldpstream.gateway.http.problems import STATUS
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import largest_envelope
from tests.gateway.gateway_rig import TOKEN
from tests.producers.relay_rig import GATEWAY, RelaySite, config_of, keys_of, relay_site, relay_survey
from tests.small_survey import small_survey

from .test_device import rows

SURVEY = relay_survey()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[RelaySite]:
    with relay_site(SURVEY, monkeypatch) as found:
        yield found


def device_with_reports(folder: Path, *steps: int, survey: Survey = SURVEY) -> Device:
    device = Device(survey, folder / "one.device", consent="simulated")
    for step in steps:
        device.report("zone", 1, step)
    return device


def moment(device: Device) -> int:
    (report,) = device.waiting()
    return report.due_ms


def test_the_file_keeps_no_moment_of_a_dropped_report(tmp_path: Path) -> None:
    level = [{"name": "once", "mechanism": "GRR", "eps": 1.0}]
    asked = ({"name": name, "size": 5, "level": level} for name in ("x", "y"))
    device = Device(
        small_survey(*asked, collection="spl", lateness_steps=2, relay="required"), tmp_path / "file", consent="simulated"
    )
    for step in range(40):
        device.answer({"x": 0, "y": 1}, step)
    device.withdraw_consent("y")
    kept = rows(tmp_path / "file", "SELECT attribute, step FROM sent WHERE due_ms > 0")
    assert kept == [(0, report.step) for report in device.waiting()]
    assert 0 < len(kept) < 40


def test_a_report_leaves_at_its_moment_and_counts_once(site: RelaySite, tmp_path: Path) -> None:
    device = device_with_reports(tmp_path, 5)
    for relayed in (site.relay.device_side(), site.relay.device_side()):
        sender = Sender(device, relayed)  # also after a restart of the process
        due = moment(device)
        assert sender.attempt() == Attempt(0, 0, 1, (due - site.clock()) / 1000, ())
    site.clock.now_ms = due - 1
    assert sender.attempt()[:3] == (0, 0, 1)
    assert not site.relay.seen
    site.clock.now_ms = due
    assert sender.attempt() == Attempt(1, 0, 0, 0, ())
    assert device.waiting() == []
    assert len(site.gateway.rig.log.counted()) == len(site.relay.seen) == 1


def cells(device: Device, steps: range) -> list[int]:
    """For each report, the twentieth of the step in which its moment of sending lies. The reports are not sent."""
    found = list[int]()
    for step in steps:
        device.report("zone", 1, step)
        report = next(report for report in device.waiting() if report.step == step)
        offset_ms = report.due_ms - SURVEY.opens_ms(step + 1)
        assert 0 <= offset_ms < SURVEY.step_ms
        found.append(20 * offset_ms // SURVEY.step_ms)
        device.settle(report)
    return found


class Seeded(Device):
    _random = Recorded("the moments of reports")


class Early(Seeded):
    """The control: no report leaves in the last tenth of a step."""

    def _moment(self, step: int) -> int:
        opens = SURVEY.opens_ms(step + 1)
        return opens + (super()._moment(step) - opens) * 9 // 10


def test_the_moment_is_uniform_over_the_step_after_the_report(tmp_path: Path) -> None:
    """The false-alarm rate is 1e-6. The control is a device that sends no report in the last tenth of a step."""
    for kind, expected in ((Seeded, True), (Early, False)):
        found = np.bincount(cells(kind(SURVEY, tmp_path / kind.__name__, consent="simulated"), range(800)), minlength=20)
        assert (chisquare(found).pvalue > 1e-6) == expected


def test_the_moment_outlives_a_restart(tmp_path: Path) -> None:
    device, again = device_with_reports(tmp_path, 5), Device(SURVEY, tmp_path / "one.device", consent="simulated")
    step = SURVEY.step_at(2**41)
    device.report("zone", 1, step)
    assert device.waiting() == again.waiting()
    due = {report.step: report.due_ms for report in again.waiting()}
    assert SURVEY.step_at(due[step]) == step + 1
    again.forget(confirm="relayed")
    assert Device(SURVEY, tmp_path / "one.device", consent="simulated").waiting() == []


def test_a_survey_without_a_relay_has_no_moment(tmp_path: Path) -> None:
    plain = Device(plain_survey(), tmp_path / "plain.device", consent="simulated")
    plain.report("zone", 1, 5)
    assert moment(plain) == 0


def plain_survey() -> Survey:
    """The same survey without a relay."""
    return msgspec.structs.replace(SURVEY, relay=None)


# ---- never directly


def test_a_sender_without_the_relay_is_refused(site: RelaySite, tmp_path: Path) -> None:
    device = device_with_reports(tmp_path, 5)
    for url in (site.gateway.url, site.relay.url):
        with pytest.raises(RelayRequired, match="survey relayed requires a relay"):
            Sender(device, url)
    plain = Device(plain_survey(), tmp_path / "plain.device", consent="simulated")
    with pytest.raises(ValueError, match='set relay = "required" in the survey'):
        Sender(plain, site.relay.device_side())


FAULTS = [*sorted({*STATUS.values(), 202, 204, 301, 302, 307, 403, 407, 502} - {200}), 200]


@pytest.mark.parametrize("status", FAULTS)
def test_an_answer_of_the_relay_itself_settles_nothing(status: int, site: RelaySite, tmp_path: Path) -> None:
    """Neither 202 nor 422 is final, nor is a 200 without the gateway's encrypted answer. The sender follows no redirect."""
    device = device_with_reports(tmp_path, 5)
    sender = Sender(device, site.relay.device_side())
    site.clock.now_ms = moment(device)
    site.relay.status, site.relay.told = status, {"Location": site.gateway.url + "/v1/reports"}
    outcome = sender.attempt()
    expected = ((0,), ("an answer that is not the gateway's",)) if status == 200 else ((status,), ())
    assert (outcome[:3], outcome.statuses, outcome.no_answer) == ((0, 0, 1), *expected)
    site.relay.status, site.relay.told = 0, {}
    sender.run(site.clock.pause)
    assert device.waiting() == []
    assert len(site.relay.seen) == 2
    assert len(site.gateway.rig.log.counted()) == 1


@pytest.mark.parametrize("told", ["no report of this device", "another report of this device"])
def test_an_old_answer_of_the_gateway_settles_nothing(told: str, site: RelaySite, tmp_path: Path) -> None:
    """The relay sends an empty or a recorded answer. A recorded answer can be decrypted only with the key of its own
    request."""
    device = device_with_reports(tmp_path, 5, 6)
    sender = Sender(device, site.relay.device_side())
    while not site.relay.seen:
        site.clock.pause(sender.attempt().retry_after_s)
    site.relay.status, site.relay.body = 200, b"" if told.startswith("no") else site.relay.seen[0].answer[1]
    while len(site.relay.seen) < 2:
        outcome = sender.attempt()
        site.clock.pause(outcome.retry_after_s)
    assert (outcome.accepted, outcome.waiting) == (0, 1)


# ---- faults


def test_reports_that_are_overdue_do_not_leave_together(site: RelaySite, tmp_path: Path) -> None:
    """A process that starts late sends one report; every other report gets a new random moment."""
    device = device_with_reports(tmp_path, 5, 6)
    site.clock.now_ms = SURVEY.opens_ms(8) - 600_000  # step 5 closes in 10 minutes, step 6 in 70
    waits = set[float]()
    for turn in range(40):
        outcome = Sender(device, site.relay.device_side()).attempt()
        assert len(site.relay.seen) <= 1
        assert outcome.waiting == 1
        waits.add(outcome.retry_after_s)
        if turn == 0:
            assert outcome.accepted == 1
        device = Device(SURVEY, tmp_path / f"{turn}.device", consent="simulated")
        device.report("zone", 1, 5)
        device.report("zone", 1, 6)
        site.relay.seen.clear()
    assert len(waits) == 40
    assert max(waits) < 0.5 * 70 * 60
    sender = Sender(device, site.relay.device_side())
    for _ in range(100):  # an application that does not wait
        sender.attempt()
    assert len(site.relay.seen) == 1


def test_a_report_that_became_due_during_an_attempt_gets_a_new_moment(
    site: RelaySite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who holds an answer until the next report is due must not see this report leave at once.

    The control: a report whose moment has not come keeps it.
    """
    device = device_with_reports(tmp_path, 5, 6, 7)
    first, second, third = sorted(report.due_ms for report in device.waiting())
    site.clock.now_ms = first
    sender, post = Sender(device, site.relay.device_side()), routes.ThroughRelay.post

    def slow(way: routes.ThroughRelay, report: Waiting) -> routes.Answer:
        answer = post(way, report)
        site.clock.now_ms = second + 1
        device.report("zone", 1, 4)  # a report that is due as soon as it is made
        return answer

    monkeypatch.setattr(routes.ThroughRelay, "post", slow)
    outcome = sender.attempt()
    moments = sorted(sender._moment(report) for report in device.waiting())
    assert (outcome.accepted, outcome.waiting, len(moments)) == (1, 3, 3)
    assert moments[0] > second + 1
    assert third in moments
    assert sender.attempt().accepted == 0


def test_a_stale_key_waits_for_the_new_one(site: RelaySite, tmp_path: Path) -> None:
    """One rotation loses nothing; after two, the report waits until the application has a new key."""
    device = device_with_reports(tmp_path, 5, 6)
    old = Sender(device, site.relay.device_side(0))
    site.gateway.rig.intake.relay_keys = keys_of(1, 0)
    while (outcome := old.attempt()).accepted == 0:
        site.clock.pause(outcome.retry_after_s)
    site.gateway.rig.intake.relay_keys = keys_of(2, 1)
    site.clock.now_ms = moment(device)
    outcome = old.attempt()
    assert (outcome[:3], outcome.statuses, outcome.no_answer) == ((0, 0, 1), (400,), (STALE_KEY,))
    Sender(device, site.relay.device_side(2)).run(site.clock.pause)
    counted = site.gateway.rig.log
    assert len(counted.counted()) == 2
    assert STALE_KEY_TYPE.encode() in site.relay.seen[1].answer[1]


def test_a_relay_that_repeats_makes_no_report_count_twice(site: RelaySite, tmp_path: Path) -> None:
    site.relay.times = 3
    Sender(device_with_reports(tmp_path, 5, 6), site.relay.device_side()).run(site.clock.pause)
    log = site.gateway.rig.log
    assert (len(log.appended), len(log.counted())) == (6, 2)


def test_the_answers_inside_are_those_of_a_plain_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with relay_site(SURVEY, monkeypatch, tokens=[TOKEN]) as site:
        device = device_with_reports(tmp_path, 5)
        site.clock.now_ms = due = moment(device)
        assert Sender(device, site.relay.device_side(), "wrong").attempt().statuses == (401,)
        site.clock.now_ms = SURVEY.opens_ms(5) - SURVEY.skew_ms - 7000  # the gateway's clock is behind
        monkeypatch.setattr("ldpstream.device.sender._now_ms", lambda: due)
        outcome = Sender(device, site.relay.device_side(), TOKEN).attempt()
        assert outcome.statuses == (409,)
        assert outcome.retry_after_s >= 8
        site.clock.now_ms = SURVEY.closes_ms(5) + 60_000
        assert Sender(device, site.relay.device_side(), TOKEN).attempt() == Attempt(0, 1, 0, 0, (422,))
        assert device.waiting() == []


# ---- the size


def test_all_requests_of_a_survey_have_the_size_of_its_largest_report() -> None:
    survey = relay_survey("GRR", "OUE", "L-OSUE")
    relay = Relay("https://relay.example/x", gateway=f"https://{GATEWAY}", keys=config_of(0))
    for token in (None, TOKEN):
        sizes = set[int]()
        for n in range(largest_envelope(survey) + 1):
            message = relay.message(survey, bytes(n), "k" * 22, token)
            capsule, _ = relay.seal(message)
            sizes.add(len(capsule) - OVERHEAD_BYTES)
            sizes.add(len(message))
        assert len(sizes) == 1
    assert largest_envelope(survey) == 39
    assert largest_envelope(relay_survey()) == 27


@pytest.mark.parametrize("cohorts", [None, 64])
def test_no_envelope_is_larger_than_the_largest(cohorts: int | None, tmp_path: Path) -> None:
    cohort = None if cohorts is None else {"name": "v", "values": [f"{i}" for i in range(cohorts)], "least": 1}
    level = {"name": "x", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0}
    keys = {} if cohort is None else {"cohort": cohort}
    survey = small_survey({"name": "a", "size": 1000, "level": [level]}, relay="required", lateness_steps=2, **keys)
    device = Device(survey, tmp_path / "one", cohort=None if cohort is None else "63", consent="simulated")
    sizes = [len(device.report("a", 1, step) or b"") for step in (0, 127, 128, 65_535, 65_536, 2**32, 2**62)]
    assert max(sizes) == largest_envelope(survey)


# ---- the arguments


@pytest.mark.parametrize("url", ["relay.example", "ftp://relay.example", "https://a.example/?x=1", "http://me:secret@a"])
def test_a_malformed_relay_is_refused(url: str) -> None:
    good = {"url": "https://relay.example/x", "gateway": "https://gateway.example", "keys": config_of(0)}
    for name, words in (("url", "a relay's URL must be"), ("gateway", "a gateway's URL must be")):
        with pytest.raises(ValueError, match=words) as caught:
            Relay(**good | {name: url})
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="no path behind a relay"):
        Relay(**good | {"gateway": "https://gateway.example/path"})
    low_order = b64encode(encode_configs([KeyConfig(0, bytes(32))])).decode()
    for keys in ("", "AAAA", "?", config_of(0)[:-4], config_of(0)[4:], "é", low_order):
        with pytest.raises(ValueError, match="keys must be a key configuration in base64"):
            Relay(**good | {"keys": keys})


def test_a_report_is_named_by_no_relay_header(site: RelaySite, tmp_path: Path) -> None:
    """The headers of a request through a relay, as they are."""
    Sender(device_with_reports(tmp_path, 5), site.relay.device_side()).run(site.clock.pause)
    (seen,) = site.relay.seen
    host = site.relay.url.split("/")[2]
    assert seen.lines == (
        "POST /to/gateway HTTP/1.1", "Accept-Encoding: identity", f"Content-Length: {len(seen.body)}", f"Host: {host}",
        "User-Agent: ldpstream", "Content-Type: message/ohttp-req", "Connection: close",
    )  # fmt: skip


def test_nothing_leaves_but_to_the_relay(site: RelaySite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the relay is unreachable, the sender connects to no other address."""
    device, asked = device_with_reports(tmp_path, 5, 6), list[str]()
    opened = routes._opener().open

    def opens(request: Any, timeout: float) -> object:
        asked.append(request.full_url)
        return opened(request, timeout=timeout)

    monkeypatch.setattr(routes._opener(), "open", opens)
    url = site.relay.url
    sender = Sender(device, site.relay.device_side())
    site.relay.close()
    for _ in range(20):
        outcome = sender.attempt()
        site.clock.pause(outcome.retry_after_s)
    assert set(asked) == {url}
    assert outcome.waiting == 2
