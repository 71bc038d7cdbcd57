"""The count store, in memory or in Redis: each Kafka partition's count tables and the first offset not yet counted.

Tables and offset are written in one atomic step, or not at all. A write names the position from which the writer started. The
store refuses the write if another writer has written since. A reader can distinguish removed tables from empty tables.
"""

from ldpstream.stores.checkpoint import Checkpoint, PaneKey
from ldpstream.stores.count_store import CountStore, StoreUnavailable
from ldpstream.stores.memory_store import MemoryCountStore

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
