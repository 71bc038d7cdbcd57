"""The count store: the count tables of each Kafka partition and the offset up to which they count, in memory or in Redis.

Tables and offset are written in one atomic step, or not at all. A write names the position that its writer started from. The
store refuses the write if another writer has written since. Removed tables are never mistaken for empty tables.
"""

from stores.checkpoint import Checkpoint, PaneKey
from stores.count_store import CountStore, StoreUnavailable
from stores.memory_store import MemoryCountStore

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
