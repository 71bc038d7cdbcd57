"""The count store (`engines.count_store`), in Redis or in a data folder; and the log and data folder of one machine."""

from ldpstream.engines.checkpoint import Checkpoint, PaneKey
from ldpstream.engines.count_store import CountStore, StoreUnavailable

__all__ = ["Checkpoint", "CountStore", "PaneKey", "StoreUnavailable"]
