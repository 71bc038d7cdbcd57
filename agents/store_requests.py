"""The counting's requests to the count store.

Each request runs in a thread.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ldpstream.agents.back_pressure import BackPressure
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.count_store import CountStore, StoreDamaged, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class StoreRequests:
    """Four of the count store's methods, as coroutines. Each raises StoreUnavailable if the store does not answer."""

    def __init__(self, store: CountStore, back_pressure: BackPressure) -> None:
        self._store, self._back_pressure = store, back_pressure

    async def load(self, partition: int) -> Checkpoint | None:
        """`CountStore.load`. Raises StoreDamaged if the checkpoint cannot be read."""
        return await self._ask(self._store.load, partition)

    async def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        """`CountStore.commit`."""
        return await self._ask(self._store.commit, partition, expected, change)

    async def heads(self) -> dict[int, Checkpoint] | None:
        """Returns the stored checkpoints; None while one of them is damaged, which `load` reports."""
        try:
            return await self._ask(self._store.heads)
        except StoreDamaged:
            return None

    async def check_writes(self, partition: int) -> None:
        """`CountStore.check_writes`."""
        await self._ask(self._store.check_writes, partition)

    async def _ask(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await asyncio.to_thread(question, *arguments, **named)
        except StoreUnavailable as error:
            self._back_pressure.refuse(str(error))
            raise
