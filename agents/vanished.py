"""Closes the partitions that a recreated topic no longer has."""

import secrets

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.back_pressure import StoreRequests
from ldpstream.agents.fold import PartitionFold, not_after
from ldpstream.agents.log import CountedLog
from ldpstream.engines.count_store import StoreDamaged
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.agent")


async def close_vanished(survey: Survey, source: CountedLog, store: StoreRequests) -> bool:
    """Drops the open steps of partitions that a recreated topic no longer has.

    Returns:
        False if this must be tried again: a checkpoint is damaged, or no record of the new log was found.
    """
    log_id, there = await source.identity(), await source.partitions()
    if (heads := await store.heads()) is None:
        return False
    old = {number for number, head in heads.items() if log_id and head.log_id not in ("", log_id)}
    if not old - there:
        return True
    begins = [found.appended_ms for found in (await source.later(dict.fromkeys(there, 0))).values() if found is not None]
    if not begins:
        return False
    damaged = False
    for number in sorted(old - there):
        try:
            checkpoint = await store.load(number)
        except StoreDamaged:
            damaged = True
            continue
        if checkpoint is None or checkpoint.log_id == log_id:
            continue  # another agent has written first
        log.error("the topic was recreated without this partition: its open steps are lost", partition=number)
        metrics.new_logs.inc()
        fold = PartitionFold(survey, checkpoint, writer=secrets.token_hex(8))
        fold.switch_log(log_id, 0, not_after(min(begins)))
        if (change := fold.changes()) is not None:
            await store.commit(number, checkpoint.position, change)
    return not damaged
