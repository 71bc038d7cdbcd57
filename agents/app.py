"""The agent as a Faust app. Start the app with `faust -A ldpstream.agents.app worker`; our command line calls `run`.

An agent counts the survey of one file, or the surveys of several files and folders (`agents.counted_surveys`,
`agents.dispatcher`). Agents of one file join a consumer group of its survey. Other agents join the group `Settings.group`.
"""

import asyncio
import gc
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

import mode.loop
import structlog

with suppress(ImportError):  # uvloop does not exist for Windows
    mode.loop.use("uvloop")  # this call must come before the import of Faust

import faust
from faust.app import BootStrategy

from ldpstream.agents import metrics
from ldpstream.agents.consumer.batches import CHUNK_BYTES, PIECE_RECORDS
from ldpstream.agents.consumer.broker_requests import BrokerRequests
from ldpstream.agents.consumer.chunks import ChunkConsumer, ChunkTransport
from ldpstream.agents.counted_surveys import CountedSurveys, check_survey
from ldpstream.agents.counting import Counting
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk
from ldpstream.agents.stall_detector import alive
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topic_keeper import TopicKeeper
from ldpstream.engines.kafka.topics import group_id
from ldpstream.runtime.descriptors import raise_limit
from ldpstream.runtime.errors import Stopped, exit_status, wait_for
from ldpstream.runtime.logs import logging_config, start_log
from ldpstream.runtime.monitoring import serve_monitoring
from ldpstream.runtime.process import TOLD_TO_END, keep_freed_memory, noting_status, shutdown_starter
from ldpstream.runtime.settings import Settings, SettingsError, load_settings
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.watch import SurveyWatch

log = structlog.get_logger("ldpstream.agent")

SESSION_S = 6.0  # session timeout, after which a killed agent's partitions go to another agent
WAITING_CHUNKS = 8
COLLECT_AFTER = 2 * PIECE_RECORDS  # new objects before a garbage collection; by default, each piece would cause many
STOP_S = 8.5  # shutdown deadline in seconds after the signal; leaves time for the last commit (`Counting.close`)


class _WithoutWeb(BootStrategy):
    enable_web = False  # otherwise `faust worker` opens Faust's own server on all interfaces


