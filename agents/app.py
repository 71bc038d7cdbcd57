"""The agent as a Faust app: `faust -A agents.app worker`, or `run` for the command line.

Faust brings the consumer group, the partitions and the life of the process. `agents.consumer.chunks` reads the records, a chunk
at a time; `agents.counting` counts them. Any number of agents may run. A partition belongs to one of them at a time, and two
agents that both believe to own it do no harm.
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

with suppress(ImportError):  # there is none for Windows
    mode.loop.use("uvloop")  # before Faust is imported

import faust
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, UnknownTopicOrPartitionError
from faust.app import BootStrategy
from faust.exceptions import ProducerSendError

from agents import metrics
from agents.consumer.batches import CHUNK_BYTES
from agents.consumer.chunks import ANSWER_S, ChunkConsumer, ChunkTransport
from agents.consumer.second_client import Witness
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

SESSION_S = 6.0  # after which the partitions of an agent that was killed go to another
WAITING_CHUNKS = 8
STOP_S = 8.5  # from the signal to the end; the last commit gets what `Counting.close` allows it
UNUSABLE, STALLED = 2, 3  # exit codes


def create_app(survey: Survey, settings: Settings) -> "AgentApp":
    """The Faust app that counts a survey; nothing is connected until it starts."""
    return AgentApp(survey, settings)


class _WithoutWeb(BootStrategy):
    enable_web = False  # else `faust worker` opens Faust's own server to all the world, whatever the settings say


class AgentApp(faust.App):
    """A Faust app with one agent, which counts the reports topic of a survey.

    Args:
        survey: the survey to count.
        settings: where Kafka and Redis are.
    """

    BootStrategy = _WithoutWeb

    def __init__(self, survey: Survey, settings: Settings) -> None:
        self.survey, self.agent_settings = survey, settings
        self.store, self.watchdog = RedisCountStore(survey, settings), _Watchdog()
        self.witness = Witness(settings, survey.reports_topic)
        self.told_to_stop = threading.Event()
        self.counting = Counting(survey, self.store, _FaustLog(self, survey), settings.commit_interval_ms / 1000)
        super().__init__(
            group_id(survey),
            broker=[f"kafka://{address}" for address in settings.kafka.split(",")],
            broker_credentials=broker_credentials(settings),
            Worker=_Worker,
            table_standby_replicas=0,  # so the client's assignor is used; Faust's fails where a topic has got fewer partitions
            value_serializer="raw",
            key_serializer="raw",
            topic_allow_declare=False,
            topic_disable_leader=True,
            logging_config=logging_config(settings.log_level),
            worker_redirect_stdouts=False,
            broker_session_timeout=SESSION_S,
            broker_heartbeat_interval=SESSION_S / 4,
            broker_max_poll_interval=86_400.0,  # while the store is away no chunk is taken, and that is no reason to leave
            consumer_auto_offset_reset="none",  # we say where to begin
            consumer_metadata_max_age_ms=10_000,  # so that a topic that was made again, or got more partitions, is soon found
            consumer_max_fetch_size=CHUNK_BYTES,
            stream_buffer_maxsize=WAITING_CHUNKS,
            stream_wait_empty=False,
            producer_max_request_size=2 * CHUNK_BYTES,
            producer_request_timeout=ANSWER_S,
        )
        self.agent(self.topic(survey.reports_topic, acks=False), name="count")(self._count)
        self.task(self.counting.run)
        self.task(self._look_after)
        self.on_partitions_revoked.connect(self._revoked)
        self.on_before_shutdown.connect(self._shut_down)

    async def _count(self, chunks: Any) -> None:
        async for chunk in chunks:
            try:
                await self.counting.take(chunk)
            except Exception as error:
                log.exception("cannot count")
                await self.crash(error)

    async def _look_after(self) -> None:
        await self.counting.watch(self.watchdog.alive)

    def prepare(self) -> None:
        """Serve the metrics, wait for Kafka, run the start-up checks, then start the watchdog.

        Raises:
            Stopped: if the process is told to stop while it waits.
            TopicError: if the broker or a topic cannot be used.
            StoreRefused: if Redis does not let us in, or do what we must.
            SettingsError: if Redis would throw counts away.
            OSError: if the address of the metrics cannot be bound.
        """
        settings = self.agent_settings
        keep_freed_memory()
        if settings.metrics_port:
            serve_monitoring(settings.metrics_host, settings.metrics_port, lambda: self.counting.ready)
        wait_for(f"Kafka at {settings.kafka}", self._check_kafka, self.told_to_stop.wait, log.warning)
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
        await asyncio.to_thread(self.witness.close)

    def _new_transport(self) -> Any:
        return ChunkTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """None: there are no local tables, and the file system may be read-only."""


class _FaustLog:
    """The log as `Counting` asks for it: one topic, through Faust's consumer and producer."""

    def __init__(self, app: AgentApp, survey: Survey) -> None:
        self._app, self._topic, self._rejected_topic = app, survey.reports_topic, survey.rejected_topic

    @property
    def _consumer(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self._app.consumer)

    async def identity(self) -> str:
        return await asyncio.to_thread(self._app.witness.topic_id)

    async def partitions(self) -> set[int]:
        return await asyncio.to_thread(self._app.witness.partitions)

    async def witness(self, partitions: Sequence[int]) -> None:
        await asyncio.to_thread(self._app.witness.serves, partitions)

    def shut_out(self) -> str:
        return self._consumer.shut_out

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        return await self._consumer.bounds(self._topic, partitions)

    async def place(self, partition: int, offset: int) -> int:
        return await self._consumer.place(self._topic, partition, offset)

    async def read_in_vain(self, partition: int) -> int | None:
        return await self._consumer.read_in_vain(self._topic, partition)

    async def commit_group(self, offsets: dict[int, int]) -> None:
        await self._consumer.commit_group(self._topic, offsets)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """A letter that the broker will never take, being too large or without a topic, is counted as lost."""
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                failed = [error for error in await self._send_all(letters) if error is not None]
        except TimeoutError:
            raise LogUnavailable(f"{self._rejected_topic} takes no dead letters") from None
        for cause in failed:
            retriable = isinstance(cause, KafkaError) and (cause.retriable or isinstance(cause, KafkaTimeoutError))
            if retriable and not isinstance(cause, UnknownTopicOrPartitionError):
                raise LogUnavailable(f"{self._rejected_topic} takes no dead letters: {type(cause).__name__}")
        if failed:
            metrics.dead_letters_lost.inc(len(failed))
            log.error("dead letters refused", topic=self._rejected_topic, letters=len(failed))

    async def _send_all(self, letters: Sequence[DeadLetter]) -> list[BaseException | None]:
        """What went wrong with each letter. One that is too large for our own producer is left out; after one that could not
        be queued for another reason the rest is not tried."""
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
    """Ends the process if nobody has said for two minutes that all is well: whatever is counted is in the store or in the log.

    So an agent that never gets into its group, or whose event loop hangs, is started anew by whoever looks after processes.
    """

    TICK_S = 5.0
    TICKS = 24  # ticks and not times, so that a process that was stopped for a while may go on

    def __init__(self) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._ticks = 0

    def alive(self) -> None:
        """All is well."""
        self._ticks = 0

    def run(self) -> None:
        while self._ticks < self.TICKS:
            time.sleep(self.TICK_S)
            self._ticks += 1
        log.critical("stalled, ending the process")
        os._exit(STALLED)


