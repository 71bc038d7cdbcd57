"""The trial of a survey on this machine: `ldpstream serve`, and simulated devices that report to it."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Never

from ldpstream.gateway.relay_keys import rotate
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.population import Population
from ldpstream.producers.produce import ENVELOPE_BYTES, produce_live
from ldpstream.producers.sinks import SinkError
from ldpstream.producers.values import ValueSource
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.rehearse import rehearse
from ldpstream.services.sinks import sink_of
from ldpstream.services.trial.child import Child, get
from ldpstream.services.trial.ports import LOOPBACK, port_or_free
from ldpstream.services.trial.relay import TrialRelay

PAGE_PORT: int = Settings.model_fields["page_port"].default
GATEWAY_PORT: int = Settings.model_fields["gateway_port"].default
LOOK_S = 0.5  # time between two looks at the service
SEED = 1  # of the simulated devices

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ports:
    page: int = PAGE_PORT
    gateway: int = GATEWAY_PORT

    @classmethod
    def of(cls, settings: Settings) -> "Ports":
        return cls(settings.page_port or PAGE_PORT, settings.gateway_port or GATEWAY_PORT)


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
        self, survey_file: Path, step_seconds: int, source: ValueSource, folder: Path, wanted: Ports, tell: Tell, relay: bool
    ) -> None:
        self._survey_file, self._step_seconds, self._source = survey_file, step_seconds, source
        self._folder, self._wanted, self._tell, self._relay = folder, wanted, tell, relay
        self._told = -1  # the latest step that the user was told of

    def run(self) -> Never:
        """Runs the pipeline until an exception, such as KeyboardInterrupt; then ends the service.

        Raises:
            TrialError: if the service does not start, or ends early.
        """
        page = chosen_port("the page", self._wanted.page, self._tell)
        gateway = chosen_port("the gateway", self._wanted.gateway, self._tell)
        now = self._folder / "now.toml"
        survey = rehearse(self._survey_file, now, self._step_seconds, time.time(), self._relay)
        files = {"GATEWAY_TOKENS_FILE": tokens_file(self._folder)}
        if self._relay:
            rotate(keys := self._folder / "relay-keys.json", datetime.now(UTC))
            files["GATEWAY_RELAY_KEYS_FILE"] = str(keys)
        ports = {"PAGE_PORT": str(page), "GATEWAY_PORT": str(gateway), "METRICS_PORT": "0", "GATEWAY_RELAYS": LOOPBACK}
        self._tell("The service starts …")
        with ExitStack() as stack:
            command = ["serve", str(now), "--data", str(self._folder / "data")]
            service = stack.enter_context(closing(Child(command, files | ports, self._folder)))
            service.wait_until(lambda: get(gateway, "/ready") is not None)
            relay = stack.enter_context(relay_to(gateway, self._tell)) if self._relay else None
            settings = Settings.model_validate({name.lower(): path for name, path in files.items()})
            pause = partial(self._pause, service, page)
            sink = stack.enter_context(
                closing(sink_of(survey, settings, f"http://{LOOPBACK}:{gateway}", relay, pause, self._tell))
            )
            self._tell(f"The live page: http://{LOOPBACK}:{page}/")
            self._tell(f"Simulated devices report every {self._step_seconds} s. Ctrl-C ends everything.")
            population, size = Population(survey, self._source, SEED), 1 if self._relay else ENVELOPE_BYTES
            try:
                for _ in produce_live(survey, population, sink, now_ms, pause, self._say, size):
                    pass
            except SinkError:
                service.check()  # tells why
                raise
            self._tell("The devices have sent all their steps. The page stays until Ctrl-C.")
            while True:
                pause(LOOK_S)

    def _say(self, line: str) -> None:
        self._tell(f"The devices say: {line}")

    def _pause(self, service: Child, page: int, seconds: float) -> bool:
        """Waits, and tells of new estimates. Returns False: the devices go on."""
        end = time.monotonic() + seconds
        while True:
            service.check()
            status = json.loads(get(page, "/api/v1/status?span=step") or b'{"attributes": [], "latest_step": null}')
            step, reports = status["latest_step"], sum(one["reports"] for one in status["attributes"])
            if step is not None and step > self._told and reports:
                self._told = step
                self._tell(f"Step {step}: {plural(reports, 'report')} counted and published.")
            if (left_s := end - time.monotonic()) <= 0:
                return False
            time.sleep(min(left_s, LOOK_S))


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
