"""Kafka and Redis that let in only whom they know: the rights that docs/security.md lists are enough, and each is needed."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from redis.exceptions import NoPermissionError

from agents import Checkpoint, StoreUnavailable, topics
from agents.redis_connection import StoreRefused, connect
from agents.redis_store import RedisCountStore
from agents.tally import PaneKey, tally
from agents.topics import TopicError, check_broker, ensure_topics
from estimators.log_position import KafkaLogPosition, LogUnavailable
from estimators.publication import conclude
from estimators.results import RedisResults
from estimators.schedule import Progress
from ldpstream.embedded import MemoryLog
from ldpstream.rehearse import rehearse
from mechanisms import CountTable, Longitudinal
from producers import sinks
from producers.gateway_log import KafkaLog, kafka_producer
from producers.population import Population
from producers.produce import produce_step
from producers.sinks import KafkaSink, MemorySink, SinkError
from producers.values import MarkovValues
from surveys import Survey, load_survey
from surveys.settings import Settings

from .certificates import Authority
from .conftest import give_up
from .kafka_jars import JarsError
from .rig import free_ports, missing
from .rig_secure import SecureKafkaNode, SecureRedisNode

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "surveys" / "samples" / "demo.toml"
TEXT = (ROOT / "docs" / "security.md").read_text()
ROLES: tuple[topics.Role, ...] = ("producer", "agent", "estimator")
KAFKA_TABLE = re.findall(r"^\| (\w+) \| (topic|group) \| `(\S+)` \| ([\w, ]+) \|$", TEXT, re.MULTILINE)
KAFKA_RIGHTS = [(who, kind, name, op) for who, kind, name, ops in KAFKA_TABLE for op in ops.split(", ")]
REDIS_RULES = dict(re.findall(r"^    user (\w+) on >PASSWORD resetchannels (.*)$", TEXT, re.MULTILINE))
# kafka-python drops the broker's answer if the end of the connection comes with it
NOT_LET_IN = r".*(invalid credentials with SASL mechanism SCRAM-SHA-512|are user nobody and password right\?)"
STEP_S, STEPS, USERS, SEED = 3, 2, 3000, 4


def operation(name: str) -> str:
    """As kafka-python calls it: ``DescribeConfigs`` is ``DESCRIBE_CONFIGS``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


@dataclass
class Site:
    """A Kafka and a Redis with users, and the secrets that nobody may ever see."""

    authority: Authority
    kafka: SecureKafkaNode
    redis: SecureRedisNode
    folder: Path
    secrets: list[str] = field(default_factory=list)

    def password(self) -> str:
        """A new password, with what URLs and shells trip over."""
        self.secrets.append(f"{secrets.token_hex(8)}:@/%#$&\"'")
        return self.secrets[-1]

    def survey(self, name: str, folder: Path) -> Survey:
        """A survey of that name with its topics, made by an operator."""
        file = folder / f"{name}.toml"
        file.write_text(DEMO.read_text().replace('name = "demo"', f'name = "{name}"'))
        survey = load_survey(file)
        self.make_topics(survey)
        return survey

    def make_topics(self, survey: Survey) -> None:
        """As whoever may do everything."""
        user, password = "admin", self.kafka.admin_options["sasl_plain_password"]
        ensure_topics(self.kafka.settings(user, password), survey)

    def user(self, role: str, survey: str, but: tuple[str, ...] = (), rules: str | None = None) -> Settings:
        """The settings of somebody new with the rights of that role.

        Args:
            role: of the tables of docs/security.md.
            survey: its name.
            but: the row of `KAFKA_RIGHTS` that is left out.
            rules: instead of the role's in Redis.
        """
        name, password = f"{role}-{secrets.token_hex(4)}", self.password()
        self.kafka.add_user(name, password)
        rights = [right[1:] for right in KAFKA_RIGHTS if right[0] == role and right != but]
        granted = [(kind, what.replace("NAME", survey), operation(op)) for kind, what, op in rights]
        if granted:
            self.kafka.grant(f"User:{name}", granted)
        rules = REDIS_RULES.get(role) if rules is None else rules
        known = {} if rules is None else self._redis_user(name, password, survey, rules)
        return self.kafka.settings(name, password, **known)

    def redis_user(self, survey: str, rules: str) -> Settings:
        """The same for Redis alone."""
        return Settings(**self._redis_user(secrets.token_hex(4), self.password(), survey, rules))

    def _redis_user(self, name: str, password: str, survey: str, rules: str) -> dict[str, Any]:
        self.redis.set_user(name, password, rules.replace("NAME", survey))
        known = {"redis_user": name, "redis_password": password, "redis_ca_file": self.authority.file}
        return {"redis": self.redis.url} | known


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The two, started for this module."""
    if reason := missing():
        give_up(reason)
    folder = tmp_path_factory.mktemp("security")
    authority = Authority(folder)
    try:
        node = SecureKafkaNode(authority)
    except JarsError as error:
        give_up(str(error))
    with node as kafka, SecureRedisNode(authority, {}) as redis:
        yield Site(authority, kafka, redis, folder)


def environment(settings: Settings, folder: Path, **more: object) -> dict[str, str]:
    """What makes a process have these settings; passwords in files."""
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
    """A command of ldpstream."""

    def __init__(self, log: Path, env: dict[str, str], *command: object) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *map(str, command)], env=env, cwd=log.parent, stdout=out, stderr=out
            )

    def finish(self, timeout_s: float) -> tuple[int | None, str]:
        """Exit status and output; a process that takes longer is killed."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None, self.log.read_text()
        return self.process.returncode, self.log.read_text()


