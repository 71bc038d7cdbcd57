"""Engines: the interfaces of logs, counts and results, and their two implementations.

`kafka/` uses Kafka and Redis, `folder/` one SQLite file in a folder.
"""

from ldpstream.engines.checkpoint import Checkpoint, PaneKey
from ldpstream.engines.count_store import CountStore, StoreUnavailable

__all__ = ["Checkpoint", "CountStore", "PaneKey", "StoreUnavailable"]
