"""The gateway's connection to Kafka: one producer and one consumer for the topics of all surveys. A task checks both regularly.

If appends to a topic fail, or wait longer than `GIVE_UP_S`, new clients replace the old ones, whose appends get the outcome
unknown.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from ldpstream.engines.kafka import gateway_topic
from ldpstream.engines.kafka.gateway_clients import CLOSE_S, Clients, kafka_consumer, kafka_producer
from ldpstream.engines.kafka.gateway_topic import GatewayTopic
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.gateway")

PROBE_S = 1.0  # time between two looks at the topics
GIVE_UP_S = 120.0  # longest wait for an acknowledgement before the clients are replaced


def kafka_logs(settings: Settings) -> "KafkaConnection":
    return KafkaConnection(lambda: kafka_producer(settings), lambda: kafka_consumer(settings))


class KafkaConnection:
    """The reports topics of all surveys of a gateway.

    Attributes:
        answers: True after a look in which a topic answered, or for which there was no topic.
        reachable: True after a look in which the broker answered, or for which there was no topic.
    """

    def __init__(
        self,
        make_producer: Callable[[], AIOKafkaProducer],
        make_consumer: Callable[[], AIOKafkaConsumer],
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._make_producer, self._make_consumer, self._now_ms = make_producer, make_consumer, now_ms
        self.answers = self.reachable = False
        self._topics: list[GatewayTopic] = []
        self._clients: Clients | None = None
        self._watching: asyncio.Task[None] | None = None

    def add(self, survey: Survey) -> GatewayTopic:
        """Returns the log of a survey whose reports topic exists."""
        topic = GatewayTopic(survey)
        topic.use(self._clients)
        self._topics.append(topic)
        return topic

    async def start(self) -> None:
        """Connects. While the broker does not answer, the gateway retries in the background."""
        try:
            await self._connect()
        except (KafkaError, TimeoutError) as error:
            log.warning("the log does not answer", error=str(error) or type(error).__name__)
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Waits for acknowledgements, for a limited time, then closes the clients."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=CLOSE_S)
        with suppress(KafkaError):
            await self._dispose()

    async def _connect(self) -> None:
        clients = Clients(self._make_producer(), self._make_consumer())
        await clients.start()
        old, self._clients = self._clients, clients
        for topic in self._topics:
            topic.use(clients)
        if old is not None:
            await old.close()
        await self._look(clients, gateway_topic.ANSWER_S)

    async def _dispose(self) -> None:
        self.answers = False
        clients, self._clients = self._clients, None
        for topic in self._topics:
            topic.use(None)
        if clients is not None:
            await clients.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            self._topics = [topic for topic in self._topics if not topic.idle]
            for topic in self._topics:
                topic.drop_collected(time.monotonic() - gateway_topic.QUEUE_S)
            before = self.answers
            try:
                await self._check()
            except (KafkaError, TimeoutError, OSError):
                self.answers = self.reachable = False
            except Exception:  # without this task the gateway would never be ready again
                log.exception("internal error")
                self.answers = self.reachable = False
            if self.answers != before:
                log.warning("the log answers again" if self.answers else "the log does not answer")

    async def _check(self) -> None:
        failed = any(topic.failed or topic.waits_s() > GIVE_UP_S for topic in self._topics)
        # connect to the bootstrap address again if idle: the brokers may have new addresses
        idle = self._clients is not None and not self._clients.pending
        if not self.answers and (failed or idle):
            await self._dispose()
        if self._clients is None or failed:
            await self._connect()
        else:
            await self._look(self._clients, PROBE_S)

    async def _look(self, clients: Clients, patience_s: float) -> None:
        if not self._topics:
            self.answers = self.reachable = True
            return
        began_ms = self._now_ms()
        clients.follow({topic.topic for topic in self._topics})
        async with asyncio.timeout(gateway_topic.ANSWER_S):
            self.reachable = bool(await clients.producer.client.force_metadata_update())
        await asyncio.wait([topic.look(clients, began_ms) for topic in self._topics], timeout=patience_s)
        self.answers = self.reachable and any(topic.answers for topic in self._topics)