Launch = Callable[..., Process]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a command, with its output in a file of that name; none outlives the test."""
    started: list[Process] = []

    def start(name: str, env: dict[str, str], *command: object) -> Process:
        started.append(Process(tmp_path / f"{name}.log", env, "ldpstream", *command))
        return started[-1]

    yield start
    for process in started:
        process.finish(0)


def test_the_tables_of_the_documentation_are_read() -> None:
    assert {right[0] for right in KAFKA_RIGHTS} == set(ROLES)
    assert {operation(op) for who, kind, _, op in KAFKA_RIGHTS if who == "agent"} == {"READ", "DESCRIBE_CONFIGS", "WRITE"}
    assert set(REDIS_RULES) == {"agent", "estimator"}


# ---- the whole pipeline


def test_the_pipeline_counts_exactly_with_the_rights_of_the_tables(site: Site, launch: Launch, tmp_path: Path) -> None:
    """Every process as a user of its own, from certificates and passwords to histograms; no secret in any output."""
    source, file = tmp_path / "source.toml", tmp_path / "survey.toml"
    source.write_text(DEMO.read_text().replace('name = "demo"', f'name = "secure-{secrets.token_hex(4)}"'))
    survey = rehearse(source, file, STEP_S, starts_in=14, now_s=time.time())
    site.make_topics(survey)
    settings = {role: site.user(role, survey.name) for role in ROLES}
    port = free_ports(1)[0]
    debug = {"LDPSTREAM_LOG_LEVEL": "debug", "LDPSTREAM_COMMIT_INTERVAL_MS": 200}
    url = site.redis.url.replace("://", "://{}:{}@".format(*(quote(w, safe="") for w in redis_login(settings["estimator"]))))
    (tmp_path / "url").write_text(url)
    own = {
        "producer": environment(settings["producer"], tmp_path, **debug),
        "agent": environment(settings["agent"], tmp_path, **debug, LDPSTREAM_METRICS_PORT=port),
        "estimator": environment(settings["estimator"], tmp_path, **debug, LDPSTREAM_REDIS_FILE=tmp_path / "url"),
    }
    for variable in ("LDPSTREAM_REDIS", "LDPSTREAM_REDIS_USER", "LDPSTREAM_REDIS_PASSWORD_FILE"):
        del own["estimator"][variable]  # that is all in the URL
    agent = launch("agent", own["agent"], "agent", file)
    sent = tmp_path / "sent.json"
    options = ["--users", USERS, "--steps", STEPS, "--seed", SEED, "--json", sent]
    produce = launch("produce", own["producer"], "produce", file, *options)
    out = tmp_path / "estimates.json"
    told = ["--until", STEPS - 1, "--json", out]
    estimate = launch("estimate", own["estimator"], "estimate", file, *told)
    status = {name: process.finish(60) for name, process in (("produce", produce), ("estimate", estimate))}
    agent.process.send_signal(signal.SIGTERM)
    status["agent"] = agent.finish(15)
    assert [code for code, _ in status.values()] == [0, 0, 0], status

    source_of_values = MarkovValues(survey, USERS, STEPS, SEED)
    log, population = MemoryLog(1, survey.opens_ms(0)), Population(survey, source_of_values, SEED)
    for step in range(STEPS):
        log.now_ms = survey.opens_ms(step)
        produce_step(survey, population, MemorySink(log.append), step)
    direct = tally(survey, log.partitions[0])
    with closing(RedisCountStore(survey, settings["estimator"])) as store:
        assert store.tables(range(STEPS)) == direct.counts
        assert not any(store.rejected().values())
    reported = sum(row["reports"] for row in json.loads(sent.read_text())["produced"])
    assert direct.reports == reported > USERS
    published = [e for e in json.loads(out.read_text())["estimates"] if e["span"] == "step" and e["step"] < STEPS]
    assert sum(e["reports"] for e in published) == reported
    assert all(e["complete"] for e in published)

    shown = "".join(path.read_text() for path in (*tmp_path.glob("*.log"), *tmp_path.glob("*.json")))
    assert len(shown) > 10_000
    for secret in site.secrets:
        assert secret not in shown
        assert quote(secret, safe="") not in shown
        assert secret.partition(":")[0] not in shown  # nor the part that no encoding changes


def redis_login(settings: Settings) -> tuple[str, str]:
    user, password = settings.redis_credentials()
    assert user is not None
    assert password is not None
    return user, password


# ---- each right is needed


@pytest.mark.parametrize("right", KAFKA_RIGHTS, ids=" ".join)
def test_each_right_in_kafka_is_needed_and_its_lack_is_one_line_at_the_start(
    right: tuple[str, str, str, str], site: Site, tmp_path: Path
) -> None:
    role: Any = right[0]
    survey = site.survey(f"k{secrets.token_hex(4)}", tmp_path)
    ensure_topics(site.user(role, survey.name), survey, role)
    lacking = site.user(role, survey.name, but=right)
    with pytest.raises(TopicError) as caught:
        ensure_topics(lacking, survey, role)
    said = str(caught.value)
    assert "\n" not in said
    assert f"user {lacking.kafka_user}" in said
    assert right[2].replace("NAME", survey.name).rstrip("*") in said


def a_pane(survey: Survey) -> dict[PaneKey, CountTable]:
    mechanism, rng = survey.mechanisms[0][0], np.random.default_rng(1)
    assert isinstance(mechanism, Longitudinal)
    return {PaneKey(0, 0, 0): mechanism.tabulate(mechanism.report(mechanism.memoize(np.zeros(3, np.int64), rng), rng))}


def exercise_agent(survey: Survey, settings: Settings) -> None:
    """All that an agent asks of Redis."""
    with closing(RedisCountStore(survey, settings)) as store:
        offset = store.positions().get(0)
        empty = {PaneKey(0, 0, 1): survey.mechanisms[0][0].empty_table()}  # which is removed
        assert store.commit(0, offset, Checkpoint((offset or 0) + 1, survey.start_ms, a_pane(survey) | empty))
        assert store.load(0) is not None
        assert store.evicts() is None


def exercise_estimator(survey: Survey, settings: Settings) -> None:
    """All that an estimator asks of Redis."""
    with closing(RedisCountStore(survey, settings)) as store, closing(connect(settings)) as client:
        results = RedisResults(survey, client)
        store.positions()
        store.tables(range(3))
        store.prune(10**6)
        before, nothing = results.progress(), [[m.empty_table() for m in survey.mechanisms[0]]]
        publication = conclude(survey, 0, 0, "step", nothing, True, "none")
        assert results.save([publication], before, Progress(first_step=0, next_step=(before.next_step if before else 0) + 1))
        assert results.get([publication.key]) == [publication]
        results.history()
        assert results.lead()
        results.resign()


def check_agent(survey: Survey, settings: Settings) -> None:
    with closing(RedisCountStore(survey, settings)) as store:
        store.check_counting()


def check_estimator(survey: Survey, settings: Settings) -> None:
    with closing(RedisCountStore(survey, settings)) as store, closing(connect(settings)) as client:
        store.check_estimating()
        RedisResults(survey, client).check(settings)


CHECKS: dict[str, tuple[Callable[[Survey, Settings], None], Callable[[Survey, Settings], None]]] = {
    "agent": (check_agent, exercise_agent),
    "estimator": (check_estimator, exercise_estimator),
}


@pytest.mark.parametrize("role", REDIS_RULES)
def test_each_right_in_redis_is_needed_and_its_lack_is_one_line_at_the_start(role: str, site: Site, tmp_path: Path) -> None:
    survey, rules = load_survey(DEMO), REDIS_RULES[role]
    check, exercise = CHECKS[role]
    allowed = site.redis_user("demo", rules)
    agent = site.redis_user("demo", REDIS_RULES["agent"])
    check(survey, allowed)
    exercise_agent(survey, agent)  # so that there is something to prune
    exercise(survey, allowed)
    for found in re.finditer(r"[+~][^\s()]+", rules):
        lacking = site.redis_user("demo", rules[: found.start()] + rules[found.end() :])
        with site.redis.client() as client:
            client.script_flush()
        with pytest.raises(StoreRefused, match=f"^Redis at {site.redis.url[9:-2]}: [^\n]*$"):
            check(survey, lacking)
            pytest.fail(f"{found[0]} is not needed, or its lack not noticed")
        exercise_agent(survey, agent)
        with site.redis.client() as client:
            client.script_flush()
        with pytest.raises(StoreUnavailable):
            exercise(survey, lacking)
            pytest.fail(f"{found[0]} is not needed")


# ---- who may write what


def test_nobody_writes_but_where_the_tables_say(site: Site, tmp_path: Path) -> None:
    survey = site.survey(f"w{secrets.token_hex(4)}", tmp_path)
    users = {role: site.user(role, survey.name) for role in ROLES}
    may = {("producer", survey.reports_topic), ("agent", survey.rejected_topic), ("estimator", survey.estimates_topic)}
    for role, settings in users.items():
        for topic in (survey.reports_topic, survey.rejected_topic, survey.estimates_topic):
            with closing(KafkaProducer(**settings.kafka_options(), acks="all", max_block_ms=5000)) as producer:
                if (role, topic) in may:
                    producer.send(topic, b"x", b"key").get(timeout=10)
                else:
                    with pytest.raises(TopicAuthorizationFailedError):
                        producer.send(topic, b"x", b"key").get(timeout=10)
    tag = f"{survey.name}:{survey.fingerprint.hex()}"
    writes: list[tuple[str, tuple[object, ...]]] = [  # who may, and what
        ("agent", ("HSET", f"ldpstream:{{{tag}:0}}:counts", "next_offset", 1)),
        ("agent", ("SADD", f"ldpstream:{tag}:partitions", 1)),
        ("agent, estimator", ("HDEL", f"ldpstream:{{{tag}:0}}:counts", "next_offset")),
        ("estimator", ("SET", f"ldpstream:{{{tag}}}:progress", "1")),
        ("estimator", ("HSET", f"ldpstream:{{{tag}}}:estimates", "f", 1)),
        ("nobody", ("DEL", f"ldpstream:{{{tag}:0}}:counts")),
        ("nobody", ("HSET", "ldpstream:{other:1:0}:counts", "next_offset", 1)),
        ("nobody", ("FLUSHALL",)),
        ("nobody", ("CONFIG SET", "maxmemory", "1")),
        ("nobody", ("ACL SETUSER", "me", "on")),
    ]
    for role in ("agent", "estimator"):
        with closing(connect(users[role])) as client:
            give: Any = client.execute_command
            for allowed, command in writes:
                if role in allowed:
                    give(*command)
                else:
                    with pytest.raises(NoPermissionError):
                        give(*command)


# ---- getting in


def test_ways_to_log_in(site: Site) -> None:
    password = site.password()
    site.kafka.add_user("short", password, "SCRAM_SHA_256")
    check_broker(site.kafka.settings("short", password, kafka_sasl_mechanism="SCRAM-SHA-256"))
    check_broker(site.kafka.settings("plain", "plain-password", kafka_sasl_mechanism="PLAIN"))
    me = site.authority.issue("device.example", common_name="device")
    mutual: dict[str, Any] = {"kafka_cert_file": me.cert, "kafka_key_file": me.key, "kafka_ca_file": site.authority.file}
    check_broker(Settings(kafka=site.kafka.mutual, kafka_security_protocol="SSL", **mutual))
    with SecureRedisNode(site.authority, {"me": ("pass", "+@all ~*")}, client_certificates=True) as node:
        url = node.url.replace("://", "://me:pass@")
        shown: dict[str, Any] = {"redis_cert_file": me.cert, "redis_key_file": me.key, "redis_ca_file": site.authority.file}
        check_agent(load_survey(DEMO), Settings(redis=url, **shown))
        with pytest.raises(StoreRefused, match=r"EOF occurred|certificate required"):
            check_agent(load_survey(DEMO), Settings(redis=url, redis_ca_file=site.authority.file))


async def test_a_gateways_producer_logs_in_with_a_producers_rights(site: Site, tmp_path: Path) -> None:
    survey = site.survey(f"g{secrets.token_hex(4)}", tmp_path)
    settings = site.user("producer", survey.name)
    log = KafkaLog(survey.reports_topic, lambda: kafka_producer(settings))
    await log.start()
    try:
        await log.append([b"one", b"two"])
    finally:
        await log.close()


def test_whoever_is_not_let_in_is_told_why(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_MS", 1000)
    monkeypatch.setattr(sinks, "CONNECT_MS", 1000)
    survey = site.survey(f"l{secrets.token_hex(4)}", tmp_path)
    sound = site.user("producer", survey.name)
    other = Authority(tmp_path, "other").file
    wrong = {
        NOT_LET_IN: sound.model_copy(update={"kafka_user": "nobody"}),
        "certificate verify failed: unable to get local issuer": sound.model_copy(update={"kafka_ca_file": other}),
        "certificate verify failed: Hostname mismatch": sound.model_copy(
            update={"kafka": site.kafka.bootstrap.replace("127.0.0.1", "localhost")}
        ),
        r"(disconnected|Invalid frame|timed out).* \(does this listener speak PLAINTEXT\?\)": Settings(
            kafka=site.kafka.bootstrap
        ),
        "alert": Settings(kafka=site.kafka.mutual, kafka_security_protocol="SSL", kafka_ca_file=site.authority.file),
    }
    for said, settings in wrong.items():
        with pytest.raises(TopicError, match=f"^Kafka at .*{said}[^\n]*$") as caught:
            check_broker(settings)
        assert not any(secret in str(caught.value) for secret in site.secrets)
    nobody = wrong[NOT_LET_IN]
    with pytest.raises(SinkError, match=f"cannot be reached: {NOT_LET_IN}"):
        KafkaSink(nobody, survey.reports_topic)
    with pytest.raises(SinkError, match="TopicAuthorizationFailed"), closing(KafkaSink(sound, survey.rejected_topic)) as sink:
        sink.send(b"x")
        sink.flush()
    with pytest.raises(LogUnavailable, match=f"no Kafka broker answers at .*: {NOT_LET_IN}"):
        KafkaLogPosition(survey, nobody, timeout_ms=1000)


def test_a_process_that_may_not_start_says_so_in_one_line(site: Site, launch: Launch, tmp_path: Path) -> None:
    survey = site.survey(f"p{secrets.token_hex(4)}", tmp_path)
    file, other = tmp_path / f"{survey.name}.toml", Authority(tmp_path, "other").file
    agent, estimator, producer = (site.user(role, survey.name) for role in ("agent", "estimator", "producer"))
    no_hset = site.user("agent", survey.name, rules=REDIS_RULES["agent"].replace(" +hset", ""))
    changed: list[tuple[str, Settings, dict[str, object], str]] = [
        ("agent", agent, {"LDPSTREAM_KAFKA_USER": "nobody"}, f"Kafka at {NOT_LET_IN}"),
        ("agent", agent, {"LDPSTREAM_REDIS_USER": "nobody"}, "Redis at .* invalid username-password pair"),
        ("agent", no_hset, {}, "Redis at .* may not HSET ldpstream:"),
        ("estimate", estimator, {"LDPSTREAM_REDIS_USER": "nobody"}, "Redis at .* invalid username-password pair"),
        ("produce", producer, {"LDPSTREAM_KAFKA_CA_FILE": other}, "Kafka at .* certificate verify failed"),
    ]
    started = [
        launch(f"{i}", environment(settings, tmp_path, **more), command, file)
        for i, (command, settings, more, _) in enumerate(changed)
    ]
    for process, (_, _, _, said) in zip(started, changed, strict=True):
        status, output = process.finish(90)
        lines = [line for line in output.splitlines() if not line.startswith("{")]
        assert status == 2, output
        assert len(lines) == 1, output
        assert re.match(f"ldpstream( agent)?: {said}", lines[0]), output
        assert not any(secret in output for secret in site.secrets)


def test_a_topic_that_is_missing_and_may_not_be_made_is_named(site: Site, tmp_path: Path) -> None:
    survey = load_survey(DEMO)
    settings = site.user("producer", survey.name)
    hidden = (
        f"topic {survey.reports_topic} does not exist or is hidden from user {settings.kafka_user} (no right to DESCRIBE it)"
    )
    with pytest.raises(TopicError, match=re.escape(f"{hidden}, who may not CREATE it either")):
        ensure_topics(settings, survey, "producer")
    site.kafka.grant(f"User:{settings.kafka_user}", [("topic", f"ldpstream.{survey.name}.*", "create")])
    ensure_topics(settings, survey, "producer")  # with the right it makes what it needs
