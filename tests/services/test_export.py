"""The export of estimates from a real broker: repeated, interrupted, and after the topic was made again."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from kafka import KafkaAdminClient, KafkaProducer

from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.history.export import export
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.surveys import Survey, load_survey

from .rig import wait_until

SAMPLE = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")


def publication(survey: Survey, step: int, reports: int, complete: bool = True) -> Publication:
    reported, *others = survey.mechanisms[0]
    table = reported.tabulate(reported.simulate(np.zeros(reports, np.int64), np.random.default_rng(step)))
    return conclude(survey, 0, step, "step", [[table, *[m.empty_table() for m in others]]], complete)


@pytest.fixture
def survey(topic: str) -> Survey:
    return msgspec.structs.replace(SAMPLE, name=topic[-40:])


@contextmanager
def publishing(survey: Survey, settings: Settings) -> Iterator[KafkaPublisher]:
    ensure_topics(settings, survey)
    with closing(KafkaPublisher(survey, settings)) as publisher:
        publisher.take_over(0, lambda: True)
        yield publisher


def exported(folder: Path) -> list[tuple[int, int, bool]]:
    """Step, reports and completeness of all publications in the files."""
    table = pl.read_parquet(folder / "**/*.parquet")
    return table.select("step", "reports", "complete").unique().sort("step").rows()


def test_a_repeated_export_adds_what_is_new(kafka: str, survey: Survey, tmp_path: Path) -> None:
    settings = Settings(kafka=kafka)
    with publishing(survey, settings) as publisher:
        publisher.publish([publication(survey, 0, 10), publication(survey, 1, 5, complete=False)])
        first = export(survey, settings, tmp_path)
        assert (first.publications, first.skipped, len(first.files)) == (2, 0, 1)
        assert exported(tmp_path) == [(0, 10, True), (1, 5, False)]
        other = msgspec.structs.replace(publication(survey, 3, 7), fingerprint="00")
        publisher.publish([publication(survey, 1, 8), other, publication(survey, 2, 9)])
        with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
            for value in (b"no JSON", b'{"fingerprint": "\xff"}'):
                producer.send(survey.estimates_topic, value, b"k").get(timeout=30)
        second = export(survey, settings, tmp_path)
        assert second.skipped == 3
    assert exported(tmp_path) == [(0, 10, True), (1, 8, True), (2, 9, True)]
    before = pl.read_parquet(tmp_path / "**/*.parquet")
    export(survey, settings, tmp_path)
    assert pl.read_parquet(tmp_path / "**/*.parquet").equals(before)


def test_a_topic_made_again_is_read_from_its_beginning(kafka: str, survey: Survey, tmp_path: Path) -> None:
    """The files keep the old estimates; a poorer estimate of the same step does not replace one of them."""
    settings = Settings(kafka=kafka)
    with publishing(survey, settings) as publisher:
        publisher.publish([publication(survey, step, 10) for step in range(2)])
    export(survey, settings, tmp_path)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.delete_topics([survey.estimates_topic])
        wait_until(lambda: survey.estimates_topic not in admin.list_topics(), lambda: "the topic is still there")
    with pytest.raises(LogUnavailable, match="does not exist"):
        export(survey, settings, tmp_path)
    with publishing(survey, settings) as publisher:
        publisher.publish([publication(survey, step, 4, complete=step > 1) for step in range(1, 9)])
    export(survey, settings, tmp_path)
    assert exported(tmp_path) == [(0, 10, True), (1, 10, True), *[(step, 4, True) for step in range(2, 9)]]
