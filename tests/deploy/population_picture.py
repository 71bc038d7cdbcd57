"""Draws `docs/pictures/dashboard-population.png`:  python -m tests.deploy.population_picture

Simulated people answer the demo's survey for an hour of virtual time. At step `JUMP` an eighth of the people get a latency of
150 to 200 ms.
"""

import json
import tempfile
from pathlib import Path

from ldpstream.producers.values import MarkovValues
from tests.deploy.manifests import ROOT
from tests.deploy.panels import DASHBOARDS, choose, open_canvas
from tests.deploy.past import START_S, STEP_S, Jumping, demo_with_cohorts, metrics, remembered

PICTURE = ROOT / "docs" / "pictures" / "dashboard-population.png"
PEOPLE, STEPS, JUMP, EVERY = 8000, 60, 40, 8
ATTRIBUTE, VALUE = "latency_ms", "[150, 200)"


def main() -> None:
    """Draws the dashboard, and prints the state of each panel."""
    board, end_s = json.loads((DASHBOARDS / "population.json").read_text()), START_S + STEPS * STEP_S - 1
    with tempfile.TemporaryDirectory() as folder, open_canvas() as canvas:
        survey = demo_with_cohorts(Path(folder))
        index = survey.index(ATTRIBUTE)
        value = [survey.attributes[index].label(i) for i in range(survey.attributes[index].k)].index(VALUE)
        values = Jumping(MarkovValues(survey, PEOPLE, STEPS, 1), index, value, EVERY, JUMP)
        with remembered(metrics(survey, values), Path(folder)) as ask:
            shot = choose(board, ask, START_S, end_s, attribute=ATTRIBUTE, value=VALUE)
            for panel in canvas.draw(board, ask, shot):
                print(f"{panel.title}: {panel.state} {panel.missing}")
        canvas.picture(PICTURE)


if __name__ == "__main__":
    main()
