"""An agent of a run: the real `Counting` with its own loops, and a fake of Faust, the layer between `Counting` and the log."""

import asyncio
import random
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ldpstream.agents.log import Chunk, Found
from ldpstream.runtime.errors import LogUnavailable

from .memory_log import SURVEY

if TYPE_CHECKING:
    from .world import World

COMMIT_S = 1.0


class _Placement:
    __slots__ = ("chunks", "number", "position")

    def __init__(self, number: int, position: int) -> None:
        self.number, self.position, self.chunks = number, position, 0


class Agent:
    """An agent's process.

    As in the real consumer, each chunk carries the number of the last seek before the read, and a sequence number that starts
    at 0 after that seek.

    Attributes:
        alive: False when the process has ended.
        leaving: True once the agent has received the stop signal.
        zombie: True if the group has given the agent's partitions to others.
        stalled: True if the agent's consumer has stopped reading.
        delayed_until: chunks are delivered only from this time on, in seconds.
        well_s: time in seconds when the agent last reset the watchdog.
        readable: an event, set when the log may have something to read.
    """

    def __init__(self, world: "World") -> None:
        self._world, self._log, self._loop = world, world.log, world.loop
        self.alive, self.leaving, self.zombie, self.stalled = True, False, False, False
        self.well_s = self.delayed_until = self._loop.time()
        self.readable = asyncio.Event()
        self._placements: dict[int, _Placement] = {}
        self._owned: list[int] = []
        self._number = 0
        self._waiting: asyncio.Queue[Chunk] = asyncio.Queue(4)
        self._had: deque[Chunk] = deque(maxlen=8)
        self._tasks: set[asyncio.Task[Any]] = set()
        make = world.code.counting.Counting
        self.counting = make(SURVEY, world.redis, self, COMMIT_S, clock=self._loop.time)
        for life in (self.counting.run(), self._watch(), self._read(), self._take()):
            self.spawn(life)

    # ---- start and end

    def spawn(self, life: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Starts a task that ends with the process."""
        task = self._loop.create_task(life)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.fail(error)

    async def _watch(self) -> None:
        """Stands in for `Dispatcher.watch`."""
        while True:
            await asyncio.sleep(1)
            if await self.counting.healthy():
                self.well_s = self._loop.time()

    def kill(self) -> None:
        """Ends the process immediately, as by SIGKILL."""
        self.alive = False
        for task in self._tasks:
            task.cancel()

    def stop(self) -> None:
        """Shuts the process down in order."""
        if not self.leaving:
            self.leaving = True
            self.spawn(self._leave())

    async def _leave(self) -> None:
        await self.counting.close()
        self._loop.call_soon(self.kill)
        self._world.regroup.set()

    def assigned(self, partitions: list[int]) -> None:
        """Stands in for `ChunkConsumer.perform_seek`."""
        self._placements.clear()
        self._owned = partitions
        self.counting.assign(set(partitions))

    # ---- faults of the framework

    def redeliver(self, back: int, relabel: bool) -> None:
        """Delivers an earlier chunk again, or moves a reading position back."""
        if relabel and self._placements:
            partition, placement = sorted(self._placements.items())[back % len(self._placements)]
            placement.position = max(self._log.begins[partition], placement.position - 3 * back)
            self.readable.set()
        elif back < len(self._had) and not self._waiting.full():
            self._waiting.put_nowait(self._had[-1 - back])

    def lose(self, which: int) -> None:
        """Drops the first waiting chunk (`which` = 0), all waiting chunks (1) or the next records to read (2)."""
        if which == 2:
            for placement in self._placements.values():
                placement.position += 3 if placement.chunks else 0
            return
        while not self._waiting.empty():
            self._waiting.get_nowait()
            if which == 0:
                break

    def reorder(self, turn: int) -> None:
        """Shuffles the waiting chunks."""
        waiting = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
        random.Random(turn).shuffle(waiting)
        for chunk in waiting:
            self._waiting.put_nowait(chunk)

    # ---- delivery of chunks

    async def _read(self) -> None:
        source = self._world.random
        while True:
            chunk = self._next_chunk(source)
            if chunk is None:
                self.readable.clear()
                await self.readable.wait()
                await asyncio.sleep(source.choice((0.0, 0.01, 0.3)))
            else:
                self._had.append(chunk)
                await self._waiting.put(chunk)
                await asyncio.sleep(source.choice((0.0, 0.01, 0.2)))

    def _next_chunk(self, source: random.Random) -> Chunk | None:
        if self.stalled or self._log.away:
            return None
        for partition, placement in source.sample(sorted(self._placements.items()), len(self._placements)):
            begin, end = self._log.begins[partition], len(self._log.records[partition])
            if not begin <= placement.position <= end:  # the log does not have this offset
                del self._placements[partition]
                self.counting.displace([partition])
                continue
            found = self._log.read(partition, placement.position, source.choice((1, 3, 8, 30)))
            if found:
                placement.position, placement.chunks = found[-1].offset + 1, placement.chunks + 1
                return Chunk(partition, placement.number, placement.chunks - 1, found)
            placement.position = end  # no record is left after a hole
        return None

    async def _take(self) -> None:
        while True:
            chunk = await self._waiting.get()
            await asyncio.sleep(max(0.0, self.delayed_until - self._loop.time()))
            placement = self._placements.get(chunk.partition)
            self._world.done["chunks of former placements"] += placement is None or placement.number != chunk.placement
            await self.counting.take(chunk)

    # ---- agents.log.CountedLog

    async def described(self) -> tuple[str, Collection[int]]:
        return tuple(await self._log.ask("described", self._log.described))

    def shut_out(self) -> str:
        return ""

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        begins = await self._log.ask("bounds", lambda: {p: self._log.begins[p] for p in partitions})
        return {p: (begins[p], len(self._log.records[p])) for p in partitions}

    async def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        return dict(await self._log.ask("later", lambda: self._log.later(times_ms)))

    async def place(self, partition: int, offset: int) -> int:
        return int(await self._log.ask("place", lambda: self._place(partition, offset)))

    def _place(self, partition: int, offset: int) -> int:
        if partition not in self._owned:
            raise LogUnavailable("not assigned")
        self._number += 1
        self._placements[partition] = _Placement(self._number, offset)
        self.readable.set()
        return self._number

    async def position_if_nothing_read(self, partition: int) -> int | None:
        found: int | None = await self._log.ask("position_if_nothing_read", lambda: self._position_if_nothing_read(partition))
        return found

    def _position_if_nothing_read(self, partition: int) -> int | None:
        placement = self._placements.get(partition)
        return placement.position if placement is not None and placement.chunks == 0 else None

    async def commit_group(self, offsets: dict[int, int]) -> None:
        await self._log.ask("commit_group", lambda: self._log.group.update(offsets))

    def group_offset(self, partition: int, otherwise: int) -> int:
        """Returns the group's committed offset. Only a mutant uses this method."""
        return self._log.group.get(partition, otherwise)
