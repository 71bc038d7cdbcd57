"""A Faust agent as a beginner writes it, for comparison: one event for each record, one HINCRBY for each report.

python -m lab.bench.stock_agent TOPIC RECORDS FOLDER
"""

import json
import os
import sys
import time
from typing import Any

import faust
import msgspec
import redis.asyncio

from ldpstream.runtime.settings import load_settings

topic_name, wanted, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
settings = load_settings()
app = faust.App(
    f"{topic_name}-stock",
    broker=[f"kafka://{address}" for address in settings.kafka.split(",")],
    value_serializer="raw",
    consumer_auto_offset_reset="earliest",
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
    datadir=folder,
)
store = redis.asyncio.Redis.from_url(settings.redis.get_secret_value())


@app.agent(app.topic(topic_name))
async def count(envelopes: Any) -> None:
    records = reports = first = 0
    began = 0.0
    async for envelope in envelopes:
        _version, _survey, attribute, level, step, n, _payload = msgspec.msgpack.decode(envelope)
        for _ in range(n):
            await store.hincrby(f"ldpstream:{topic_name}:stock", f"{attribute}:{level}:{step}", 1)
        records, reports = records + 1, reports + n
        if records == 1:
            first, began = reports, time.perf_counter()
        if records == wanted:
            sys.stdout.write(json.dumps({"reports": reports - first, "seconds": time.perf_counter() - began}) + "\n")
            sys.stdout.flush()
            os._exit(0)  # the benchmark cleans up


if __name__ == "__main__":
    worker = faust.Worker(app, loglevel="error", quiet=True, redirect_stdouts=False)
    worker.spinner = None  # the spinner would write to standard output
    worker.execute_from_commandline()
