"""Numbers behind "at most", "≤" and "up to" are never below the bound."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ldpstream.mechanisms.wording import up
from ldpstream.promises.promise import nats, odds
from tests.conftest import give_up

SCRIPT = Path(__file__).parents[2] / "publishing" / "page" / "static" / "dom.js"
LOSSES = 10 ** np.random.default_rng(20261128).uniform(-4, 5, 2000)


def on_the_page(losses: Sequence[float]) -> list[str]:
    if shutil.which("node") is None:
        give_up("no node")
    code = (
        f"import {{ nats }} from {json.dumps(SCRIPT.as_uri())}; console.log(JSON.stringify({json.dumps([*losses])}.map(nats)))"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    return [str(text) for text in json.loads(done.stdout)]


def below(losses: Sequence[float], told: Sequence[str]) -> int:
    """Number of texts below the loss; none is more than one unit of its third digit above."""
    shown = [float(re.sub(r"[^\d.e+-]", "", text)) for text in told]
    assert all(number < loss * 1.011 for loss, number in zip(losses, shown, strict=True))
    return sum(number < loss * (1 - 1e-12) for loss, number in zip(losses, shown, strict=True))


@pytest.mark.parametrize("tell", [lambda losses: [*map(nats, losses)], on_the_page], ids=["commands", "page"])
def test_no_told_loss_is_below_the_loss(tell: Callable[[Sequence[float]], list[str]]) -> None:
    """Control: rounded to the nearest, about half of the numbers are below."""
    losses = LOSSES.tolist()
    assert below(losses, [re.sub(" nats?$", "", text) for text in tell(losses)]) == 0
    assert below(losses, [f"{loss:.4g}" for loss in losses]) > 800
    assert [text.split()[0] for text in tell([1.0, 1 + 2e-16, 0.1 + 0.2, 2.0, 0.5])] == ["1", "1", "0.3", "2", "0.5"]


def test_no_told_factor_is_below_the_factor() -> None:
    losses = [loss for loss in LOSSES.tolist() if loss < 50]
    factors = [math.exp(loss) for loss in losses]
    assert below(factors, [odds(loss).removeprefix("a factor of ") for loss in losses]) == 0
    assert odds(60.00001) == "a factor of e^60.01"


def test_infinite_and_missing_bounds() -> None:
    assert (up(math.inf), up(None), odds(math.inf)) == ("∞", "∞", "any factor")
