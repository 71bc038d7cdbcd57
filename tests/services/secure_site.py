"""A Kafka and a Redis whose users have the rights in docs/howto/security.md, and the operations of each process on Redis."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deploy.local.children import start_child
from ldpstream.engines import Checkpoint, PaneKey
from ldpstream.engines.kafka import topics
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey, load_survey

from .certificates import Authority
from .rig import PATIENCE_S, patiently
from .rig_secure import SecureKafkaNode, SecureRedisNode

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "surveys" / "samples" / "demo.toml"
TEXT = (ROOT / "docs" / "howto" / "security.md").read_text()
ROLES: tuple[topics.Role, ...] = ("producer", "gateway", "agent", "estimator")
KAFKA_TABLE = re.findall(r"^\| (\w+) \| (topic|group|transactional id) \| `(\S+)` \| ([\w, ]+) \|$", TEXT, re.MULTILINE)
KAFKA_RIGHTS = [(who, kind, name, op) for who, kind, name, ops in KAFKA_TABLE for op in ops.split(", ")]
REDIS_RULES = dict(re.findall(r"^    user (\w+) on >PASSWORD resetchannels (.*)$", TEXT, re.MULTILINE))


def operation(name: str) -> str:
    """Kafka-python's name of an operation: ``DESCRIBE_CONFIGS`` for ``DescribeConfigs``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


@dataclass
class Site:
    """A Kafka and a Redis with users, and the secrets that no output may show."""

    authority: Authority
    kafka: SecureKafkaNode
    redis: SecureRedisNode
    folder: Path
    secrets: list[str] = field(default_factory=list)

    def password(self) -> str:
        """A new password, with characters that URLs and shells must escape."""
        self.secrets.append(f"{secrets.token_hex(8)}:@/%#$&\"'")
        return self.secrets[-1]

    def survey(self, name: str, folder: Path) -> Survey:
        """Creates a survey of this name, and creates its topics as the administrator."""
        file = folder / f"{name}.toml"
        file.write_text(DEMO.read_text().replace('name = "demo"', f'name = "{name}"'))
        survey = load_survey(file)
        self.make_topics(survey)
        return survey

    def make_topics(self, survey: Survey) -> None:
        """Creates the survey's topics as the administrator."""
        user, password = "admin", self.kafka.admin_options["sasl_plain_password"]
        patiently(lambda: ensure_topics(self.kafka.settings(user, password), survey))

    def user(self, role: str, survey: str, but: tuple[str, ...] = (), rules: str | None = None) -> Settings:
        """Creates a user with the rights of a role, and returns the user's settings.

        Args:
            role: role in the tables of docs/howto/security.md.
            survey: name of the survey.
            but: row of `KAFKA_RIGHTS` to leave out.
            rules: the user's rules in Redis, instead of the role's rules.
        """
        name, password = f"{role}-{secrets.token_hex(4)}", self.password()
        self.kafka.add_user(name, password)
        rights = [right[1:] for right in KAFKA_RIGHTS if right[0] == role and right != but]
        granted = [(kind.replace(" ", "_"), what.replace("NAME", survey), operation(op)) for kind, what, op in rights]
        if granted:
            self.kafka.grant(f"User:{name}", granted)
        rules = REDIS_RULES.get(role) if rules is None else rules
        known = {} if rules is None else self._redis_user(name, password, survey, rules)
        return self.kafka.settings(name, password, **known)

    def redis_user(self, survey: str, rules: str) -> Settings:
        """Creates a user in Redis but not in Kafka, and returns the user's settings."""
        return Settings(**self._redis_user(secrets.token_hex(4), self.password(), survey, rules))

    def _redis_user(self, name: str, password: str, survey: str, rules: str) -> dict[str, Any]:
        self.redis.set_user(name, password, rules.replace("NAME", survey))
        known = {"redis_user": name, "redis_password": password, "redis_ca_file": self.authority.file}
        return {"redis": self.redis.url} | known


def environment(settings: Settings, folder: Path, **more: object) -> dict[str, str]:
    """Returns the environment variables for these settings, and writes the passwords to files."""
    named: dict[str, object] = {"PYTHONPATH": ROOT}
    for name in ("kafka", "kafka_security_protocol", "kafka_user", "kafka_ca_file", "redis_user", "redis_ca_file"):
        if (value := getattr(settings, name)) is not None:
            named[f"LDPSTREAM_{name.upper()}"] = value
    named["LDPSTREAM_REDIS"] = settings.redis.get_secret_value()
    for name in ("kafka_password", "redis_password"):
        if (secret := getattr(settings, name)) is not None:
            file = folder / f"{name}-{secrets.token_hex(4)}"
            file.write_text(secret.get_secret_value() + "\n")
            named[f"LDPSTREAM_{name.upper()}_FILE"] = file
    bare = {key: value for key, value in os.environ.items() if not key.startswith("LDPSTREAM_")}
    return bare | {key: str(value) for key, value in (named | more).items()}


class Process:
    """A running command of ldpstream."""

    def __init__(self, log: Path, env: dict[str, str], *command: object) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = start_child(
                [sys.executable, "-m", *map(str, command)], env=env, cwd=log.parent, stdout=out, stderr=out
            )

    def finish(self, timeout_s: float = PATIENCE_S) -> tuple[int | None, str]:
        """Returns exit status and output. Kills a process that runs longer than `timeout_s`; the status is then None."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None, self.log.read_text()
        return self.process.returncode, self.log.read_text()


def a_pane(survey: Survey) -> dict[PaneKey, CountTable]:
    mechanism, rng = survey.mechanisms[0][0], np.random.default_rng(1)
    return {PaneKey(0, 0, 0): mechanism.tabulate(mechanism.simulate(np.zeros(3, np.int64), rng))}


def exercise_agent(survey: Survey, settings: Settings) -> None:
    """Performs every operation of an agent on Redis."""
    with connect(settings) as client:
        store = RedisCountStore(survey, client)
        head = store.heads().get(0)
        expected, offset = (None, 0) if head is None else (head.position, head.next_offset)
        empty = {PaneKey(0, 0, 1): survey.mechanisms[0][0].empty_table()}  # the commit removes this empty pane
        for n_keys, keys in (({1: 1}, bytes(8)), ({1: 2}, bytes(8)), ({}, b"")):  # keys are written, appended and removed
            offset += 1
            change = Checkpoint(offset, survey.start_ms, a_pane(survey) | empty, n_keys=n_keys, keys={1: keys})
            assert store.commit(0, expected, change)
            assert store.load(0) is not None
            expected = change.position


def exercise_estimator(survey: Survey, settings: Settings) -> None:
    """Performs every operation of an estimator on Redis."""
    with connect(settings) as client:
        store = RedisCountStore(survey, client)
        results = KeptResults(survey, RedisResults(survey, client))
        store.positions()
        store.tables(range(3))
        store.prune(now_ms(), store.heads())  # the time grows, so each call has something to write
        before, nothing = results.progress(), [[m.empty_table() for m in survey.mechanisms[0]]]
        publication = conclude(survey, 0, 0, "step", nothing, True)
        state = {"screen": LocalLevel(2).to_bytes()}
        progress = Progress(first_step=0, next_step=(before.next_step if before else 0) + 1)
        assert results.save([publication], before, progress, state)
        assert results.filters() == state
        assert results.get([publication.key]) == [publication]
        results.history()
        assert results.lead()
        results.store.resign()


EXERCISES: dict[str, Callable[[Survey, Settings], None]] = {"agent": exercise_agent, "estimator": exercise_estimator}
