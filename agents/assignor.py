"""Faust's assignor, for topics that may have fewer partitions than they had."""

from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.assignor import PartitionAssignor
from faust.assignor.client_assignment import ClientMetadata


class ShrinkingAssignor(PartitionAssignor):
    """Faust's assignor, told of no former partition that its topic does not have any more.

    Members keep what they had as far as that is fair. Faust's takes for granted that all of it still exists: where a topic was
    deleted and made again with fewer partitions, it would leave out some of those that do, or fail an assertion.
    """

    def assign(self, cluster: ClusterMetadata, member_metadata: Any) -> Any:
        """The assignment of every member: each partition of the topics to exactly one."""
        existing = {member: _existing(cluster, metadata) for member, metadata in member_metadata.items()}
        return super().assign(cluster, existing)


def _existing(cluster: ClusterMetadata, member: Any) -> ConsumerProtocolMemberMetadata:
    """The same member, without what it has of partitions that do not exist."""
    metadata: Any = ClientMetadata.loads(member.user_data)
    for held in (metadata.assignment.actives, metadata.assignment.standbys):
        for topic, partitions in held.items():
            there = cluster.partitions_for_topic(topic) or ()
            held[topic] = [partition for partition in partitions if partition in there]
    return ConsumerProtocolMemberMetadata(member.version, member.subscription, metadata.dumps())
