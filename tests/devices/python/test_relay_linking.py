"""An attempt to link the reports of one device behind a relay, from the bytes and times on both sides of the relay.

Two devices with the same value report at every step. They differ in three facts that must stay hidden: the size of a report,
the time at which the app runs, and the app's version. The linker gets the two requests of a step and the two requests of the
next step, and guesses which belong together, by one feature at a time. With an honest sender, each guess is right with
probability 1/2. Each control breaks one rule, and the linker must find exactly this rule.

The linker sees the requests on both sides of the relay, and the decrypted requests without report and key. The first promise
bounds what a report reveals, and a report shows its level in clear.
"""

import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyhpke import KEMKeyPair
from scipy.stats import binomtest

from ldpstream.device import Device, Relay, Sender, routes
from ldpstream.device.relay import capsules
from ldpstream.device.relay.binary_http import BinaryRequest, decode_request
from ldpstream.device.relay.capsules import HEAD, KEY_BYTES, load_key, open_request
from tests.producers.relay_rig import RelaySite, Seen, keys_of, relay_site, relay_survey

STEPS = 60  # 30 pairs
ALARM = 1e-6  # probability that one feature of an honest sender is taken for a link
SURVEY = relay_survey("GRR", "L-OSUE")
LEVELS = ("GRR", "L-OSUE")  # reports of 1 and of 13 bytes
RUNS_AT = (0.1, 0.7)  # when each device's app runs, as a share of the step


class Request(NamedTuple):
    """The facts about one request that an observer of both sides has, and the truth."""

    device: int
    step: int
    seen: Seen
    inside: BinaryRequest
    message: bytes


Feature = Callable[[Request, Request], float]


def differs(of: Callable[[Request], Any]) -> Feature:
    return lambda left, right: of(left) != of(right)


def common_bytes(left: Request, right: Request) -> float:
    """0 if the encrypted bodies have 8 bytes in common, anywhere after the head."""
    pieces = [{body[at : at + 8] for at in range(HEAD.size, len(body) - 7)} for body in (left.seen.body, right.seen.body)]
    return float(pieces[0].isdisjoint(pieces[1]))


def offset_ms(request: Request) -> int:
    return (request.seen.at_ms - SURVEY.start_ms) % SURVEY.step_ms


FEATURES: dict[str, Feature] = {
    "size": differs(lambda request: len(request.seen.body)),
    "size inside": differs(lambda request: len(request.message)),
    "size of the answer": differs(lambda request: len(request.seen.answer[1])),
    "headers": differs(lambda request: request.seen.lines),
    "head of the capsule": differs(lambda request: request.seen.body[: HEAD.size]),
    "key": differs(lambda request: request.seen.body[HEAD.size :][:KEY_BYTES]),
    "bytes": common_bytes,
    "connection": differs(lambda request: request.seen.port),
    "time": lambda left, right: abs(offset_ms(left) - offset_ms(right)),
    "headers inside": differs(
        lambda request: (request.inside[:4], [pair for pair in request.inside.headers if pair[0] != b"idempotency-key"])
    ),
}


def linked(requests: Iterable[Request], rng: random.Random) -> set[str]:
    """Returns the features by which the linker finds more, or fewer, pairs than by chance."""
    by_step: dict[int, list[Request]] = {}
    for request in requests:
        by_step.setdefault(request.step, []).append(request)
    pairs = [(by_step[step], by_step[step + 1]) for step in sorted(by_step)[::2]]
    found = set()
    for name, distance in FEATURES.items():
        right = 0
        for (a, b), (c, d) in pairs:
            straight, crossed = distance(a, c) + distance(b, d), distance(a, d) + distance(b, c)
            guess = straight < crossed if straight != crossed else rng.random() < 0.5
            right += guess == (a.device == c.device)
        if binomtest(right, len(pairs)).pvalue < ALARM:
            found.add(name)
    return found


