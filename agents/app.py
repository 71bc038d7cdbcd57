"""The agent as a Faust app: `faust -A agents.app worker`, or `run` for the command line.

Faust manages the consumer group, the partitions and the process. `agents.consumer.chunks` delivers the records in chunks and
`agents.counting` counts them. Any number of agents may run. Each partition has one owner at a time, and two agents that both
believe they own it do no harm.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

import mode.loop
import structlog

with suppress(ImportError):  # uvloop does not exist for Windows
    mode.loop.use("uvloop")  # before Faust is imported

import faust
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, UnknownTopicOrPartitionError
from faust.app import BootStrategy
from faust.exceptions import ProducerSendError

from agents import metrics
from agents.consumer.batches import CHUNK_BYTES
from agents.consumer.chunks import ANSWER_S, ChunkConsumer, ChunkTransport
from agents.consumer.second_client import SecondClient
from agents.counting import Counting
from agents.log import DeadLetter, LogUnavailable
from agents.malloc import keep_freed_memory
from runtime.logs import logging_config
from runtime.monitoring import serve_monitoring
from runtime.settings import Settings, SettingsError, load_settings
from runtime.shutdown import end_within
from runtime.topics import TopicError, check_session, ensure_topics, group_id
from runtime.waiting import Stopped, wait_for
from stores.count_store import StoreUnavailable
from stores.redis_connection import StoreRefused
from stores.redis_store import RedisCountStore
from surveys import Survey, SurveyError, load_survey

log = structlog.get_logger("ldpstream.agent")

SESSION_S = 6.0  # session timeout: then the partitions of a killed agent go to another
WAITING_CHUNKS = 8
STOP_S = 8.5  # shutdown deadline, from the signal on; includes the last commit (`Counting.close`)
UNUSABLE, STALLED = 2, 3  # exit codes


def create_app(survey: Survey, settings: Settings) -> "AgentApp":
    """Returns the Faust app that counts a survey. It connects to nothing until it starts."""
    return AgentApp(survey, settings)


class _WithoutWeb(BootStrategy):
    enable_web = False  # else `faust worker` opens Faust's own server on all interfaces, whatever the settings are


class AgentApp(faust.App):
    """A Faust app with one agent that counts the reports topic of a survey.

    Args:
        survey: the survey to count.
        settings: where Kafka and Redis are.
    """

    BootStrategy = _WithoutWeb

    def __init__(self, survey: Survey, settings: Settings) -> None:
        self.survey, self.agent_settings = survey, settings
        self.store, self.watchdog = RedisCountStore(survey, settings), _Watchdog()
        self.second_client = SecondClient(settings, survey.reports_topic)
        self.stopping = threading.Event()
        self.counting = Counting(survey, self.store, _FaustLog(self, survey), settings.commit_interval_ms / 1000)
        super().__init__(
            group_id(survey),
            broker=[f"kafka://{address}" for address in settings.kafka.split(",")],
            broker_credentials=broker_credentials(settings),
            Worker=_Worker,
            table_standby_replicas=0,  # selects the client's assignor; Faust's fails when a topic has lost partitions
            value_serializer="raw",
            key_serializer="raw",
            topic_allow_declare=False,
            topic_disable_leader=True,
            logging_config=logging_config(settings.log_level),
            worker_redirect_stdouts=False,
            broker_session_timeout=SESSION_S,
            broker_heartbeat_interval=SESSION_S / 4,
            broker_max_poll_interval=86_400.0,  # we stop reading while the store is down; that must not cost our membership
            consumer_auto_offset_reset="none",  # we seek ourselves
            consumer_metadata_max_age_ms=10_000,  # finds a recreated topic or new partitions soon
            consumer_max_fetch_size=CHUNK_BYTES,
            stream_buffer_maxsize=WAITING_CHUNKS,
            stream_wait_empty=False,
            producer_max_request_size=2 * CHUNK_BYTES,
            producer_request_timeout=ANSWER_S,
        )
        self.agent(self.topic(survey.reports_topic, acks=False), name="count")(self._count)
        self.task(self.counting.run)
        self.task(self._watch)
        self.on_partitions_revoked.connect(self._revoked)
        self.on_before_shutdown.connect(self._shut_down)

    async def _count(self, chunks: Any) -> None:
        async for chunk in chunks:
            try:
                await self.counting.take(chunk)
            except Exception as error:
                log.exception("cannot count")
                await self.crash(error)

    async def _watch(self) -> None:
        await self.counting.watch(self.watchdog.alive)

    def prepare(self) -> None:
        """Serve the metrics, wait for Kafka, run the start-up checks, then start the watchdog.

        Raises:
            Stopped: if the process gets a stop signal while it waits.
            TopicError: if the broker or a topic cannot be used.
            StoreRefused: if Redis denies the login or a right that we need.
            SettingsError: if Redis would evict counts.
            OSError: if the metrics server cannot bind its address.
        """
        settings = self.agent_settings
        keep_freed_memory()
        if settings.metrics_port:
            serve_monitoring(settings.metrics_host, settings.metrics_port, lambda: self.counting.ready)
        wait_for(f"Kafka at {settings.kafka}", self._check_kafka, self.stopping.wait, log.warning)
        check_redis(self.store)
        self.watchdog.start()

    def _check_kafka(self) -> None:
        ensure_topics(self.agent_settings, self.survey, "agent")
        check_session(self.agent_settings, SESSION_S)

    async def _revoked(self, *about: Any, **_: Any) -> None:
        _app, partitions = about
        await self.counting.revoke({tp.partition for tp in partitions})

    async def _shut_down(self, *_about: Any, **_: Any) -> None:
        await self.counting.close()
        await asyncio.to_thread(self.second_client.close)

    def _new_transport(self) -> Any:
        return ChunkTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Creates none: there are no local tables, and the file system may be read-only."""


