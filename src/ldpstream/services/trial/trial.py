"""The trial of a survey on this machine: `ldpstream serve`, and simulated devices that report to it."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Never

from ldpstream.gateway.relay_keys import rotate
from ldpstream.mechanisms.wording import plural
from ldpstream.runtime.settings import Settings
from ldpstream.services.rehearse import rehearse
from ldpstream.services.trial.child import Child, get
from ldpstream.services.trial.ports import LOOPBACK, free_port, is_free, port_or_free

PAGE_PORT: int = Settings.model_fields["page_port"].default
GATEWAY_PORT: int = Settings.model_fields["gateway_port"].default
LOOK_S = 0.5  # time between two looks at the processes

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
    """The processes of `ldpstream try`.

    Args:
        survey_file: the survey; the trial runs a rehearsal of it.
        devices: options of `ldpstream produce`.
        relay: True to require a relay, and to run one.
    """

    def __init__(
        self, survey_file: Path, step_seconds: int, devices: Sequence[str], folder: Path, wanted: Ports, tell: Tell,
        relay: bool = False,
    ) -> None:  # fmt: skip
        self._source, self._step_seconds, self._devices = survey_file, step_seconds, list(devices)
        self._folder, self._wanted, self._tell, self._relay = folder, wanted, tell, relay

    def run(self) -> Never:
        """Runs the pipeline until an exception, such as KeyboardInterrupt; then ends every process.

        Raises:
            TrialError: if a process does not start, or ends early.
        """
        with ExitStack() as stack:
            page = chosen_port("the page", self._wanted.page, self._tell)
            gateway = chosen_port("the gateway", self._wanted.gateway, self._tell)
            now = self._folder / "now.toml"
            rehearse(self._source, now, self._step_seconds, time.time(), self._relay)
            settings = {"PAGE_PORT": str(page), "GATEWAY_PORT": str(gateway), "GATEWAY_TOKENS_FILE": tokens_file(self._folder)}
            if self._relay:
                rotate(keys := self._folder / "relay-keys.json", datetime.now(UTC))
                settings |= {"GATEWAY_RELAY_KEYS_FILE": str(keys), "GATEWAY_RELAYS": LOOPBACK}

            def child(name: str, *arguments: str, metrics_port: int = 0) -> Child:
                made = Child(name, arguments, settings | {"METRICS_PORT": str(metrics_port)}, self._folder)
                stack.callback(made.close)
                return made

            self._tell("The service starts …")
            metrics, data = free_port(), str(self._folder / "data")
            service = child("serve", "ldpstream", "serve", str(now), "--data", data, metrics_port=metrics)
            children = [service]
            service.wait_until(lambda: get(metrics, "/ready") is not None)
            way = ["--gateway", f"http://{LOOPBACK}:{gateway}"]
            if self._relay:
                port = free_port()
                relay = child("relay", "ldpstream.services.trial.relay", str(port), str(gateway))
                relay.wait_until(lambda: not is_free(port))
                children.append(relay)
                url = f"http://{LOOPBACK}:{port}/"
                way += ["--relay", url]
                self._tell(f"A relay for trials listens on {url} and protects nobody: docs/howto/relay.md names others.")
            devices = child("produce", "ldpstream", "produce", str(now), *self._devices, *way)
            self._tell(f"The live page: http://{LOOPBACK}:{page}/")
            self._tell(f"Simulated devices report every {self._step_seconds} s. Ctrl-C ends everything.")
            self._watch(page, children, devices)

    def _watch(self, page: int, children: Sequence[Child], devices: Child) -> Never:
        told, heard, reporting = -1, 0, True
        while True:
            for running in children:
                running.check()
            ended = devices.finished()
            for line in devices.said()[heard:]:
                heard += 1
                self._tell(f"The devices say: {line}")
            if reporting and ended:
                reporting = False
                self._tell("The devices have sent all their steps. The page stays until Ctrl-C.")
            status = json.loads(get(page, "/api/v1/status?span=step") or b'{"attributes": [], "latest_step": null}')
            step, reports = status["latest_step"], sum(one["reports"] for one in status["attributes"])
            if step is not None and step > told and reports:
                told = step
                self._tell(f"Step {step}: {plural(reports, 'report')} counted and published.")
            time.sleep(LOOK_S)
