"""`ldpstream try` passes on what the simulated devices say. `tests/services/test_try.py` runs the whole pipeline."""

from pathlib import Path

import pytest

from ldpstream.local.commands import CommandNode
from ldpstream.local.nodes import NodeError
from ldpstream.local.pipeline import Trial
from ldpstream.local.ports import free_ports


class Devices(CommandNode):
    """Devices whose log is written by the test; they end at the third look."""

    def __init__(self, folder: Path) -> None:
        super().__init__(["produce"], {}, folder)
        self.looks = 0

    def finished(self) -> bool:
        """See `CommandNode.finished`. The log grows at each look."""
        self.looks += 1
        with self.log.open("a") as log:
            log.write(
                ("ldpstream: step 0 closed\nsteps 1/3\nldpstream: st", "ep 1 closed\n", "ldpstream: bye\n", "")[self.looks - 1]
            )
        return self.looks >= 3

    def check(self) -> None:
        """Ends the trial at the fourth look."""
        if self.looks >= 4:
            raise NodeError("over")


def test_the_devices_lines_are_told_once(tmp_path: Path) -> None:
    told, devices = list[str](), Devices(tmp_path)
    trial = Trial(tmp_path / "survey.toml", 1, [], tmp_path, told.append)
    (nobody,) = free_ports(1)
    with pytest.raises(NodeError, match="over"):
        trial._watch(nobody, [devices], devices)
    said = [f"The devices say: {line}" for line in ("step 0 closed", "step 1 closed", "bye")]
    assert told == [*said, "The devices have sent all their steps. The page stays until Ctrl-C."]
