"""Kafka and Redis with access control: the rights in docs/howto/security.md are sufficient, and each right is needed."""

import asyncio
import json
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from deploy.local.kafka_jars import JarsError
from ldpstream.agents.tally import Record, tally
from ldpstream.engines import StoreUnavailable
from ldpstream.engines.count_store import StoreRefused
from ldpstream.engines.gateway_log import Keyed, Outcome
from ldpstream.engines.kafka.gateway_clients import kafka_consumer, kafka_producer
from ldpstream.engines.kafka.kafka_connection import KafkaConnection
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import TopicError, check_broker, ensure_topics
from ldpstream.producers.kafka_sink import KafkaSink
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink, SinkError
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.services.demo import EmbeddedService
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import load_survey
from tests.conftest import give_up

from .certificates import Authority
from .rig import PATIENCE_S, STOPPED, free_ports, missing, patiently, reached, wait_until
from .rig_secure import SecureKafkaNode, SecureRedisNode
from .secure_site import (
    DEMO,
    EXERCISES,
    KAFKA_RIGHTS,
    REDIS_RULES,
    ROLES,
    Process,
    Site,
    environment,
    exercise_agent,
    operation,
)

# If the broker closes the connection right after an answer, kafka-python drops this answer.
NOT_LET_IN = r".*(invalid credentials with SASL mechanism SCRAM-SHA-512|are user nobody and password right\?)"
STEP_S, STEPS, USERS, SEED = 4, 2, 3000, 4
LATENESS = 7  # in steps: time limit for sending the reports of one step


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A Kafka and a Redis with access control, started for this module."""
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


Launch = Callable[..., Process]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a command with its output in NAME.log. The fixture ends the command after the test."""
    started: list[Process] = []

    def start(name: str, env: dict[str, str], *command: object) -> Process:
        started.append(Process(tmp_path / f"{name}.log", env, "ldpstream", *command))
        return started[-1]

    yield start
    for process in started:
        process.finish(0)


def test_the_tables_in_the_docs_are_parsed() -> None:
    assert {right[0] for right in KAFKA_RIGHTS} == set(ROLES)
    assert {operation(op) for who, kind, _, op in KAFKA_RIGHTS if who == "agent"} == {"READ", "DESCRIBE_CONFIGS", "WRITE"}
    assert set(REDIS_RULES) == {"agent", "estimator"}


# ---- the whole pipeline


@pytest.mark.usefixtures("kernels")
def test_the_pipeline_counts_exactly_with_the_documented_rights(site: Site, launch: Launch, tmp_path: Path) -> None:
    """Each process logs in as a different user. No output shows a secret."""
    source, file = tmp_path / "source.toml", tmp_path / "survey.toml"
    text = DEMO.read_text().replace('name = "demo"', f'name = "secure-{secrets.token_hex(4)}"')
    source.write_text(text.replace("lateness_steps = 1", f"lateness_steps = {LATENESS}"))
    survey = rehearse(source, file, STEP_S, now_s=time.time())
    site.make_topics(survey)
    settings = {role: site.user(role, survey.name) for role in ROLES}
    port = free_ports(1)[0]
    debug = {"LDPSTREAM_LOG_LEVEL": "debug", "LDPSTREAM_PAGE_PORT": 0}
    url = site.redis.url.replace("://", "://{}:{}@".format(*(quote(w, safe="") for w in redis_login(settings["estimator"]))))
    (tmp_path / "url").write_text(url)
    own = {
        "producer": environment(settings["producer"], tmp_path, **debug),
        "agent": environment(settings["agent"], tmp_path, **debug, LDPSTREAM_METRICS_PORT=port),
        "estimator": environment(settings["estimator"], tmp_path, **debug, LDPSTREAM_REDIS_FILE=tmp_path / "url"),
    }
    for variable in ("LDPSTREAM_REDIS", "LDPSTREAM_REDIS_USER", "LDPSTREAM_REDIS_PASSWORD_FILE"):
        del own["estimator"][variable]  # the URL holds the values of these three variables
    sent = tmp_path / "sent.json"
    options = ["--users", USERS, "--steps", STEPS, "--seed", SEED, "--json", sent]
    produce = launch("produce", own["producer"], "produce", file, *options)
    agent = launch("agent", own["agent"], "agent", file)
    status = {"produce": produce.finish()}
    assert status["produce"][0] == 0, status
    steps = sorted({row["step"] for row in json.loads(sent.read_text())["produced"]})
    assert len(steps) == STEPS
    estimate = launch("estimate", own["estimator"], "estimate", file)
    with closing(connect(settings["estimator"])) as client:
        results = KeptResults(survey, RedisResults(survey, client))
        wait_until(lambda: reached(results.progress(), steps[-1]), lambda: "not all steps are final")
        published = [p for p in results.history() if p.span == "step" and p.step <= steps[-1]]
    estimate.process.terminate()
    status["estimate"] = estimate.finish()
    agent.process.send_signal(signal.SIGTERM)
    status["agent"] = agent.finish()
    ends = "\n".join(f"{name}: {code}\n{output[-4000:]}" for name, (code, output) in status.items())
    assert (status["estimate"][0], status["agent"][0] in STOPPED) == (0, True), ends

    source_of_values = MarkovValues(survey, USERS, STEPS, SEED)
    service, population = EmbeddedService(survey), Population(survey, source_of_values, SEED)
    for turn, step in enumerate(steps):
        service.now_ms = survey.opens_ms(step)
        produce_step(survey, population, MemorySink(service.append), step, turn=turn)
    direct = tally(survey, list(map(Record, *service.log.read(0, 2**53))))
    with connect(settings["estimator"]) as client:
        store = RedisCountStore(survey, client)
        assert store.tables(range(steps[-1] + 1)) == direct.counts
        assert not any(store.rejected().values())
    reported = sum(row["reports"] for row in json.loads(sent.read_text())["produced"])
    assert direct.reports == reported > USERS
    assert sum(p.reports for p in published) == reported
    assert all(p.complete for p in published)

    shown = "".join(path.read_text() for path in (*tmp_path.glob("*.log"), *tmp_path.glob("*.json")))
    assert len(shown) > 10_000
    for secret in site.secrets:
        assert secret not in shown
        assert quote(secret, safe="") not in shown
        assert secret.partition(":")[0] not in shown  # the part before the colon has no encoded characters


