"""Starts Kafka and Redis on this machine, without containers, and prints the commands that use them.

python -m deploy.local [SURVEY] [--folder DIR]      also `make try-services`; `make services` installs what it needs
"""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Never

import typer

from deploy.local import kafka_jars
from deploy.local.nodes import Node, NodeError
from deploy.local.servers import KafkaNode, RedisNode, missing
from ldpstream import surveys
from ldpstream.commands.arguments import DEMO_SURVEY, SurveyOrDemo
from ldpstream.commands.cli import run
from ldpstream.commands.trial import temporary_folder, until_ctrl_c
from ldpstream.output.terminal import tell
from ldpstream.runtime.settings import PREFIX, load_settings
from ldpstream.services.trial.ports import LOOPBACK, port_or_free
from ldpstream.services.trial.trial import Tell, chosen_port, ports_of, tokens_file

KAFKA_PORT, CONTROLLER_PORT, REDIS_PORT = 9092, 9093, 6379
LOOK_S = 0.5  # time between two looks at the processes

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Services:
    kafka: KafkaNode
    redis: RedisNode


@app.command()
def services_command(
    survey_file: SurveyOrDemo = DEMO_SURVEY,
    folder: Annotated[Path | None, typer.Option(metavar="DIR", help="keep the data here", show_default="temporary")] = None,
) -> None:
    """Start Kafka and Redis on this machine, and print the commands that use them. A taken port is replaced."""
    surveys.load_survey(survey_file)
    wanted = ports_of(load_settings())
    place = temporary_folder() if folder is None else nullcontext(folder.absolute())
    with until_ctrl_c(), place as data, services(data, tell) as running:
        kept = "a temporary folder, deleted at the end" if folder is None else str(data)
        tell(f"Their data are in {kept}. Ctrl-C ends both.")
        tell("Open other terminals in this folder, and type one command in each:\n")
        for line in what_to_type(running, wanted, survey_file, data):
            tell(f"    {line}")
        watch([running.kafka, running.redis])


@contextmanager
def services(folder: Path, tell: Tell) -> Iterator[Services]:
    """Runs Kafka and Redis on loopback until the context ends. If a usual port is taken, uses another port and calls `tell`.

    Raises:
        NodeError: if a program is missing, the jars of Kafka cannot be fetched, or a server does not start.
    """
    if (lacking := missing()) is not None:
        raise NodeError(lacking)
    if not kafka_jars.cached():
        tell(f"Maven fetches Apache Kafka {kafka_jars.KAFKA_VERSION}, once (43 MB) …")
    ports = [chosen_port("Kafka", KAFKA_PORT, tell), port_or_free(CONTROLLER_PORT)]
    try:
        kafka = KafkaNode(ports, folder / "kafka")
    except kafka_jars.JarsError as error:
        raise NodeError(str(error)) from None
    redis = RedisNode([chosen_port("Redis", REDIS_PORT, tell)], folder / "redis")
    tell("Kafka and Redis start …")
    with kafka, redis:
        tell(f"Kafka listens on {kafka.bootstrap}, Redis on {redis.url}.")
        yield Services(kafka, redis)


def what_to_type(running: Services, wanted: tuple[int, int], survey_file: Path, folder: Path) -> list[str]:
    """Returns the lines to type: the settings for every terminal, and then the commands.

    Args:
        wanted: the ports of page and gateway; a taken port is replaced by a free one.
        folder: folder for the tokens file.
    """
    page, gateway = map(port_or_free, wanted)
    settings = {
        "KAFKA": running.kafka.bootstrap, "REDIS": running.redis.url,
        "PAGE_PORT": str(page), "GATEWAY_PORT": str(gateway), "GATEWAY_TOKENS_FILE": tokens_file(folder),
    }  # fmt: skip
    exports = [f"{PREFIX}{name}={shlex.quote(value)}" for name, value in settings.items()]
    commands = [
        f"ldpstream rehearse {shlex.quote(str(survey_file))} now.toml",
        "ldpstream agent now.toml",
        f"ldpstream estimate now.toml          # the page: http://{LOOPBACK}:{page}/",
        "ldpstream gateway now.toml",
        f"ldpstream produce now.toml --steps 100 --gateway http://{LOOPBACK}:{gateway}",
    ]
    return [f"export {' '.join(exports)}          # first, in every terminal", *commands]


def watch(nodes: Sequence[Node]) -> Never:
    """Raises `NodeError` as soon as a node ends."""
    while True:
        for node in nodes:
            node.check()
        time.sleep(LOOK_S)


if __name__ == "__main__":
    run(app)
