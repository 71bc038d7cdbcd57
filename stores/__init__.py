"""The count store: count tables with the offset that they count up to, per Kafka partition, in memory or in Redis.

Tables and offset are written in one atomic step, or not at all. A write names the position that its writer started from, and
the store refuses it if another writer came first. Removed tables are never taken for empty ones.
"""

from stores.count_store import Checkpoint, CountStore, MemoryCountStore, PaneKey, StoreUnavailable

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
