"""The count store (`stores.count_store`), in Redis or in a data folder; and the log and data folder of one machine."""

from ldpstream.stores.checkpoint import Checkpoint, PaneKey
from ldpstream.stores.count_store import CountStore, StoreUnavailable

__all__ = ["Checkpoint", "CountStore", "PaneKey", "StoreUnavailable"]