def redis_login(settings: Settings) -> tuple[str, str]:
    url = settings.redis_url()
    assert url.user is not None
    assert url.password is not None
    return url.user, url.password.get_secret_value()


# ---- each right is needed


@pytest.mark.parametrize("right", KAFKA_RIGHTS, ids=" ".join)
def test_each_kafka_right_is_needed_and_checked_at_the_start(
    right: tuple[str, str, str, str], site: Site, tmp_path: Path
) -> None:
    role: Any = right[0]
    survey = site.survey(f"k{secrets.token_hex(4)}", tmp_path)
    allowed, lacking = site.user(role, survey.name), site.user(role, survey.name, but=right)
    patiently(lambda: ensure_topics(allowed, survey, role))
    with pytest.raises((TopicError, SettingsError)) as caught:
        patiently(lambda: ensure_topics(lacking, survey, role))
        if role == "estimator":
            KafkaPublisher(survey, lacking)
    said = str(caught.value)
    assert "\n" not in said
    assert f"user {lacking.kafka_user}" in said
    assert right[2].replace("NAME", survey.name).rstrip("*") in said


@pytest.mark.parametrize("role", REDIS_RULES)
def test_each_redis_right_is_needed(role: str, site: Site, tmp_path: Path) -> None:
    survey, rules = load_survey(DEMO), REDIS_RULES[role]
    exercise = EXERCISES[role]
    allowed = site.redis_user("demo", rules)
    agent = site.redis_user("demo", REDIS_RULES["agent"])
    exercise_agent(survey, agent)  # gives the estimator a pane to prune
    exercise(survey, allowed)
    for found in re.finditer(r"[+~][^\s()]+", rules):
        lacking = site.redis_user("demo", rules[: found.start()] + rules[found.end() :])
        exercise_agent(survey, agent)
        with site.redis.client() as client:
            client.script_flush()
        with pytest.raises(StoreUnavailable):
            exercise(survey, lacking)
            pytest.fail(f"{found[0]} is not needed")


# ---- rights to write


