"""The header contract of report keys: a keyed envelope is a Kafka record with one header `HEADER` of `REPORT_KEY_BYTES` bytes.

The gateway writes the header (`producers.gateway.report_keys`), and agents count the record once (`agents.remembered_keys`).
"""

from typing import Final

HEADER: Final = "key"
REPORT_KEY_BYTES: Final = 16
MALFORMED_KEY: Final = b"?"  # replaces an empty or repeated header; its length is wrong for a key
