"""A device and a wallet of the formats before the present ones go on with all their memory.

`landed/ecde5612/memories.json` has files that this version wrote, and what their devices then returned.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ldpstream.device import Device, Wallet
from tests.small_survey import small_survey
from tests.upgrade.write import HERE

KEPT = json.loads((HERE / "landed" / "ecde5612" / "memories.json").read_text(encoding="utf-8"))
LEVEL = [{"name": "bits", "mechanism": "L-OSUE", "eps_inf": 2.0, "eps_1": 1.0}]
ASKED = [{"name": name, "size": 64, "level": LEVEL} for name in ("x", "y")]
SURVEY = small_survey(*ASKED, name="former", collection="spl", lateness_steps=2, relay="required")
STEP = 10**9


def told(device: Device) -> dict[str, Any]:
    """Returns the memory of a device in texts and numbers, without a new report."""
    return {
        "consent": [device.consent("x"), device.consent("y")],
        "waiting": [[r.attribute, r.step, r.envelope.hex(), r.key, r.due_ms] for r in device.waiting()],
        "again": [device.report("x", 63, STEP + number).hex() for number in range(6)],  # type: ignore[union-attr]  # consent
        "journal": [str(left) for left in device.journal()],
        "spent": [device.spent("x").reports, device.spent("x").eps_sequence, device.spent("y").reports],
    }


@pytest.mark.parametrize("kind", ["device", "wallet"])
def test_a_former_file_keeps_its_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in ("CI", "DO_NOT_TRACK"):
        monkeypatch.delenv(switch, raising=False)
    with closing(sqlite3.connect(tmp_path / "file")) as connection:
        connection.executescript("\n".join(KEPT[kind]["sql"]))
        connection.execute(f"PRAGMA user_version = {KEPT[kind]['format']}")
    store = Wallet(tmp_path / "file", per_window=9000.0, window_s=60) if kind == "wallet" else tmp_path / "file"
    device = Device(SURVEY, store, expect_enrolled=True)
    with closing(sqlite3.connect(tmp_path / "file")) as connection:
        memos = connection.execute("SELECT attribute, key, hex(memo), reports FROM memo ORDER BY attribute, key").fetchall()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql NOT NULL")}
    assert [list(memo) for memo in memos] == KEPT[kind]["memos"]
    assert {name for name in tables if not name.startswith("sqlite")} == {
        "budget", "consent", "enrolled", "enrolment", "journal", "memo", "sent", "survey"
    }  # fmt: skip
    assert told(device) == KEPT[kind]["told"]
    if isinstance(store, Wallet):
        assert [[row.survey, row.pin, row.left, row.spent, row.per_window] for row in store.spent().surveys] == KEPT[kind][
            "spent"
        ]
        assert Device(SURVEY, store).report("x", 0, STEP + 7)
        assert store.spent().surveys[-1].spent > KEPT[kind]["spent"][-1][3]
