"""Surveys with published results, and servers of the live page, for the tests of the page."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from msgspec import UNSET, UnsetType
from playwright.sync_api import FloatRect, Locator, Page, expect

from lab.pictures import shrink
from ldpstream.estimators.estimate import Estimate
from ldpstream.promises.outlook import spent
from ldpstream.publishing.answers.responses import Served, Truths
from ldpstream.publishing.answers.sentences import percent
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.catalogue import estimators
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import Crowd, Diagnostics, Jump, Publication, Span, spans
from ldpstream.publishing.page.server import PageServer
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.services.demo import Demo
from ldpstream.surveys import Reason, Survey, load_survey
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
SAMPLES = Path(__file__).parents[3] / "surveys" / "samples"
SURVEY = load_survey(SAMPLES / "demo.toml")
SHOTS = os.environ.get("LDPSTREAM_SCREENSHOTS")

OpenPage = Callable[..., Page]


@contextmanager
def served(
    survey: Survey, kept: KeptResults, rejected: dict[Reason, int] | None = None, late_ms: int = 0, truth: Truths | None = None
) -> Iterator[str]:
    """Serves the page of these results, and yields its address. The next step has been due for `late_ms`."""

    def clock() -> int:
        progress = kept.progress()
        return survey.closes_ms(progress.next_step if progress else 0) + late_ms

    api = create_api(Served(survey, kept, lambda: rejected or {}, truth, clock))
    with closing(PageServer(api, "127.0.0.1", 0)) as server:
        yield server.url


@contextmanager
def demo_page(survey: Survey, demo: Demo) -> Iterator[str]:
    """Serves the page of a demo's results, with the truth, and yields its address."""
    with served(survey, demo.service.results, truth=demo.truth.of) as url:
        yield url


def box_of(chart: Locator) -> FloatRect:
    """Returns where a chart is. Playwright finds no box while the page replaces the chart by a new one."""
    for _ in range(PATIENCE_MS // 100):
        if (box := chart.bounding_box()) is not None:
            return box
        chart.page.wait_for_timeout(100)
    raise AssertionError(f"{chart} has no box")


def unfold(page: Page, *folds: str) -> None:
    """Opens these folded parts, such as the privacy of an attribute; all but the period without a name."""
    wanted = "ids.length ? ids.includes(e.id) : e.id !== 'time'"
    opened = f"ids => document.querySelectorAll('details').forEach(e => {{ e.open ||= {wanted}; }})"
    page.evaluate(opened, folds)


def choose_span(page: Page, span: str) -> None:
    page.locator("#span label", has=page.locator(f"input[value={span}]")).click()


def written(estimate: Estimate, value: int) -> str:
    """The share of a value, with the digits of its interval, as in the sentences."""
    low, high = estimate.interval()
    return percent(estimate.frequencies[value], low[value], high[value]).partition(",")[0]


def shoot(of: Page | Locator, name: str) -> None:
    if SHOTS:
        picture = Path(SHOTS) / f"{name}.png"
        (of.locator("html") if isinstance(of, Page) else of).screenshot(path=picture)
        shrink(picture)


def many(k: int, attributes: int, steps: int) -> tuple[Survey, MemoryResults]:
    """Returns a survey with many values, and synthetic publications of every step."""
    level = ({"name": "standard", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0},)
    survey = small_survey(*({"name": f"a{i:02}", "size": k, "level": level} for i in range(attributes)), name="many")
    rng, results = np.random.default_rng(1), MemoryResults()
    for step in range(steps):
        extend(survey, results, step, rng)
    return survey, results


HONEST = Diagnostics(mass_below_zero=0.0, fit_z={"standard": -5.9}, drift_sigma=6.1, drift_value=0, drift_p=6e-7)


def extend(
    survey: Survey,
    results: MemoryResults,
    step: int,
    rng: np.random.Generator,
    said: Diagnostics = HONEST,
    of_window: Diagnostics = HONEST,
    jump: Jump | None = None,
    crowd: Crowd | UnsetType = UNSET,
) -> None:
    """Publishes one more step, with the diagnostics of the step and of the window, and the jump and the step's crowd of the
    first attribute.
    """
    made = []
    for i, attribute in enumerate(survey.attributes):
        frequencies = rng.dirichlet(np.full(attribute.k, 0.05))
        result = Frequencies(
            frequencies=frequencies.tolist(), standard_errors=[0.01] * attribute.k, iterations=0, converged=True
        )
        for span in spans(attribute):
            filtered = span == "filtered"
            names = ["filter"] if filtered else [row.name for row in estimators(survey.mechanisms[i])]
            made += [
                Publication(
                    survey=survey.name, fingerprint=survey.fingerprint.hex(), attribute=attribute.name, step=step,
                    span=span, panes=1, reports=1000, complete=True, estimators=dict.fromkeys(names, result),
                    privacy={"standard": spent(survey.mechanisms[i][0], step + 1)},
                    diagnostics=said if span == "step" else of_window, change=jump if filtered and i == 0 else None,
                    crowd=crowd if span == "step" and i == 0 else UNSET,
                )
            ]  # fmt: skip
    assert results.save(made, results.progress(), Progress(first_step=0, next_step=step + 1))


def silent(survey: Survey, results: MemoryResults, step: int, complete: bool = True) -> None:
    """Publishes one more step without reports. An incomplete step stands for reports that no agent has counted."""
    made = []
    for i, mechanisms in enumerate(survey.mechanisms):
        nothing = [m.empty_table() for m in mechanisms]
        spans: tuple[Span, ...] = ("step", "window")
        made += [conclude(survey, i, step, span, [nothing], complete) for span in spans]
    assert results.save(made, results.progress(), Progress(first_step=0, next_step=step + 1))
