"""The trial of a survey on this machine: the service of `ldpstream serve`, and simulated devices that report to it."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread

from ldpstream.gateway.relay_keys import rotate
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.population import Population
from ldpstream.producers.produce import ENVELOPE_BYTES, produce_live
from ldpstream.producers.values import ValueSource
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.logs import start_log
from ldpstream.runtime.settings import Settings
from ldpstream.services.process import Part, serve
from ldpstream.services.rehearse import rehearse
from ldpstream.services.sinks import sink_of
from ldpstream.services.trial.ports import LOOPBACK, get, port_or_free
from ldpstream.services.trial.relay import TrialRelay
from ldpstream.surveys import Survey

PAGE_PORT: int = Settings.model_fields["page_port"].default
GATEWAY_PORT: int = Settings.model_fields["gateway_port"].default
LOOK_S = 0.5  # time between two looks at the service
SEED = 1  # of the simulated devices

Tell = Callable[[str], None]


def ports_of(settings: Settings) -> tuple[int, int]:
    """Returns the wanted ports of page and gateway."""
    return settings.page_port or PAGE_PORT, settings.gateway_port or GATEWAY_PORT


def chosen_port(server: str, port: int, tell: Tell) -> int:
    if (chosen := port_or_free(port)) != port:
        tell(f"Port {port} is taken: {server} uses port {chosen}.")
    return chosen


def tokens_file(folder: Path) -> str:
    """Writes a fresh token of a collector: simulated devices send their reports together."""
    path = folder / "tokens"
    path.touch(mode=0o600)
    path.write_text(f"collector {secrets.token_urlsafe(16)}\n")
    return str(path)


class Trial:
    """The service of `ldpstream try`, and its simulated devices.

    Args:
        survey_file: the survey; the trial runs a rehearsal of it.
        source: the values of the devices' people.
        relay: True to require a relay, and to run one.
    """

    def __init__(
        self,
        survey_file: Path,
        step_seconds: int,
        source: ValueSource,
        folder: Path,
        wanted: tuple[int, int],
        tell: Tell,
        relay: bool,
    ) -> None:
        self._survey_file, self._step_seconds, self._source = survey_file, step_seconds, source
        self._folder, self._wanted, self._tell, self._relay = folder, wanted, tell, relay
        self._stop, self._told = Event(), -1  # the latest step that the user was told of

    def run(self) -> None:
        """Runs the service until a signal, with the devices in a thread whose error ends it.

        Raises:
            UserError: if the service cannot start, or the devices cannot send.
        """
        page, gateway = (chosen_port(f"the {name}", port, self._tell) for name, port in zip(("page", "gateway"), self._wanted))
        keys, now = self._folder / "relay-keys.json", self._folder / "now.toml"
        survey = rehearse(self._survey_file, now, self._step_seconds, time.time(), self._relay)
        settings = Settings(
            page_port=page, gateway_port=gateway, metrics_port=0, gateway_tokens_file=tokens_file(self._folder),
            gateway_relay_keys_file=keys if self._relay else None, gateway_relays=LOOPBACK,
        )  # fmt: skip
        if self._relay:
            rotate(keys, datetime.now(UTC))
        devices = Part("devices", partial(self._report, survey, settings), self._stop)
        self._tell("The service starts …")
        start_log("error")
        try:
            serve([now], settings, self._folder / "data", devices.start)
        finally:
            self._stop.set()
        if devices.error is not None:
            raise devices.error

    def _report(self, survey: Survey, settings: Settings) -> None:
        gateway = settings.gateway_port
        with ExitStack() as stack:
            relay = stack.enter_context(relay_to(gateway, self._tell)) if self._relay else None
            pause = partial(self._pause, settings.page_port)
            way = sink_of(survey, settings, f"http://{LOOPBACK}:{gateway}", relay, pause, self._tell)
            sink = stack.enter_context(closing(way))
            self._tell(f"The live page: http://{LOOPBACK}:{settings.page_port}/")
            self._tell(f"Simulated devices report every {self._step_seconds} s. Ctrl-C ends everything.")
            population, size = Population(survey, self._source, SEED), 1 if self._relay else ENVELOPE_BYTES
            for _ in produce_live(survey, population, sink, now_ms, pause, self._say, size):
                pass
            if not self._stop.is_set():
                self._tell("The devices have sent all their steps. The page stays until Ctrl-C.")
            while not pause(LOOK_S):
                pass

    def _say(self, line: str) -> None:
        self._tell(f"The devices say: {line}")

    def _pause(self, page: int, seconds: float) -> bool:
        """Waits, and tells of new estimates. Returns True at the end of the trial."""
        end = time.monotonic() + seconds
        while True:
            status = json.loads(get(page, "/api/v1/status?span=step") or b'{"attributes": [], "latest_step": null}')
            step, reports = status["latest_step"], sum(one["reports"] for one in status["attributes"])
            if step is not None and step > self._told and reports:
                self._told = step
                self._tell(f"Step {step}: {plural(reports, 'report')} counted and published.")
            left_s = end - time.monotonic()
            if self._stop.wait(max(0.0, min(left_s, LOOK_S))) or left_s <= 0:
                return self._stop.is_set()


@contextmanager
def relay_to(gateway: int, tell: Tell) -> Iterator[str]:
    """Runs a relay for trials until the context ends, and yields its URL."""
    with TrialRelay(0, gateway) as relay:
        Thread(target=relay.serve_forever, daemon=True).start()
        url = f"http://{LOOPBACK}:{relay.server_port}/"
        tell(f"A relay for trials listens on {url} and protects nobody: docs/howto/relay.md names others.")
        try:
            yield url
        finally:
            relay.shutdown()