class _FaustLog:
    """The log of `Counting`: one topic, through Faust's consumer and producer."""

    def __init__(self, app: AgentApp, survey: Survey) -> None:
        self._app, self._topic, self._rejected_topic = app, survey.reports_topic, survey.rejected_topic

    @property
    def _consumer(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self._app.consumer)

    async def identity(self) -> str:
        return await asyncio.to_thread(self._app.second_client.topic_id)

    async def partitions(self) -> set[int]:
        return await asyncio.to_thread(self._app.second_client.partitions)

    async def ask_second_client(self, partitions: Sequence[int]) -> None:
        await asyncio.to_thread(self._app.second_client.serves, partitions)

    def shut_out(self) -> str:
        return self._consumer.shut_out

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        return await self._consumer.bounds(self._topic, partitions)

    async def place(self, partition: int, offset: int) -> int:
        return await self._consumer.place(self._topic, partition, offset)

    async def position_if_nothing_read(self, partition: int) -> int | None:
        return await self._consumer.position_if_nothing_read(self._topic, partition)

    async def commit_group(self, offsets: dict[int, int]) -> None:
        await self._consumer.commit_group(self._topic, offsets)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Sends the letters. Counts a letter as lost if the broker refuses it for good: too large, or no topic."""
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                failed = [error for error in await self._send_all(letters) if error is not None]
        except TimeoutError:
            raise LogUnavailable(f"{self._rejected_topic} did not acknowledge dead letters in time") from None
        for cause in failed:
            retriable = isinstance(cause, KafkaError) and (cause.retriable or isinstance(cause, KafkaTimeoutError))
            if retriable and not isinstance(cause, UnknownTopicOrPartitionError):
                raise LogUnavailable(f"{self._rejected_topic} does not accept dead letters: {type(cause).__name__}")
        if failed:
            metrics.dead_letters_lost.inc(len(failed))
            log.error("dead letters refused", topic=self._rejected_topic, letters=len(failed))

    async def _send_all(self, letters: Sequence[DeadLetter]) -> list[BaseException | None]:
        """Returns the error of each letter, or None; in another order than the letters.

        Skips a letter that is too large for our own producer. Stops at a letter that cannot be queued for another reason.
        """
        queued: list[Any] = []
        refused: list[BaseException | None] = []
        for letter in letters:
            try:
                queued += [await self._send(letter)]
            except ProducerSendError as error:
                refused.append(error.__cause__)
                if not isinstance(error.__cause__, MessageSizeTooLargeError):
                    refused += [error.__cause__] * (len(letters) - len(queued) - len(refused))
                    break
        answers = await asyncio.gather(*queued, return_exceptions=True)
        return [answer if isinstance(answer, BaseException) else None for answer in answers] + refused

    async def _send(self, letter: DeadLetter) -> Any:
        where = {"partition": letter.partition, "offset": letter.record.offset, "records": letter.records}
        headers = [("reason", letter.reason.encode()), *((key, str(number).encode()) for key, number in where.items())]
        return await self._app.producer.send(self._rejected_topic, None, letter.record.value, None, None, headers)


class _Watchdog(threading.Thread):
    """Ends the process after two minutes without a call of `alive`, so that a supervisor restarts it.

    This covers an agent that never joins its group and an event loop that hangs. No counts are lost: they are in the store,
    or their records are in the log.
    """

    TICK_S = 5.0
    TICKS = 24  # ticks, not clock times: a process that was suspended for a while may go on

    def __init__(self) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._ticks = 0

    def alive(self) -> None:
        """Resets the watchdog."""
        self._ticks = 0

    def run(self) -> None:
        while self._ticks < self.TICKS:
            time.sleep(self.TICK_S)
            self._ticks += 1
        log.critical("stalled, ending the process")
        os._exit(STALLED)


class _Worker(faust.Worker):
    """Faust's worker without the spinner (it replaces our log handlers) and with a shutdown deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spinner = None

    def _install_signal_handlers_unix(self) -> None:
        """Starts the deadline in the signal handler itself: the event loop may be busy for seconds."""
        super()._install_signal_handlers_unix()
        for number in (signal.SIGINT, signal.SIGTERM):  # the loop still gets the signals, through its file descriptor
            signal.signal(number, _end_in_time)
            signal.siginterrupt(number, False)

    def _schedule_shutdown(self, number: Any) -> None:
        """Also ends the wait for Kafka."""
        cast(AgentApp, self.app).stopping.set()
        super()._schedule_shutdown(number)

    async def on_first_start(self) -> None:
        app = cast(AgentApp, self.app)
        await super().on_first_start()  # sets up the log and the signals; `prepare` needs both while it waits
        try:
            await asyncio.to_thread(app.prepare)
        except Stopped:
            sys.exit(0)
        except (TopicError, SettingsError, StoreRefused) as error:
            _exit_unusable(error)
        except OSError as error:
            _exit_unusable(OSError(f"LDPSTREAM_METRICS_PORT: {error.strerror}"))


