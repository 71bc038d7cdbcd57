"""Who gets which partition of a topic whose number of partitions may have changed, in either direction."""

from math import ceil
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.assignor import PartitionAssignor
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from hypothesis import example, given
from hypothesis import strategies as st

from agents.assignor import ShrinkingAssignor

TOPIC = "reports"
HELD = st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5)  # what each member had; two may claim the same


def assigned(assignor: type[PartitionAssignor], held: list[set[int]], partitions: int) -> list[list[int]]:
    """What each member gets of a topic with so many partitions."""
    app: Any = SimpleNamespace(tables=SimpleNamespace(data={}, changelog_topics=set()), tracer=None, sensors=Sensors())
    cluster = cast(ClusterMetadata, SimpleNamespace(partitions_for_topic=lambda topic: set(range(partitions)) or None))
    members = {}
    for i, had in enumerate(held):
        before = ClientAssignment(actives={TOPIC: sorted(had)}, standbys={TOPIC: []})
        about = ClientMetadata(assignment=before, url=f"http://agent-{i}", changelog_distribution={})
        members[f"agent-{i}"] = ConsumerProtocolMemberMetadata(4, [TOPIC], about.dumps())
    answer = assignor(app).assign(cluster, cast(Any, members))
    return [[p for topic, some in answer[member].assignment for p in some if topic == TOPIC] for member in members]


class Sensors:
    """What Faust tells of its assignments, to nobody."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_about: None


@given(HELD, st.integers(0, 12))
@example([{0, 1, 2, 3}], 2)
def test_every_partition_there_is_goes_to_exactly_one_member_and_no_other_does(held: list[set[int]], partitions: int) -> None:
    gets = assigned(ShrinkingAssignor, held, partitions)
    assert sorted(p for some in gets for p in some) == list(range(partitions))
    assert max(map(len, gets)) <= ceil(partitions / len(held))


def test_members_keep_what_they_had_where_that_is_fair_and_still_there() -> None:
    held = [{0, 5}, {1, 3}, {2, 4}]
    assert [set(some) for some in assigned(ShrinkingAssignor, held, 6)] == held
    assert [set(some) for some in assigned(ShrinkingAssignor, held, 3)] == [{0}, {1}, {2}]


def test_the_library_alone_fails_where_a_topic_has_got_fewer() -> None:
    """Or the class above may go."""
    with pytest.raises(AssertionError):
        assigned(PartitionAssignor, [{0, 1, 2, 3}], 2)
