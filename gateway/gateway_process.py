"""The gateway process: sockets, signals, shutdown.

On SIGTERM or SIGINT the gateway refuses new requests, answers those in progress and exits.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from threading import Event

import structlog
import uvicorn
import uvloop

from ldpstream.gateway.credentials import check_certificate, read_relay_keys, read_tokens
from ldpstream.gateway.http.app import GatewayApp
from ldpstream.gateway.http.protocol import gateway_protocol
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.served_surveys import Logs, ServedSurveys
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.runtime.clock import SteadyClock
from ldpstream.runtime.descriptors import shares
from ldpstream.runtime.errors import Stopped, wait_for
from ldpstream.runtime.monitoring import serve_monitoring
from ldpstream.runtime.process import TOLD_TO_END
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.runtime.web import bound_socket
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import Unreachable
from ldpstream.surveys.life.keeper import NotCounted
from ldpstream.surveys.life.watch import SurveyWatch

log = structlog.get_logger("ldpstream.gateway")

GRACEFUL_S = 5  # time limit at shutdown for requests in progress; the intake answers them before this limit


def serve(
    watch: SurveyWatch,
    settings: Settings,
    check: Callable[[Survey], None],
    logs: Callable[[], Logs],
    clock: SteadyClock | None = None,
    bound: Callable[[], None] = lambda: None,
    works: Callable[[], bool] = lambda: True,
    counted: Callable[[Survey], None] | None = None,
) -> None:
    """Runs the gateway until SIGTERM or SIGINT. Accepts connections once a survey's log can be used.

    Args:
        check: checks a survey's log; raises `Unreachable` while Kafka is unreachable, and `NotCounted` while agents count
            another survey of this name.
        clock: the clock that `logs` also uses; by default a new one.
        bound: called once the addresses are bound and SIGTERM ends the gateway in an orderly way.
        works: returns False while the rest of the process cannot do its work; `/ready` is then 503.
        counted: checks again, while the gateway runs, that agents count a survey; raises `NotCounted`.

    Raises:
        SettingsError: if tokens, certificate or relay keys cannot be used, relay keys are missing for a survey, or an address
            cannot be bound.
        UserError: if no survey's log can be used at the start.
    """
    tokens, collectors = read_tokens(settings)
    relay_keys = read_relay_keys(settings)
    check_certificate(settings)
    behind = [text.survey.name for text in watch.surveys.values() if text.survey.relay is not None]
    if behind and relay_keys is None:
        what = "takes reports only through a relay; `ldpstream relay-key FILE` makes the file of keys"
        raise SettingsError(f"LDPSTREAM_GATEWAY_RELAY_KEYS_FILE must be set: survey {behind[0]} {what}")
    surveys, open_logs = GatewaySurveys(), logs()
    served = ServedSurveys(watch, surveys, open_logs, check, counted)
    intake = Intake(
        surveys, tokens, settings.gateway_rate, now_ms=clock or SteadyClock(watch.listed),
        collectors=collectors, relays=settings.gateway_relays,
    )  # fmt: skip
    intake.relay_keys, intake.works = relay_keys, works
    if settings.metrics_port:
        serve_monitoring(settings.metrics_host, settings.metrics_port, intake.unready)
    with bound_socket("GATEWAY", settings.gateway_host, settings.gateway_port) as front:
        config = _configured(settings, intake)

        async def main() -> None:
            server = _GatewayServer(config)
            loop, told_to_stop = asyncio.get_running_loop(), Event()
            tasks: list[asyncio.Task[None]] = []

            def end(number: signal.Signals) -> None:
                log.info(TOLD_TO_END, signal=number.name)
                server.should_exit = True
                told_to_stop.set()
                intake.stop()
                if tasks:
                    tasks[0].cancel()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, end, number)
            try:
                bound()
                with suppress(Stopped, asyncio.CancelledError):
                    usable = await asyncio.to_thread(
                        wait_for, f"Kafka at {settings.kafka}", served.checks.check_all, told_to_stop.wait, log.warning,
                        lambda error: isinstance(error, Unreachable | NotCounted),
                    )  # fmt: skip
                    served.begin(usable)
                    tasks.append(asyncio.create_task(open_logs.start()))
                    await tasks[0]
                    tasks += [asyncio.create_task(served.follow()), asyncio.create_task(intake.tidy())]
                    _tell(surveys, tokens, front.getsockname())
                    await server.serve([front])
            finally:
                told_to_stop.set()  # otherwise the thread of `wait_for` may wait for ever, and the loop for the thread
                for task in tasks:
                    task.cancel()
                await open_logs.close()
            log.info("ended")

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())


def _configured(settings: Settings, intake: Intake) -> uvicorn.Config:
    # behind a proxy all connections have the proxy's address; the proxy must limit its clients
    connections = None if settings.gateway_proxies else settings.gateway_connections
    most = shares().gateway
    app = GatewayApp(intake, settings.gateway_origins.split(",") if settings.gateway_origins else [])
    protocol = gateway_protocol(app, settings.gateway_proxies, connections, most, settings.gateway_relays)
    config = uvicorn.Config(
        app.begin, http=protocol, interface="asgi3", ws="none", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, lifespan="off", timeout_graceful_shutdown=GRACEFUL_S, backlog=most,
        ssl_certfile=settings.gateway_tls_cert, ssl_keyfile=settings.gateway_tls_key,
    )  # fmt: skip
    config.load()  # makes the context of TLS
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # otherwise uvicorn logs a warning for all non-HTTP input
    return config


def _tell(surveys: GatewaySurveys, tokens: list[str], address: tuple[str, int]) -> None:
    log.info("serving", surveys=len(surveys.by_fingerprint), host=address[0], port=address[1], tokens=len(tokens))
    if not tokens and not ip_address(address[0]).is_loopback:
        log.warning(
            "anybody who can reach this address may send reports: LDPSTREAM_GATEWAY_TOKENS_FILE names no device's token"
        )


class _GatewayServer(uvicorn.Server):
    """A server that leaves signals to us: uvicorn would raise the signal again and skip our orderly shutdown."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