class _Worker(faust.Worker):
    """Faust's worker, without its spinner, which would change our log's handlers; told to stop, it ends in time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spinner = None

    def _install_signal_handlers_unix(self) -> None:
        """As the library's, with a deadline that runs from the signal itself: the event loop may be busy for seconds."""
        super()._install_signal_handlers_unix()
        for number in (signal.SIGINT, signal.SIGTERM):  # the loop hears of them through its file descriptor all the same
            signal.signal(number, _end_in_time)
            signal.siginterrupt(number, False)

    def _schedule_shutdown(self, number: Any) -> None:
        """End the waiting for Kafka, too."""
        cast(AgentApp, self.app).told_to_stop.set()
        super()._schedule_shutdown(number)

    async def on_first_start(self) -> None:
        app = cast(AgentApp, self.app)
        await super().on_first_start()  # the log and the signals, which `prepare` needs while it waits
        try:
            await asyncio.to_thread(app.prepare)
        except Stopped:
            sys.exit(0)
        except (TopicError, SettingsError, StoreRefused) as error:
            _give_up(error)
        except OSError as error:
            _give_up(OSError(f"LDPSTREAM_METRICS_PORT: {error.strerror}"))


def _end_in_time(*_signal: Any) -> None:
    """Set the shutdown deadline: the libraries may wait longer for an unreachable broker."""
    end_within(STOP_S, lambda: log.warning("shutdown deadline passed, ending without leaving the group"))


def check_redis(store: RedisCountStore) -> None:
    """Check that Redis lets us count, and would not throw counts away; one that does not answer is waited for.

    Raises:
        StoreRefused: if it does not let us in, or do what we must.
        SettingsError: if it would throw counts away when its memory is full.
    """
    try:
        store.check_counting()
        policy = store.evicts()
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        log.warning("not checked whether Redis may be used", error=str(error))
        return
    if policy is not None:
        raise SettingsError(
            f"LDPSTREAM_REDIS: this Redis throws keys away when its memory is full (maxmemory-policy {policy}); "
            "it must have maxmemory-policy noeviction, or one of the volatile ones"
        )


def broker_credentials(settings: Settings) -> Any:
    """What Faust's clients log in with; None for a broker that lets everybody in."""
    options = settings.kafka_options()
    context = options.get("ssl_context")
    if "sasl_mechanism" not in options:
        return context and faust.SSLCredentials(context)
    user, password = options["sasl_plain_username"], options["sasl_plain_password"]
    return faust.SASLCredentials(username=user, password=password, ssl_context=context, mechanism=options["sasl_mechanism"])


def run(survey: Survey, settings: Settings) -> NoReturn:
    """Count until the process is told to stop; exits with 2 and one line if the broker, a topic or Redis cannot be used."""
    _work(create_app(survey, settings))


def _work(app: AgentApp) -> NoReturn:
    app.Worker(quiet=True).execute_from_commandline()
    raise SystemExit(0)


def _give_up(error: Exception) -> NoReturn:
    print(f"ldpstream agent: {error}", file=sys.stderr, flush=True)  # noqa: T201
    sys.exit(UNUSABLE)


def _from_environment() -> AgentApp:
    try:
        settings = load_settings()
        if settings.survey is None:
            raise SettingsError("LDPSTREAM_SURVEY must name the survey file")
        return create_app(load_survey(settings.survey), settings)
    except (SettingsError, SurveyError) as error:
        _give_up(error)


def __getattr__(name: str) -> Any:
    """`app`, as `faust -A agents.app` looks for it, made from the environment."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = _from_environment()
    return app


if __name__ == "__main__":
    _work(_from_environment())
