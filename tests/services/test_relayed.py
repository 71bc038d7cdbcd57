"""Reports through a rough relay count exactly once, and no report is lost without the device's knowledge."""

from collections import Counter
from pathlib import Path

from tests.conftest import Figures

from .relayed import run

DEVICES, KILLS = 400, 2


def check(done: Counter[str]) -> None:
    """Every report counts once. As a control, the relay has done all its faults, and the log has reports more than once."""
    assert (done["lost"], done["doubled"], done["tables that differ"]) == (0, 0, 0), done
    assert done["reports"] == done["reports counted"] == DEVICES, done
    assert done["kills"] == KILLS
    for fault in ("drop", "drop the answer", "delay", "repeat", "repeat later"):
        assert done[fault] >= 3, done
    assert done["records in the log"] > DEVICES, done


def test_reports_through_a_rough_relay_count_once(tmp_path: Path, figures: Figures) -> None:
    done = run(tmp_path, DEVICES, KILLS, seed=1)
    figures["devices behind a rough relay, ldpstream serve"] = done
    check(done)
