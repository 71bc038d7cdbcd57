"""The count store: count tables with the offset that they count up to, per partition, in memory or in Redis."""

from stores.count_store import Checkpoint, CountStore, MemoryCountStore, PaneKey, StoreUnavailable

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
