"""The count store: count tables with the offset that they count up to, per Kafka partition, in memory or in Redis.

Tables and offset are written in one atomic step, or not at all. A write names the position that its writer started from, and
the store refuses it if another writer came first. Removed tables are never taken for empty ones.
"""

from stores.checkpoint import Checkpoint, PaneKey
from stores.count_store import CountStore, StoreUnavailable
from stores.memory_store import MemoryCountStore

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