def lives(site: RelaySite, folder: Path, now: Callable[[int], None] = lambda _: None) -> list[Request]:
    """Two devices report at every step, and send until nothing waits. `now` is called with the device that acts."""
    devices = [Device(SURVEY, folder / f"{i}.device", {"zone": LEVELS[i]}, consent="simulated") for i in range(2)]
    senders = [Sender(device, site.relay.device_side()) for device in devices]
    acts = list[tuple[float, int, int]]()  # time, device, and the step to report or -1 to send
    for step in range(5, 5 + STEPS):
        for i, share in enumerate(RUNS_AT):
            heappush(acts, (SURVEY.opens_ms(step) + share * SURVEY.step_ms, i, step))
    truth, asleep = dict[str, tuple[int, int]](), [True, True]
    while acts:
        at, i, step = heappop(acts)
        now(i)
        site.clock.now_ms = max(site.clock.now_ms, int(at) + (at > int(at)))
        if step >= 0:
            devices[i].report("zone", 7, step)
            truth |= {report.key: (i, report.step) for report in devices[i].waiting()}
        outcome = senders[i].attempt()
        if step < 0:
            asleep[i] = True
        if outcome.waiting and asleep[i]:
            heappush(acts, (site.clock() + 1000 * outcome.retry_after_s, i, -1))
            asleep[i] = False
    return [told(seen, truth) for seen in site.relay.seen]


def told(seen: Seen, truth: dict[str, tuple[int, int]]) -> Request:
    """Opens a request, as only the gateway can."""
    message = open_request(keys_of(0).private, seen.body).message
    inside = decode_request(message)
    key = dict(inside.headers)[b"idempotency-key"].decode()
    return Request(*truth[key], seen, inside, message)


# ---- senders that each break one rule; `acting` is the device that sends


def keeps_its_key(patch: pytest.MonkeyPatch, acting: list[int]) -> None:
    def seal(self: Relay, message: bytes) -> Any:
        private = load_key(bytes(range(100 + acting[0], 132 + acting[0])))
        pair = KEMKeyPair(private, capsules.SUITES[1].kem.deserialize_public_key(capsules.public_key(private)))
        return capsules.seal_request(self._config, message, pair=pair)

    patch.setattr(Relay, "seal", seal)


def sends_at_once(patch: pytest.MonkeyPatch, acting: list[int]) -> None:
    patch.setattr(Device, "_moment", lambda self, step: 0)


def adds_no_padding(patch: pytest.MonkeyPatch, acting: list[int]) -> None:
    patch.setattr(routes, "largest_envelope", lambda survey: 0)


def names_its_version_inside(patch: pytest.MonkeyPatch, acting: list[int]) -> None:
    honest = routes._headers
    patch.setattr(routes, "_headers", lambda key, token: honest(key, token) | {"X-Version": f"1.{acting[0]}"})


CONTROLS: dict[Callable[[pytest.MonkeyPatch, list[int]], None], set[str]] = {
    keeps_its_key: {"key", "bytes"},
    sends_at_once: {"time"},
    adds_no_padding: {"size", "size inside", "headers"},  # Content-Length is a header
    names_its_version_inside: {"headers inside"},
}


def attempt_to_link(
    folder: Path, patch: pytest.MonkeyPatch, control: Callable[[pytest.MonkeyPatch, list[int]], None] | None = None
) -> set[str]:
    acting = [0]
    if control is not None:
        control(patch, acting)
    with relay_site(SURVEY, patch) as site:
        requests = lives(site, folder, lambda i: acting.__setitem__(0, i))
        assert len(requests) == len(site.gateway.rig.log.counted()) == 2 * STEPS
    return linked(requests, random.Random(7))


def test_two_reports_of_a_device_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The false-alarm rate is at most 1e-5, for ten features."""
    assert attempt_to_link(tmp_path, monkeypatch) == set()


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.__name__)
def test_the_linker_finds_a_sender_that_breaks_a_rule(
    control: Callable[[pytest.MonkeyPatch, list[int]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt_to_link(tmp_path, monkeypatch, control) == CONTROLS[control]
