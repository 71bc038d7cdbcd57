"""The publisher of estimates with a real broker, also during an outage."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from msgspec.structs import replace

from ldpstream.engines.kafka.topics import TopicError, ensure_topics
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import FORMAT, Publication
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.services import kafka_publisher
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.questions import MAX_VALUES

from .rig import KafkaNode, read_records

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")


def publication(survey: Survey, step: int, complete: bool) -> Publication:
    return conclude(survey, 0, step, "step", [[m.empty_table() for m in survey.mechanisms[0]]], complete)


def all_published(settings: Settings, topic: str) -> list[Publication]:
    """All committed publications of the topic, in order."""
    records = read_records(settings.kafka, topic, isolation_level="read_committed")
    return [msgspec.json.decode(record.value, type=Publication) for record in records]


def published(settings: Settings, topic: str) -> list[tuple[int, bool]]:
    """Step and completeness of all publications in the topic."""
    return [(p.step, p.complete) for p in all_published(settings, topic)]


def test_an_abandoned_publication_never_arrives(kafka_node: KafkaNode, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication that times out in a broker's outage never arrives. The publisher must then take over the topic again."""
    survey = replace(SURVEY, name=topic[-40:])
    settings = Settings(kafka=kafka_node.bootstrap)
    ensure_topics(settings, survey)
    with closing(KafkaPublisher(survey, settings)) as publisher:
        with monkeypatch.context() as impatient:
            impatient.setattr(kafka_publisher, "REQUEST_MS", 3000)
            impatient.setattr(kafka_publisher, "DELIVERY_MS", 6000)
            publisher.take_over(0, lambda: True)
        publisher.publish([publication(survey, 0, complete=True)])
        kafka_node.kill()
        with (
            monkeypatch.context() as impatient,
            pytest.raises(LogUnavailable, match=f"Kafka at {settings.kafka} does not accept estimates for"),
        ):
            impatient.setattr(kafka_publisher, "DELIVERY_MS", 0)  # waits 10 s for the commit, not 30 s
            publisher.publish([publication(survey, 1, complete=False)])
        with pytest.raises(LogUnavailable, match="has not taken the topic over"):
            publisher.publish([publication(survey, 1, complete=False)])
        with monkeypatch.context() as impatient, pytest.raises(LogUnavailable, match=r"Kafka at .* does not accept"):
            impatient.setattr(kafka_publisher, "CONNECT_MS", 1000)
            publisher.take_over(0, lambda: True)
        kafka_node.start()
        assert set(publisher.take_over(0, lambda: True)) == {publication(survey, 0, complete=True).key}
        publisher.publish([publication(survey, 2, complete=True)])
    assert published(settings, survey.estimates_topic) == [(0, True), (2, True)]


def test_only_the_last_publisher_to_take_over_can_publish(kafka: str, topic: str) -> None:
    survey, settings = replace(SURVEY, name=topic[-40:]), Settings(kafka=kafka)
    ensure_topics(settings, survey)
    old, new = KafkaPublisher(survey, settings), KafkaPublisher(survey, settings)
    with closing(old), closing(new):
        old.take_over(0, lambda: True)
        old.publish([publication(survey, 0, complete=True), publication(survey, 1, complete=False)])
        told = new.take_over(0, lambda: True)
        assert {(t.step, t.complete, t.reports) for t in told.values()} == {(0, True, 0), (1, False, 0)}
        with pytest.raises(LogUnavailable, match=r"Fenced|Epoch"):
            old.publish([publication(survey, 1, complete=False)])
        new.publish([publication(survey, 1, complete=True)])
        assert new.read(list(told)) == [publication(survey, 0, complete=True), publication(survey, 1, complete=False)]
        assert [t.complete for t in old.take_over(0, lambda: True).values()] == [True, True]
    assert published(settings, survey.estimates_topic) == [(0, True), (1, False), (1, True)]


