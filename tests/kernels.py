"""Compiles the kernels of mechanisms and estimators into their cache:  python -m tests.kernels

`make test` runs this first. Otherwise all processes that start at once in a new working copy would compile the same kernels,
each of them for half a minute.
"""

from pathlib import Path

import numpy as np

from ldpstream.estimators import ems, ibu, mle
from ldpstream.mechanisms import LONGITUDINAL, NAMES, NUMERIC
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.surveys import Survey, load_survey
from tests.small_survey import small_survey

DEMO = Path(__file__).parents[1] / "surveys" / "samples" / "demo.toml"
K, PEOPLE = 64, 5000


def compile_estimates(survey: Survey) -> None:
    """Draws some reports for every attribute of a survey, and makes the estimates of a step."""
    rng = np.random.default_rng(1)
    for number, mechanisms in enumerate(survey.mechanisms):
        pane = [m.tabulate(m.simulate(rng.integers(0, m.k, PEOPLE), rng)) for m in mechanisms]
        conclude(survey, number, 0, "step", [pane], complete=True)
        for estimate in (ibu, mle, ems):
            estimate(mechanisms[0], pane[0])


def main() -> None:
    """Compiles what the estimates of the demo's survey and of each mechanism need."""
    compile_estimates(load_survey(DEMO))
    for name in (*NAMES, *NUMERIC):
        level = {"name": "all", "mechanism": name} | ({"eps_inf": 4.0, "eps_1": 2.0} if name in LONGITUDINAL else {"eps": 2.0})
        kind = {"bins": list(range(K + 1))} if name in NUMERIC else {"size": K}
        compile_estimates(small_survey({"name": "a", **kind, "level": [level]}))


if __name__ == "__main__":
    main()