class AgentApp(faust.App):
    BootStrategy = _WithoutWeb

    def __init__(self, watch: SurveyWatch, settings: Settings) -> None:
        self.agent_settings, self.second_client = settings, LogClient(settings)
        self.redis = connect(settings)
        self.stopping = threading.Event()
        self.dispatcher = Dispatcher(self._new_counting, self._done, self._failed)
        surveys = watch.listed()
        self._only_survey = None if watch.only_file is None else surveys[0]
        group = settings.group if self._only_survey is None else group_id(self._only_survey)
        keeper = TopicKeeper(settings, watch)
        check = partial(check_survey, settings, group=group, client=self.redis, keeper=keeper)
        self.surveys = CountedSurveys(watch, self.dispatcher, check, self._assigned, self._subscribe, keeper.forget)
        metrics.partitions.set_function(lambda: self.dispatcher.n_partitions)
        metrics.store_available.set_function(lambda: self.dispatcher.store_answers)
        super().__init__(
            group,
            broker=[f"kafka://{address}" for address in settings.kafka.split(",")],
            broker_credentials=broker_credentials(settings),
            Worker=_Worker,
            table_standby_replicas=0,  # selects aiokafka's assignor; Faust's assignor fails if a topic lost partitions
            value_serializer="raw",
            key_serializer="raw",
            topic_allow_declare=False,
            topic_disable_leader=True,
            logging_config=logging_config(settings.log_level),
            worker_redirect_stdouts=False,
            broker_session_timeout=SESSION_S,
            broker_heartbeat_interval=SESSION_S / 4,
            broker_max_poll_interval=86_400.0,  # the agent stops reading while the store is down, but must stay in the group
            consumer_auto_offset_reset="none",  # `ChunkConsumer.place` seeks instead
            consumer_metadata_max_age_ms=10_000,  # finds a recreated topic or new partitions within 10 s
            consumer_max_fetch_size=CHUNK_BYTES,
            stream_buffer_maxsize=WAITING_CHUNKS,
            stream_wait_empty=False,
        )
        self._reports = self.topic(*(survey.reports_topic for survey in surveys), acks=False)
        self.agent(self._reports, name="count")(self._count)
        self.task(self.surveys.follow)
        self.task(self._watch)
        self.on_partitions_revoked.connect(self._revoked)
        self.on_before_shutdown.connect(self._shut_down)

    async def _count(self, chunks: Any) -> None:
        async for event in chunks.events():
            self.dispatcher.take(event.message.topic, event.value)

    async def _watch(self) -> None:
        await self.dispatcher.watch(alive)

    # ---- for the surveys

    def _new_counting(self, survey: Survey) -> Counting:
        store = RedisCountStore(survey, self.redis)
        return Counting(survey, store, BrokerRequests(self, self.second_client, survey))

    @property
    def _reader(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self.consumer)

    def _done(self, topic: str, chunk: Chunk) -> None:
        self._reader.done(topic, chunk)

    async def _failed(self, survey: Survey, error: Exception) -> None:
        if self._only_survey is not None:
            await self.crash(error)
        else:
            await self.surveys.give_up(survey)

    def _assigned(self) -> set[Any]:
        return set(self._reader.assignment())

    async def _subscribe(self, topics: set[str]) -> None:
        for topic in self._reports.topics:
            if topic not in topics:
                self._reader.stop_reading(topic)
        if not topics or topics == set(self._reports.topics):
            return
        for channel in (self._reports, *self.topics):
            channel.topics = sorted(topics)
        await cast(Any, self.topics)._update_indices()
        await self._reader.subscribe(topics)

    @property
    def unready(self) -> str | None:
        """None if this process has started its surveys, and the `Counting` of one of them is ready, or there is no survey."""
        return self.dispatcher.unready if self.surveys.started else "starting"

    def prepare(self) -> None:
        """Serves the metrics, waits for Kafka, runs the start-up checks, then starts the watchdog.

        Raises:
            Stopped: if the process gets a stop signal while it waits.
            TopicError: if the broker refuses the login.
            TopicError, StoreRefused, OpenSurveyChanged, KeptUnreadable, SettingsError: if no survey is usable, and the check of
                the first survey (`agents.counted_surveys.check_survey`) raises this error.
            SettingsError: if the metrics server cannot bind its address.
        """
        settings = self.agent_settings
        keep_freed_memory()
        raise_limit()
        import_module(
            "ldpstream.mechanisms.kernels.hash_kernels"
        )  # now: a later import fails for good if no descriptor is free
        gc.set_threshold(COLLECT_AFTER)
        if settings.metrics_port:
            serve_monitoring(settings.metrics_host, settings.metrics_port, lambda: self.unready)
        usable = wait_for(f"Kafka at {settings.kafka}", self.surveys.check, self.stopping.wait, log.warning)
        self._reports.topics = sorted(usable)
        alive()

    async def _revoked(self, *about: Any, **_: Any) -> None:
        _app, partitions = about
        await self.dispatcher.revoke(partitions)

    async def _shut_down(self, *_about: Any, **_: Any) -> None:
        await self.dispatcher.close()
        await asyncio.to_thread(self.second_client.close)

    def _new_transport(self) -> Any:
        return ChunkTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Creates no directories."""


class _Worker(faust.Worker):
    """Faust's worker without the spinner (it replaces our log handlers) and with a shutdown deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spinner = None

    def execute_from_commandline(self) -> NoReturn:
        with noting_status():
            super().execute_from_commandline()
        raise SystemExit(0)

    def _install_signal_handlers_unix(self) -> None:
        """Starts the shutdown deadline in the signal handler itself: the event loop may be busy for seconds."""
        super()._install_signal_handlers_unix()
        start = shutdown_starter(
            STOP_S, last_words=lambda: log.warning("shutdown deadline passed, exiting without leaving the group")
        )

        def handle(signum: int, frame: FrameType | None) -> None:
            start(signum)

        # the event loop still gets the signals through its wake-up file descriptor
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)
            signal.siginterrupt(number, False)

    def _schedule_shutdown(self, number: Any) -> None:
        log.info(TOLD_TO_END, signal=signal.Signals(number).name)
        cast(AgentApp, self.app).stopping.set()
        super()._schedule_shutdown(number)

    async def on_first_start(self) -> None:
        app = cast(AgentApp, self.app)
        await super().on_first_start()  # sets up the log and the signals; `prepare` needs both while it waits
        try:
            await asyncio.to_thread(app.prepare)
        except Stopped:
            sys.exit(0)
        except UserError as error:
            _exit_unusable(error)


def broker_credentials(settings: Settings) -> Any:
    """Returns the credentials of Faust's clients; None if the settings name neither TLS nor a login."""
    options = settings.kafka_options()
    context = options.get("ssl_context")
    if "sasl_mechanism" not in options:
        return context and faust.SSLCredentials(context)
    user, password = options["sasl_plain_username"], options["sasl_plain_password"]
    return faust.SASLCredentials(username=user, password=password, ssl_context=context, mechanism=options["sasl_mechanism"])


def run(watch: SurveyWatch, settings: Settings) -> NoReturn:
    """Counts the surveys' reports until a stop signal.

    Exits with a one-line error if `AgentApp.prepare` raises a `UserError`; `runtime.errors.exit_status` gives the status.
    """
    AgentApp(watch, settings).Worker(quiet=True).execute_from_commandline()
    raise SystemExit(0)


def _exit_unusable(error: Exception) -> NoReturn:
    sys.stderr.write(f"ldpstream agent: {error}\n")
    sys.exit(exit_status(error))


def _from_environment() -> AgentApp:
    try:
        settings = load_settings()
        if settings.survey is None:
            raise SettingsError("LDPSTREAM_SURVEY must name the survey file")
        start_log(settings.log_level)
        return AgentApp(SurveyWatch([Path(settings.survey)]), settings)
    except UserError as error:
        _exit_unusable(error)


def __getattr__(name: str) -> Any:
    """Makes `app` from the environment, for `faust -A ldpstream.agents.app`."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = _from_environment()
    return app
