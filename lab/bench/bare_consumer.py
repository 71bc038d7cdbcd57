"""A consumer that only fetches, for comparison.

python -m lab.bench.bare_consumer TOPIC RECORDS
"""

import json
import sys
import time

import uvloop
from aiokafka import AIOKafkaConsumer

from ldpstream.agents.consumer.batches import CHUNK_BYTES
from ldpstream.agents.consumer.chunks import FETCH_S
from ldpstream.runtime.settings import load_settings

PATIENCE_S = 600.0


async def consume(topic: str, records: int) -> dict[str, float]:
    wait_ms = int(FETCH_S * 1000)
    consumer = AIOKafkaConsumer(
        topic,
        **load_settings().kafka_options(),
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=CHUNK_BYTES,
        fetch_max_wait_ms=wait_ms,
    )
    await consumer.start()
    try:
        seen, first, began, began_cpu = 0, 0, time.perf_counter(), time.process_time()
        moved = began
        while seen < records:
            chunks = await consumer.getmany(timeout_ms=wait_ms)
            now = time.perf_counter()
            if chunks:
                seen, moved = seen + sum(map(len, chunks.values())), now
            elif now - moved > PATIENCE_S:
                raise SystemExit(f"{topic} gave {seen} of {records} records")
            if chunks and not first and seen < records / 2:
                first, began, began_cpu = seen, now, time.process_time()
        return {
            "records": seen - first, "seconds": time.perf_counter() - began, "cpu_s": time.process_time() - began_cpu,
        }  # fmt: skip
    finally:
        await consumer.stop()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(consume(sys.argv[1], int(sys.argv[2])))) + "\n")