def _end_in_time(*_signal: Any) -> None:
    """Sets the shutdown deadline. Our libraries may wait longer for an unreachable broker."""
    end_within(STOP_S, lambda: log.warning("shutdown deadline passed, exiting without leaving the group"))


def check_redis(store: RedisCountStore) -> None:
    """Checks that Redis grants our rights and does not evict counts. Skips the check if Redis does not answer.

    Raises:
        StoreRefused: if Redis denies the login or a right that we need.
        SettingsError: if Redis would evict counts when its memory is full.
    """
    try:
        store.check_counting()
        policy = store.evicts()
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        log.warning("Redis does not answer, its rights and policy are not checked", error=str(error))
        return
    if policy is not None:
        raise SettingsError(
            f"LDPSTREAM_REDIS: this Redis evicts keys when its memory is full (maxmemory-policy {policy}); "
            "set maxmemory-policy to noeviction or to a volatile policy"
        )


def broker_credentials(settings: Settings) -> Any:
    """Returns the credentials of Faust's clients; None if the broker needs none."""
    options = settings.kafka_options()
    context = options.get("ssl_context")
    if "sasl_mechanism" not in options:
        return context and faust.SSLCredentials(context)
    user, password = options["sasl_plain_username"], options["sasl_plain_password"]
    return faust.SASLCredentials(username=user, password=password, ssl_context=context, mechanism=options["sasl_mechanism"])


def run(survey: Survey, settings: Settings) -> NoReturn:
    """Counts until a stop signal. Exits with status 2 and one line if the broker, a topic or Redis cannot be used."""
    _work(create_app(survey, settings))


def _work(app: AgentApp) -> NoReturn:
    app.Worker(quiet=True).execute_from_commandline()
    raise SystemExit(0)


def _exit_unusable(error: Exception) -> NoReturn:
    print(f"ldpstream agent: {error}", file=sys.stderr, flush=True)  # noqa: T201
    sys.exit(UNUSABLE)


def _from_environment() -> AgentApp:
    try:
        settings = load_settings()
        if settings.survey is None:
            raise SettingsError("LDPSTREAM_SURVEY must name the survey file")
        return create_app(load_survey(settings.survey), settings)
    except (SettingsError, SurveyError) as error:
        _exit_unusable(error)


def __getattr__(name: str) -> Any:
    """Makes `app` from the environment, for `faust -A agents.app`."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = _from_environment()
    return app


if __name__ == "__main__":
    _work(_from_environment())
