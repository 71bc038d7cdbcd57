"""The gateway's clients of Kafka: an idempotent producer, and a consumer that reads offsets and no records.

An envelope that was not acknowledged in time may reach the log later.
"""

import asyncio
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ldpstream.runtime.settings import Settings
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

REQUEST_MS = 10_000
CLOSE_S = 1.5


def kafka_producer(settings: Settings) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        **settings.kafka_options(),
        enable_idempotence=True,
        acks="all",
        max_batch_size=MAX_ENVELOPE_BYTES,
        max_request_size=2 * MAX_ENVELOPE_BYTES,
        request_timeout_ms=REQUEST_MS,
    )


def kafka_consumer(settings: Settings) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(**settings.kafka_options(), enable_auto_commit=False)


class Clients:
    def __init__(self, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        self.producer, self.consumer = producer, consumer
        self.pending = set[asyncio.Future[Any]]()

    async def start(self) -> None:
        """Connects within `REQUEST_MS`.

        Raises:
            KafkaError, TimeoutError: if the broker does not answer.
        """
        try:
            async with asyncio.timeout(REQUEST_MS / 1000):
                await self.producer.start()
                await self.consumer.start()
        except BaseException:
            await self.close()
            raise

    def follow(self, topics: set[str]) -> None:
        """Limits the clients' questions about partitions to these topics.

        A broker may create a topic for which a client asks.

        Args:
            topics: at least one; for an empty set, the clients would ask for all topics.
        """
        self.producer.client.set_topics(topics)
        self.consumer._client.set_topics(topics)

    async def close(self) -> None:
        stopping = asyncio.create_task(self.producer.stop())
        if not (await asyncio.wait({stopping}, timeout=CLOSE_S))[0]:  # `stop` waits without limit for its last records
            self.producer._sender.sender_task.cancel()
            await self.producer.client.close()
            await asyncio.wait({stopping}, timeout=CLOSE_S)
            stopping.cancel()
        for future in list(self.pending):
            future.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.consumer.stop()
