"""Records that the log loses, with wrong clocks of agents and estimator: no step may be published falsely complete.

The truth is what the broker has acknowledged, not what its log still has. In every run the estimator's clock is 12 s ahead, and
the agents' clocks are a minute behind.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.clock import now_ms
from tests.agents.samples import PANES, sound
from tests.conftest import Figures

from .agent_site import MakeSite, Site
from .rig import PATIENCE_S, KafkaNode, RedisNode, patiently, reached
from .site_under_faults import Estimator, remove_batches

AHEAD_MS = 12_000
PARTITION = 1


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


def compaction(site: Site, node: KafkaNode) -> None:
    """Somebody sets `cleanup.policy` to `compact` and back. Kafka meanwhile removes all records without a key."""
    topic = site.survey.reports_topic

    def accepted() -> bool:
        with site.producer() as producer:  # a new producer: after a refusal, a producer may refuse all further records
            try:
                producer.send(topic, b"", partition=PARTITION).get(PATIENCE_S)
            except KafkaError:  # the policy is still `compact`
                return False
        return True

    with KafkaAdminClient(bootstrap_servers=node.bootstrap) as admin, site.producer() as producer:

        def configure(options: dict[str, str]) -> None:  # the broker follows the new options some moments later
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, options)], incremental=True)

        def n_unkeyed() -> int:
            return len([r for r in site.read(topic) if r.partition == PARTITION and r.key is None])

        def compacted() -> bool:
            # begins a new segment as soon as `segment.ms` holds; Kafka compacts closed segments only
            producer.send(topic, b"", key=b"key", partition=PARTITION).get(PATIENCE_S)
            return n_unkeyed() < before

        before = n_unkeyed()
        configure({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000"})
        site.until(compacted)
        configure({"cleanup.policy": "delete", "segment.ms": "604800000"})
    site.until(accepted)


def lost_end(site: Site, node: KafkaNode) -> None:
    assert remove_batches(node, site.survey.reports_topic, PARTITION, 30, back=0) == 30  # 20 of them are counted


def new_topic(site: Site, node: KafkaNode) -> None:
    with KafkaAdminClient(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topics([site.survey.reports_topic])
    patiently(lambda: ensure_topics(site.settings, site.survey))


@pytest.mark.parametrize("fault", [compaction, lost_end, new_topic])
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