def test_each_user_writes_only_where_the_docs_allow(site: Site, tmp_path: Path) -> None:
    survey = site.survey(f"w{secrets.token_hex(4)}", tmp_path)
    users = {role: site.user(role, survey.name) for role in ROLES}
    may = {
        ("producer", survey.reports_topic),
        ("gateway", survey.reports_topic),
        ("agent", survey.survey_topic),
        ("estimator", survey.reports_topic),  # markers
        ("estimator", survey.estimates_topic),
    }
    for role, settings in users.items():
        for topic in (survey.reports_topic, survey.survey_topic, survey.estimates_topic):
            with closing(KafkaProducer(**settings.kafka_options(), acks="all", max_block_ms=60_000)) as producer:
                if (role, topic) in may:
                    producer.send(topic, b"x", b"key").get(timeout=PATIENCE_S)
                else:
                    with pytest.raises(TopicAuthorizationFailedError):
                        producer.send(topic, b"x", b"key").get(timeout=PATIENCE_S)
    tag = f"{survey.name}:{survey.fingerprint.hex()}"
    writes: list[tuple[str, tuple[object, ...]]] = [  # roles with the right to run the command, and the command
        ("agent", ("HSET", f"ldpstream:{{{tag}:0}}:counts", "next_offset", 1)),
        ("agent", ("SADD", f"ldpstream:{tag}:partitions", 1)),
        ("agent, estimator", ("HDEL", f"ldpstream:{{{tag}:0}}:counts", "next_offset")),
        ("agent", ("APPEND", f"ldpstream:{{{tag}:0}}:keys:4", bytes(8))),
        ("agent", ("GET", f"ldpstream:{{{tag}:0}}:keys:4")),
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
                    with pytest.raises(StoreRefused, match="no permissions"):
                        give(*command)


# ---- logging in


def test_every_way_to_log_in_works(site: Site) -> None:
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
        exercise_agent(load_survey(DEMO), Settings(redis=url, **shown))
        with pytest.raises(StoreRefused, match=r"EOF occurred|certificate required"):
            exercise_agent(load_survey(DEMO), Settings(redis=url, redis_ca_file=site.authority.file))


async def test_a_gateways_producer_logs_in_with_a_producers_rights(site: Site, tmp_path: Path) -> None:
    survey = site.survey(f"g{secrets.token_hex(4)}", tmp_path)
    settings = site.user("producer", survey.name)
    kafka = KafkaConnection(lambda: kafka_producer(settings), lambda: kafka_consumer(settings))
    log = kafka.add(survey)
    await kafka.start()
    outcome = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not log.ready:  # noqa: ASYNC110  # the log has no event
                await asyncio.sleep(0.1)
            began_ms = now_ms()
            keyed = Keyed(bytes(16), survey.step_at(began_ms), began_ms)
            log.append([b"one", b"two"], keyed, lambda *result: outcome.set_result(result))
            result, appended_ms = await outcome
            assert result is Outcome.APPENDED
            assert began_ms <= appended_ms <= now_ms()  # the broker acknowledges with the append time; one machine, one clock
    finally:
        await kafka.close()


def test_a_refused_client_gets_the_reason(site: Site, tmp_path: Path) -> None:
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
    with closing(LogClient(nobody)) as client, pytest.raises(LogUnavailable, match=f"Kafka at .*: {NOT_LET_IN}"):
        client.described("reports")


def test_a_refused_process_reports_the_reason_in_one_line(site: Site, launch: Launch, tmp_path: Path) -> None:
    survey = site.survey(f"p{secrets.token_hex(4)}", tmp_path)
    file, other = tmp_path / f"{survey.name}.toml", Authority(tmp_path, "other").file
    agent, estimator, producer = (site.user(role, survey.name) for role in ("agent", "estimator", "producer"))
    changed: list[tuple[str, Settings, dict[str, object], str]] = [
        ("agent", agent, {"LDPSTREAM_KAFKA_USER": "nobody"}, f"Kafka at {NOT_LET_IN}"),
        ("agent", agent, {"LDPSTREAM_REDIS_USER": "nobody"}, "Redis at .* invalid username-password pair"),
        ("estimate", estimator, {"LDPSTREAM_REDIS_USER": "nobody"}, "Redis at .* invalid username-password pair"),
        ("produce", producer, {"LDPSTREAM_KAFKA_CA_FILE": other}, "Kafka at .* certificate verify failed"),
    ]
    started = [
        launch(f"{i}", environment(settings, tmp_path, **more), command, file)
        for i, (command, settings, more, _) in enumerate(changed)
    ]
    for process, (_, _, _, said) in zip(started, changed, strict=True):
        status, output = process.finish()
        lines = [line for line in output.splitlines() if not line.startswith("{")]
        assert status == 2, output
        assert len(lines) == 1, output
        assert re.match(f"ldpstream( agent)?: {said}", lines[0]), output
        assert not any(secret in output for secret in site.secrets)


def test_the_error_names_a_topic_that_may_not_be_created(site: Site, tmp_path: Path) -> None:
    survey = load_survey(DEMO)
    settings = site.user("producer", survey.name)
    hidden = (
        f"topic {survey.reports_topic} does not exist or is hidden from user {settings.kafka_user} (no right to DESCRIBE it)"
    )
    with pytest.raises(TopicError, match=re.escape(f"{hidden}, who may not CREATE it either")):
        ensure_topics(settings, survey, "producer")
    site.kafka.grant(f"User:{settings.kafka_user}", [("topic", f"ldpstream.{survey.name}.*", "create")])
    ensure_topics(settings, survey, "producer")  # with the right, the producer creates its topics
