"""The count store, in memory, in Redis or in a data folder; and the log and data folder of one machine.

A count store has the count tables of each partition and the first offset not yet counted. It writes both in one atomic step, or
not at all. A write names the position from which the writer started. The store refuses the write if another writer has written
since. A reader can distinguish removed tables from empty tables.
"""

from ldpstream.stores.checkpoint import Checkpoint, PaneKey
from ldpstream.stores.count_store import CountStore, StoreUnavailable
from ldpstream.stores.memory_store import MemoryCountStore

__all__ = ["Checkpoint", "CountStore", "MemoryCountStore", "PaneKey", "StoreUnavailable"]