def test_strange_records_are_skipped_and_those_of_earlier_versions_found(kafka: str, topic: str) -> None:
    """Strange records: another survey's fingerprint under the same name, no publication, or only the summary of one.

    Another version of the program may have written the last kind. The step of such a record is estimated again. The keys of
    earlier versions have no fingerprint.
    """
    survey, settings = replace(SURVEY, name=topic[-40:]), Settings(kafka=kafka)
    ensure_topics(settings, survey)
    first, earlier = publication(survey, 0, complete=True), publication(survey, 1, complete=True)
    other = msgspec.structs.replace(publication(survey, 3, complete=True), fingerprint="00")
    summary = {
        "fingerprint": survey.fingerprint.hex(), "attribute": "a", "span": "step", "step": 0, "complete": True, "reports": 9,
        "format": FORMAT,
    }  # fmt: skip
    with closing(KafkaPublisher(survey, settings)) as publisher:
        publisher.take_over(0, lambda: True)
        publisher.publish([other, first])
        with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
            for key, value in (
                (b"k", b"no JSON"), (b"k", None), (b"\xff", b"[]"), (b"k", b'{"fingerprint": "\xff"}'),
                (b"strange", msgspec.json.encode(summary)), (earlier.key.encode(), msgspec.json.encode(earlier)),
            ):  # fmt: skip
                producer.send(survey.estimates_topic, value, key).get(timeout=30)
        assert set(publisher.take_over(0, lambda: True)) == {first.key, "a|step|0", earlier.key}
        assert publisher.read(["a|step|0"]) == []
        assert publisher.read([earlier.key]) == [earlier]
        for offset in (publisher.end(), 99):
            assert publisher.take_over(offset, lambda: True) == {}


def test_a_take_over_ends_when_another_estimator_leads(kafka: str, topic: str) -> None:
    survey, settings = replace(SURVEY, name=topic[-40:]), Settings(kafka=kafka)
    ensure_topics(settings, survey)
    with closing(KafkaPublisher(survey, settings)) as publisher:
        with pytest.raises(LogUnavailable, match="another estimator leads"):
            publisher.take_over(0, lambda: False)
        publisher.take_over(0, lambda: True)
        publisher.publish([publication(survey, 0, complete=True)])
        leads = iter([True])
        with pytest.raises(LogUnavailable, match="another estimator leads"):
            publisher.take_over(0, lambda: next(leads, False))


def test_a_topic_of_estimates_must_have_one_partition(kafka: str, topic: str) -> None:
    survey, settings = replace(SURVEY, name=topic[-40:]), Settings(kafka=kafka)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics({survey.estimates_topic: {"num_partitions": 2, "replication_factor": 1}}, timeout_ms=30_000)
    with pytest.raises(TopicError, match="must have 1 partition, got 2"):
        ensure_topics(settings, survey, "estimator")


def test_the_largest_publication_is_accepted(kafka: str, topic: str) -> None:
    """The publication has the maximum number of values, each of the maximum length in JSON."""
    survey, settings = replace(SURVEY, name=topic[-40:]), Settings(kafka=kafka)
    ensure_topics(settings, survey)
    longest: list[float | None] = [-1.2345678901234567e-100] * MAX_VALUES
    raw = Frequencies(frequencies=longest, standard_errors=longest, iterations=10_000, converged=False)
    shares = msgspec.structs.replace(raw, low=longest, high=longest)
    large = msgspec.structs.replace(publication(survey, 0, complete=True), estimators={"eb": shares, "mi": raw})
    assert len(msgspec.json.encode(large)) > 0.85 * kafka_publisher.MAX_PUBLICATION_BYTES
    with closing(KafkaPublisher(survey, settings)) as publisher:
        publisher.take_over(0, lambda: True)
        publisher.publish([large])
        [key] = publisher.take_over(0, lambda: True)
        assert publisher.read([key]) == [large]
    assert published(settings, survey.estimates_topic) == [(0, True)]
