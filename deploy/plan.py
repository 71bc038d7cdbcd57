"""Plans a deployment: what every service needs for a survey and a number of devices.

    python -m deploy.plan SURVEY --devices 1e9

`docs/howto/capacity.md` has the sources of the costs.
"""

import math
from typing import Annotated

import msgspec
import typer

from ldpstream.commands.arguments import DEMO_SURVEY, SurveyOrDemo
from ldpstream.commands.cli import run
from ldpstream.engines.checkpoint import STORED_KEY_BYTES
from ldpstream.engines.gateway_log import MAX_BATCH
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import integer, real
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, fail, table
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.envelope import seal_rows
from ldpstream.surveys.report_key import MAX_KEYS

GATEWAY_US = (56.3, 5.2)  # processor time of a request, and of each envelope in the request
SERVE_US = (50.1, 2.9)  # of `serve`, with counting: processor time of a request, and of each envelope in the request
AGENT_US = (0.9, 0.0011)  # processor time of a record, and of each byte of its envelope
COMMIT_S = 0.7e-3  # one commit of a partition in Redis
COMMITS = 2  # commits of a partition in a second, with `COMMIT_INTERVAL_S` of the agents
RECORD_BYTES = 30  # in Kafka, beside the envelope: the record's frame and its report key
REDIS_KEY_BYTES = 11
PROCESS_BYTES = {"gateway": 64 << 20, "agent": 364 << 20, "estimator": 314 << 20}
ESTIMATE_S = {False: (11.4e-3, 5.6e-6), True: (20e-3, 42e-6)}  # ordered or not: time of an attribute and a step, time per value
ESTIMATE_BYTES = (225, 230, 1300)  # a step's estimates in Redis: per value; per value and cohort; per cohort
FILTER_BYTES = 1250  # per value, in Redis; an estimator has two states of each filter: before and after a step
PUBLISHED_BYTES = (330, 230)  # in Kafka: per value of a step; per value and cohort
AGENT_KEY_BYTES = 1 << 30  # largest size of the report keys in one agent; more keys need more agents
PARTITIONS = 12  # smallest number of partitions
UNEVEN = 1.1  # load of the fullest partition, divided by the mean load
PEAK = 2  # the highest load, divided by the average load
REPLICAS = 3  # copies of each record in Kafka
YEAR_S = 365 * 86_400
SERVE_ENOUGH = 0.5  # share of a core; `serve` has one process, which also calculates the estimates

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a deployment. The sizes of Kafka's topics include all replicas; `redis_memory` includes none.

    Attributes:
        requests, records: requests to the gateways and records in the log, each second, averaged over time.
        gateway_cores, agent_cores, redis_cores: cores in use, averaged over time; `serve_cores`: those of `serve` instead.
        gateways, agents, redis_servers: numbers, at `PEAK` times the average load.
        redis_memory: bytes, without Redis's own overhead.
        log_bytes_a_day, log_bytes: growth of the reports topic, and its size at its retention.
        estimates_bytes_a_year: growth of the topic of estimates.
        estimator_seconds: processor time of the estimates of one step.
    """

    devices: float
    every_seconds: float
    batch: int
    requests: float
    records: float
    serve_cores: float
    gateway_cores: float
    gateways: int
    gateway_memory: int
    partitions: int
    envelope_bytes: float
    log_bytes_a_day: float
    log_bytes: float
    agent_cores: float
    agents: int
    agent_memory: float
    redis_cores: float
    redis_servers: int
    redis_memory: float
    estimator_seconds: float
    estimator_memory: int
    estimates_bytes_a_year: float


def plan(survey: Survey, devices: float, every_s: float | None = None, *, batch: int = 1) -> Deployment:
    """Returns what a deployment needs. An attribute counts with its largest report and its smallest `every_steps`.

    Args:
        devices: number of devices, in [1, 1e12].
        every_s: seconds between two reports of a device, before `every_steps`, in [1, 1e9]; the length of a step by default.
        batch: envelopes in one request to a gateway, in [1, `MAX_BATCH`].

    Raises:
        ValueError: if an argument is out of range.
    """
    real("devices", devices, 1, 1e12)
    every = real("every", survey.step_seconds if every_s is None else every_s, 1, 1e9)
    integer("batch", batch, 1, MAX_BATCH)
    share = len(survey.attributes) if survey.collection == "smp" else 1
    records = byte_rate = 0.0
    for attribute, levels in enumerate(survey.mechanisms):
        rate = devices / share / every / min(m.every_steps for m in levels)
        records += rate
        byte_rate += rate * max(envelope_bytes(survey, attribute, m) for m in levels)
    requests = records / batch
    gateway_cores = (requests * GATEWAY_US[0] + records * GATEWAY_US[1]) * 1e-6
    agent_cores = (records * AGENT_US[0] + byte_rate * AGENT_US[1]) * 1e-6
    step_keys = records * survey.step_seconds
    keys = step_keys * survey.open_steps
    agents = max(2, math.ceil(agent_cores * PEAK), math.ceil(keys * STORED_KEY_BYTES / AGENT_KEY_BYTES))
    partitions = max(PARTITIONS, agents, math.ceil(UNEVEN * step_keys / MAX_KEYS))
    redis_cores = partitions * COMMITS * COMMIT_S
    values, cohorts = sum(a.k for a in survey.attributes), 0 if survey.cohort is None else survey.n_cohorts
    tables = sum(8 * math.prod(m.table_shape) for levels in survey.mechanisms for m in levels) * survey.n_cohorts
    steps = max(survey.window_steps, survey.open_steps)
    estimates = values * (ESTIMATE_BYTES[0] + ESTIMATE_BYTES[1] * cohorts) + ESTIMATE_BYTES[2] * cohorts
    redis_memory = partitions * tables * steps + keys * REDIS_KEY_BYTES + survey.retention_steps * estimates
    log_bytes_a_day = (byte_rate + records * RECORD_BYTES) * 86_400 * REPLICAS
    seconds = sum(ESTIMATE_S[a.in_order][0] + ESTIMATE_S[a.in_order][1] * a.k for a in survey.attributes) * (1 + cohorts)
    published = values * (PUBLISHED_BYTES[0] + PUBLISHED_BYTES[1] * cohorts)
    return Deployment(
        devices=devices, every_seconds=every, batch=batch, requests=requests, records=records,
        serve_cores=(requests * SERVE_US[0] + records * SERVE_US[1]) * 1e-6,
        gateway_cores=gateway_cores, gateways=max(2, math.ceil(gateway_cores * PEAK)), gateway_memory=PROCESS_BYTES["gateway"],
        partitions=partitions, envelope_bytes=byte_rate / records,
        log_bytes_a_day=log_bytes_a_day, log_bytes=log_bytes_a_day * survey.kept_ms / 86_400_000,
        agent_cores=agent_cores, agents=agents, agent_memory=PROCESS_BYTES["agent"] + keys * STORED_KEY_BYTES / agents,
        redis_cores=redis_cores, redis_servers=math.ceil(redis_cores * PEAK),
        redis_memory=redis_memory + values * FILTER_BYTES,
        estimator_seconds=seconds, estimator_memory=PROCESS_BYTES["estimator"] + 2 * values * FILTER_BYTES,
        estimates_bytes_a_year=published * YEAR_S / survey.step_seconds * REPLICAS,
    )  # fmt: skip


def envelope_bytes(survey: Survey, attribute: int, m: Mechanism) -> int:
    return len(seal_rows(survey, attribute, 0, 100_000, 1, bytes(m.row_bytes), 0))


@app.command()
def plan_command(
    devices: Annotated[float, typer.Option(help="number of devices, such as 1e9")],
    survey_file: SurveyOrDemo = DEMO_SURVEY,
    every: Annotated[
        float | None, typer.Option(help="seconds between two reports of a device", show_default="the length of a step")
    ] = None,
    batch: Annotated[int, typer.Option(help="envelopes in one request to a gateway")] = 1,
    json: JsonFile = None,
) -> None:
    """Plan a deployment: partitions, gateways, agents, memory of Redis, bytes of the log, time of the estimates."""
    survey = load_survey(survey_file)
    try:
        found = plan(survey, devices, every, batch=batch)
    except ValueError as error:
        fail(str(error))
    console.print(f"{survey.name}: {found.devices:,.0f} devices, a report every {found.every_seconds:,.0f} s.", markup=False)
    console.print(f"On average {found.requests:,.1f} requests and {found.records:,.1f} records a second.")
    if (busy := found.serve_cores * PEAK) <= SERVE_ENOUGH and found.estimator_seconds <= survey.step_seconds / 2:
        console.print(
            f"One machine is enough: at {PEAK} times the average load, `ldpstream serve` uses {busy:.2g} of a core for the "
            "reports (docs/howto/serve.md). The table is for several machines.",
            markup=False,
        )
    needs = table("Needs of each station", "station", "needs", "measured cost", texts=3)
    for row in rows(found):
        needs.add_row(*row)
    console.print(needs)
    if found.estimator_seconds > survey.step_seconds / 2:
        console.print("The estimates of a step take more than half a step: use longer steps or fewer values.")
    console.print(f"Numbers of processes are for {PEAK} times the average load. Sources of the costs: docs/howto/capacity.md.")
    write_json(json, found)


def rows(found: Deployment) -> list[tuple[str, str, str]]:
    gateway = f"{GATEWAY_US[0]:g} µs a request and {GATEWAY_US[1]:g} µs an envelope: {found.gateway_cores:.2g} cores on average"
    agent = f"{AGENT_US[0]:g} µs a record and {1000 * AGENT_US[1]:.2g} ns a byte: {found.agent_cores:.2g} cores on average"
    redis = f"{1000 * COMMIT_S:g} ms a commit: {found.redis_cores:.2g} cores"
    return [
        ("gateways", f"{found.gateways:,} of {size(found.gateway_memory)}", gateway),
        ("partitions", f"{found.partitions:,}", f"{MAX_KEYS:,} report keys a partition and step"),
        ("log", f"{size(found.log_bytes)}, {size(found.log_bytes_a_day)} a day", f"{found.envelope_bytes:.0f} B an envelope"),
        ("agents", f"{found.agents:,} of {size(found.agent_memory)}", agent),
        ("Redis", f"{size(found.redis_memory)}, primary servers: {found.redis_servers:,}", redis),
        ("estimator", f"1 and a standby, of {size(found.estimator_memory)}", f"{found.estimator_seconds:.2g} s a step"),
        ("estimates", f"{size(found.estimates_bytes_a_year)} a year in Kafka", "uncompressed"),
    ]


def size(number: float) -> str:
    for unit in ("kB", "MB", "GB", "TB"):
        number /= 1000
        if number < 1000 or unit == "TB":
            break
    return f"{number:,.3g} {unit}" if number < 1000 else f"{number:,.0f} {unit}"


if __name__ == "__main__":
    run(app)
