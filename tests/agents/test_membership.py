"""Tests the membership in the consumer group, with aiokafka's own coordinator and a fake broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import GroupAuthorizationFailedError

from ldpstream.agents.consumer import membership
from ldpstream.agents.consumer.membership import Membership

IDLE_S = 2.0


class FakeGroup:
    """A group with one member. The member sends a heartbeat every 20 ms and leaves after `IDLE_S` without a fetch."""

    def __init__(self) -> None:
        self.state = SubscriptionState()
        self.state.register_fetch_waiters(set())
        self.state.subscribe({"reports"}, listener=None)
        times: Any = {"heartbeat_interval_ms": 20, "max_poll_interval_ms": int(IDLE_S * 1000), "retry_backoff_ms": 10}
        self.coordinator: Any = GroupCoordinator(MagicMock(), self.state, group_id="g", enable_auto_commit=False, **times)
        self.coordinator.coordinator_id = 1
        self.coordinator._do_rejoin_group = self._join
        self.coordinator._do_heartbeat = self._beat
        self.coordinator._maybe_refresh_commit_offsets = self._refresh
        self.coordinator._send_req = AsyncMock()
        self.joins = 0
        self.refuses = ""
        self.error: Exception = GroupAuthorizationFailedError("g")
        self.consumer = SimpleNamespace(_coordinator=self.coordinator, _subscription=self.state)

    async def _join(self, _subscription: Any) -> bool:
        await self._may("join")
        self.joins += 1
        self.coordinator.member_id, self.coordinator.generation = "member", self.joins
        self.coordinator._rejoin_needed_fut = asyncio.get_running_loop().create_future()
        self.state.assign_from_subscribed([])
        await self.coordinator._stop_commit_offsets_refresh_task()
        self.coordinator.start_commit_offsets_refresh_task(self.state.subscription.assignment)
        return True

    async def _beat(self) -> bool:
        await self._may("beat")
        return True

    async def _refresh(self, _assignment: Any) -> bool:
        await self._may("refresh")
        return True

    async def _may(self, what: str) -> None:
        await asyncio.sleep(0)
        if what in self.refuses:
            raise self.error

    @property
    def beats(self) -> bool:
        heartbeat = self.coordinator._heartbeat_task
        return heartbeat is not None and not heartbeat.done() and self.coordinator.generation > 0


@pytest.fixture
async def group(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeGroup]:
    monkeypatch.setattr(membership, "CHECK_S", 0.05)
    made = FakeGroup()
    yield made
    made.refuses = ""
    await asyncio.wait_for(made.coordinator.close(), 5)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110  # the library's state has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_member_without_partitions_stays_in_the_group(group: FakeGroup, kept: bool) -> None:
    """Without `Membership` the member would leave and not rejoin."""
    keeping = asyncio.create_task(Membership(group.consumer).keep()) if kept else None
    await until(lambda: group.beats)
    await asyncio.sleep(1.5 * IDLE_S)
    assert group.beats is kept
    assert group.joins == 1
    if keeping is not None:
        keeping.cancel()


@pytest.mark.parametrize("kept", [True, False])
async def test_a_member_rejoins_after_an_error_that_is_not_kafkas(group: FakeGroup, kept: bool) -> None:
    """A broker that was unreachable for seconds names no broker at first. aiokafka then raises an AssertionError."""
    looks = Membership(group.consumer)
    keeping = asyncio.create_task(looks.keep() if kept else asyncio.sleep(60))
    await until(lambda: group.beats)
    joins, first, group.error = group.joins, group.coordinator._coordination_task, AssertionError("no broker")
    group.refuses = "join"
    group.coordinator.request_rejoin()
    await until(first.done)
    if kept:
        await until(lambda: "no broker" in looks.shut_out)
    group.refuses = ""
    if kept:
        await until(lambda: group.beats and group.joins > joins and not looks.shut_out)
    else:
        await asyncio.sleep(0.5)
        assert group.joins == joins
    keeping.cancel()
    if not kept:
        group.coordinator._coordination_task = asyncio.create_task(asyncio.sleep(0))  # otherwise `close` raises the error
