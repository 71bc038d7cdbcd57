"""The survey that is kept in Kafka, with real brokers: a process that starts with a changed file of an open survey."""

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaProducer

from ldpstream.engines.kafka.topic_keeper import TopicKeeper
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.keeper import OpenSurveyChanged
from ldpstream.surveys.life.watch import SurveyWatch
from tests.agents.samples import sound

from .agent_site import SURVEY
from .rig import ENDED_S, PATIENCE_S, start_command, wait_until
from .test_survey_folder import FolderGateway


class Files:
    """A folder with one survey that is open for years, and what an agent and a gateway do with it."""

    def __init__(self, folder: Path, kafka: str, redis_url: str, name: str) -> None:
        self.settings = Settings.model_validate({"kafka": kafka, "redis": redis_url})
        self.folder, self.name = folder / "surveys", name
        self.folder.mkdir()
        self.file = self.folder / "one.toml"
        self.environment = dict(os.environ) | {
            "LDPSTREAM_KAFKA": kafka,
            "LDPSTREAM_REDIS": redis_url,
            "LDPSTREAM_GROUP": name,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def write(self, step_seconds: int, head: str = "") -> Survey:
        self.file.write_text(head + SURVEY.format(name=self.name, start="2026-01-05T00:00:00Z", step_seconds=step_seconds))
        return load_survey(self.file)

    def check(self, write: bool = False, path: Path | None = None) -> SurveyWatch:
        """Starts with the present files, and checks every survey."""
        watch = SurveyWatch([path or self.folder])
        ensure_topics(self.settings, load_survey(self.file))
        for text in list(watch.surveys.values()):
            TopicKeeper(self.settings, watch).check(text.survey, write)
        return watch


@pytest.fixture
def files(tmp_path: Path, kafka: str, redis_url: str, topic: str) -> Files:
    return Files(tmp_path, kafka, redis_url, f"kept-{topic[-12:]}")


def test_a_start_with_a_changed_file_keeps_the_open_survey(files: Files) -> None:
    files.write(600)
    files.check()  # only agents keep surveys
    old = files.write(601)
    files.check(write=True)
    new = files.write(602)
    watch = SurveyWatch([files.folder])
    with pytest.raises(OpenSurveyChanged, match=rf'replaces = "{old.fingerprint.hex()}"') as caught:
        TopicKeeper(files.settings, watch).check(new, write=True)
    assert "\n" not in str(caught.value)
    changes = watch.look()
    assert [text.survey for text in changes.added] == [old]
    assert watch.changed == {files.file}
    assert "step_seconds = 601" in changes.added[0].text
    TopicKeeper(files.settings, watch).check(old, write=True)

    new = files.write(602, f'replaces = "{old.fingerprint.hex()}"\n')
    assert files.check(write=True).surveys.keys() == {new.fingerprint}
    files.write(601)
    with pytest.raises(OpenSurveyChanged):  # a pod with a stale file
        files.check()


def test_a_removed_survey_is_forgotten(files: Files) -> None:
    old = files.write(600)
    watch = files.check(write=True)
    other = files.write(601)
    TopicKeeper(files.settings, watch).forget(other)
    with pytest.raises(OpenSurveyChanged):
        files.check(write=True)
    TopicKeeper(files.settings, watch).forget(old)
    files.check(write=True)
    files.write(600)
    with pytest.raises(OpenSurveyChanged):
        files.check()


def test_a_survey_that_lists_many_values_is_kept_in_a_topic_with_several_partitions(files: Files) -> None:
    """The survey's text has more bytes than a broker's or a producer's default limit.

    An operator may have created the topic, with the cluster's number of partitions.
    """
    listed = ", ".join(f'"a label of value {i}"' for i in range(60_000))
    survey = files.write(600)
    text = files.file.read_text()
    head, _, tail = text.partition(next(line for line in text.splitlines() if line.startswith(("values", "size"))))
    with closing(KafkaAdminClient(bootstrap_servers=files.settings.kafka)) as admin:
        admin.create_topics({survey.survey_topic: {"num_partitions": 5, "replication_factor": 1}}, wait_for_metadata=True)
    many = f"{head}values = [{listed}]{tail}"
    files.file.write_text(many)
    files.check(write=True)
    files.file.write_text(many.replace("step_seconds = 600", "step_seconds = 601"))
    with pytest.raises(OpenSurveyChanged):
        files.check()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"no JSON", "in format 1, got another record"),
        (json.dumps({"format": 2, "fingerprint": "0" * 16, "toml": ""}).encode(), "in format 1, got format 2"),
        (json.dumps({"format": 1, "fingerprint": "0" * 16, "toml": "x ="}).encode(), "this version cannot read"),
    ],
)
def test_a_record_that_cannot_be_read_is_one_line(files: Files, value: bytes, said: str) -> None:
    survey = files.write(600)
    files.check()
    with closing(KafkaProducer(bootstrap_servers=files.settings.kafka)) as producer:
        producer.send(survey.survey_topic, value, b"survey").get(PATIENCE_S)
    with pytest.raises(UserError, match=said) as caught:
        files.check(write=True)
    assert "\n" not in str(caught.value)


def test_a_restarted_gateway_serves_the_open_survey(files: Files, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    old = files.write(600)
    files.check(write=True)
    new = files.write(601)
    gateway = FolderGateway(tmp_path / "gateway.log", files.environment, files.folder)
    try:
        gateway.until(sound(old, rng, old.step_at(now_ms()), 0), 202, "")
        assert gateway.surveys() == {old.name: old.fingerprint.hex()}
        assert gateway.post(sound(new, rng, new.step_at(now_ms()), 0))[0] == 503
        files.write(601, f'replaces = "{old.fingerprint.hex()}"\n')
        wait_until(lambda: gateway.surveys() == {new.name: new.fingerprint.hex()}, gateway.log.read_text)
        assert gateway.post(sound(new, rng, new.step_at(now_ms()), 0))[0] == 503  # the agents would refuse the report
        files.check(write=True)  # as an agent does
        gateway.until(sound(new, rng, new.step_at(now_ms()), 0), 202, "")
    finally:
        gateway.process.terminate()
        assert gateway.process.wait(ENDED_S) == 0
    log = gateway.log.read_text()
    assert '"event": "the file of an open survey was changed"' in log
    assert "Traceback" not in log


def test_an_agent_keeps_surveys_and_goes_on_with_the_open_one(files: Files, tmp_path: Path) -> None:
    old, logs = files.write(600), [tmp_path / f"agent-{i}.log" for i in range(3)]

    def start(i: int, path: Path) -> subprocess.Popen[bytes]:
        return start_command(logs[i], files.environment, "agent", path)

    def counts(i: int, survey: Survey) -> None:
        wanted = ('"event": "counting"', f'"survey": "{survey.name}"')
        wait_until(lambda: all(part in logs[i].read_text() for part in wanted), logs[i].read_text)

    for i, path in enumerate((files.folder, files.folder)):
        agent = start(i, path)
        try:
            counts(i, old)
        finally:
            agent.terminate()
            assert agent.wait(ENDED_S) == 0
        files.write(601)
    assert "open survey was changed" not in logs[0].read_text()
    assert "open survey was changed" in logs[1].read_text()
    alone = start(2, files.file)
    assert alone.wait(PATIENCE_S) == 2
    assert logs[2].read_text().count("\n") == 1
    assert f"the file holds another survey, but survey {old.name} with the fingerprint" in logs[2].read_text()
