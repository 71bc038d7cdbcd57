"""The command `plan`: what a deployment needs for a survey and a number of devices."""

from typing import TYPE_CHECKING, Annotated

import typer

from ldpstream.commands.arguments import DEMO_SURVEY, SurveyOrDemo
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, fail, table

if TYPE_CHECKING:
    from ldpstream.planning.capacity import Deployment

app = typer.Typer()

SERVE_ENOUGH = 0.5  # share of a core; `serve` has one process, which also calculates the estimates


@app.command()
def plan(
    devices: Annotated[float, typer.Option(help="number of devices, such as 1e9")],
    survey_file: SurveyOrDemo = DEMO_SURVEY,
    every: Annotated[
        float | None, typer.Option(help="seconds between two reports of a device", show_default="the length of a step")
    ] = None,
    batch: Annotated[int, typer.Option(help="envelopes in one request to a gateway")] = 1,
    json: JsonFile = None,
) -> None:
    """Plan a deployment: partitions, gateways, agents, memory of Redis, bytes of the log, time of the estimates."""
    from ldpstream.planning.capacity import PEAK
    from ldpstream.planning.capacity import plan as plan_of
    from ldpstream.surveys import load_survey

    survey = load_survey(survey_file)
    try:
        found = plan_of(survey, devices, every, batch=batch)
    except ValueError as error:
        fail(str(error))
    console.print(f"{survey.name}: {found.devices:,.0f} devices, a report every {found.every_seconds:,.0f} s.", markup=False)
    console.print(f"On average {found.requests:,.1f} requests and {found.records:,.1f} records a second.")
    if (busy := found.serve_cores * PEAK) <= SERVE_ENOUGH and found.estimator_seconds <= survey.step_seconds / 2:
        console.print(
            f"One machine is enough: at {PEAK} times the average load, `ldpstream serve` uses {busy:.2g} of a core for the "
            "reports (docs/serve.md). The table is for several machines.",
            markup=False,
        )
    needs = table("Needs of each station", "station", "needs", "measured cost", texts=3)
    for row in rows(found):
        needs.add_row(*row)
    console.print(needs)
    if found.estimator_seconds > survey.step_seconds / 2:
        console.print("The estimates of a step take more than half a step: use longer steps or fewer values.")
    console.print(f"Numbers of processes are for {PEAK} times the average load. Sources of the costs: docs/capacity.md.")
    write_json(json, found)


def rows(found: "Deployment") -> list[tuple[str, str, str]]:
    from ldpstream.planning.capacity import AGENT_US, COMMIT_S, GATEWAY_US
    from ldpstream.surveys.report_key import MAX_KEYS

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
