"""Records that the log loses, with wrong clocks of agents and estimator: no step may be published falsely complete.

The truth is what the broker has acknowledged, not what its log still has. In every run the estimator's clock is 12 s ahead, and
the agents' clocks are a minute behind.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaAdminClient, TopicPartition

from ldpstream.publishing.survey_estimator import reached
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.topics import ensure_topics
from tests.agents.samples import PANES, sound
from tests.conftest import Figures

from .agent_site import MakeSite, Site
from .rig import PATIENCE_S, KafkaNode, RedisNode, patiently
from .site_under_faults import Estimator

AHEAD_MS = 12_000
PARTITION = 1
BEFORE_LENGTH = 12  # bytes of a batch before the bytes that its length counts


class Reporters:
    """Sends sound envelopes, and notes the reports that the broker has acknowledged in time."""

    def __init__(self, site: Site) -> None:
        self._site, self._rng = site, np.random.default_rng(3)
        self.acknowledged: Counter[tuple[int, int]] = Counter()  # by attribute and step

    def send(self, n: int) -> None:
        """Sends n envelopes, each in a batch of its own."""
        site = self._site
        with site.producer() as producer:
            for _ in range(n):
                pane, reports, step = int(self._rng.integers(len(PANES))), int(self._rng.integers(1, 20)), self._step()
                value = sound(site.survey, self._rng, step, pane, reports)
                appended = producer.send(site.survey.reports_topic, value, partition=PARTITION).get(PATIENCE_S)
                if appended.timestamp < site.survey.closes_ms(step):
                    self.acknowledged[PANES[pane][0], step] += reports

    def _step(self) -> int:
        return self._site.survey.step_at(now_ms())


def change_log(site: Site, node: KafkaNode, keep: Callable[[int, int], bool]) -> None:
    """Removes batches from the log of `PARTITION` while the broker is down. `keep` gets a batch's number and their number."""
    node.stop()
    [segment] = Path(node.folder).rglob(f"{site.survey.reports_topic}-{PARTITION}/*.log")
    raw, at, batches = segment.read_bytes(), 0, list[bytes]()
    while at + BEFORE_LENGTH < len(raw) and (length := int.from_bytes(raw[at + 8 : at + BEFORE_LENGTH], "big")):
        batches.append(raw[at : at + BEFORE_LENGTH + length])
        at += BEFORE_LENGTH + length
    segment.write_bytes(b"".join(batch for i, batch in enumerate(batches) if keep(i, len(batches))))
    for derived in (*segment.parent.glob("*index"), *segment.parent.glob("*.snapshot")):
        derived.unlink()
    node.start()


def hole(site: Site, node: KafkaNode) -> None:
    change_log(site, node, lambda i, n: i < n - 12 or i >= n - 3)


def lost_end(site: Site, node: KafkaNode) -> None:
    change_log(site, node, lambda i, n: i < n - 30)  # 20 of them are counted


def expiry(site: Site, node: KafkaNode) -> None:
    with KafkaAdminClient(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_records({TopicPartition(site.survey.reports_topic, PARTITION): -1})


def new_topic(site: Site, node: KafkaNode) -> None:
    with KafkaAdminClient(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topics([site.survey.reports_topic])
    patiently(lambda: ensure_topics(site.settings, site.survey))


@pytest.mark.parametrize("fault", [hole, lost_end, expiry, new_topic])
def test_lost_records_leave_no_step_falsely_complete(
    fault: Callable[[Site, KafkaNode], None],
    kafka_node: KafkaNode,
    redis_node: RedisNode,
    make_site: MakeSite,
    figures: Figures,
) -> None:
    site = make_site(kafka_node.bootstrap, redis_node.url, step_seconds=4)
    reporters, estimator = Reporters(site), Estimator(site, AHEAD_MS)
    worker = site.start(["slow-clock"])
    estimator.start()
    reporters.send(40)
    site.until(lambda: site.store.positions().get(PARTITION, 0) >= 40)
    worker.kill()
    reporters.send(10)  # nobody has counted these reports when the fault happens
    fault(site, kafka_node)
    reporters.send(40)
    last = site.survey.step_at(now_ms())
    site.start(["slow-clock"])

    site.until(lambda: reached(estimator.results.progress(), last))
    site.until(lambda: any(p.complete and p.step > last for p in list(estimator.told)))  # later steps lack nothing
    estimator.finish()
    complete = [p for p in estimator.told if p.complete and p.span in ("step", "window")]
    truth = {p.key: sum(reporters.acknowledged[p.attribute, step] for step in p.steps) for p in complete}
    false = {p.key: (p.reports, truth[p.key]) for p in complete if p.reports != truth[p.key]}
    whole = figures.setdefault("lost records and wrong clocks, real processes", Counter())
    whole.update({"runs": 1, "keys complete": len(complete), "keys falsely complete": len(false)})
    whole.update({"reports acknowledged": reporters.acknowledged.total()})
    assert not false
    assert complete
    lacking = {p.key for p in estimator.told} - {p.key for p in complete}
    assert lacking, "the control: the fault has lost reports"
    assert any(head.missing is not None for head in site.store.heads().values())
