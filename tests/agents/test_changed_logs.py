"""Tests `Counting` with logs that expire, get shorter, or belong to a recreated topic."""

from ldpstream.engines.checkpoint import MAX_MS, Missing
from tests.faults.memory_store import MemoryCountStore
from tests.faults.stepped import LOGS, SURVEY, SteppedAgent, SteppedTopic


async def test_a_hole_at_the_end_of_the_log_has_no_end_before_the_next_record() -> None:
    log, store = SteppedTopic(), MemoryCountStore(SURVEY)
    log.records[0], log.markers[0] = LOGS[0][:30], 10
    agent = SteppedAgent(store, log)
    await agent.finish()
    assert store.heads()[0].missing == Missing(LOGS[0][29].appended_ms, MAX_MS, 40)
