"""Populations and mixtures of mechanisms of the free-will privacy paper, and every method's distance from the truth.

Source: ElSalamouny and Palamidessi, "Reconstruction of the distribution of sensitive data under free-will privacy", Tables 4 to
8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binom

from lab.error_measures import emd_line
from lab.papers.emd_grid import emd_grid
from lab.papers.free_will_estimators import Projection, combine_mechanisms, combine_results
from lab.papers.location.base import StoredChannel
from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric
from lab.papers.location.shokri import Shokri
from lab.papers.reports_term import reports_term
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.likelihood import MAX_EVALUATIONS, PROVEN_GAP, em, ibu, mle
from ldpstream.estimators.maximum.optimum import projected_maximum
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.counts.terms import Term
from ldpstream.mechanisms.families.grr import GRR
from ldpstream.mechanisms.families.unary import UnaryEncoding

LINE_K, GRID, CELL_KM = 100, (24, 16), 0.5
RAPPOR_K = 20
RAPPOR_HIGH = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # Table 4: high privacy
RAPPOR_LOW = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
GRR_LINE = (3.00, 3.54, 3.96, 4.34, 4.69, 5.06, 5.46, 5.93, 6.60, 8.08)  # Table 5; the first five numbers are also in Table 7
GRR_GRID = (3.05, 4.19, 4.81, 5.27, 5.67, 6.05, 6.44, 6.87, 7.40, 8.20)
GEOMETRIC_LINE = (0.020, 0.025, 0.031, 0.039, 0.050, 0.065, 0.088, 0.131, 0.236, 0.869)  # Table 6; last five also: Table 7
GEOMETRIC_GRID_KM = (0.190, 0.244, 0.310, 0.390, 0.493, 0.632, 0.835, 1.159, 1.762, 3.124)  # per kilometre
SHOKRI_LINE = (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 24.5, 28.0)  # Table 8: Q, in cells
SHOKRI_GRID_KM = (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0)
HALF = 5
# Crowded places of the generated city: share, centre in kilometres from the city's south-western corner, and width in
# kilometres.
PLACES = ((1.0, 10.0, 6.5, 1.0), (0.5, 8.0, 5.0, 1.0), (0.3, 4.0, 6.0, 1.0), (0.2, 6.0, 2.0, 1.5))
ELSEWHERE = 0.05
UNEVENNESS = 1.0  # standard deviation of the logarithm of a cell's own popularity
CITY_SEED = 20_120_801

DELTA = 1e-9  # GIBU stops below this gain, in nats per report; the paper gives no value
POSTS: tuple[tuple[Projection, str], ...] = (("norm-sub", "projection"), ("norm-mul", "normalization"))
GIBU, MAXIMUM, COUNTED = "GIBU", "maximum", "maximum, bit counts"


@dataclass(frozen=True, slots=True)
class Mix:
    """A population and its mechanisms, each for an equal part of the people; `points` are (k, 2) kilometres, or None on a
    line."""

    truth: FloatArray
    mechanisms: list[Mechanism]
    points: FloatArray | None = None
    invertible: bool = True


class TruthOrCentre(StoredChannel):
    """Reports the true value with the probability max(0, 1 - Q/B), otherwise the middle cell.

    Q bounds the expected quality loss; B is the expected error of the best blind guess.
    """

    name = "truth-or-centre"

    def __init__(self, distance: FloatArray, max_loss: float) -> None:
        self._set_domain(len(distance))
        self._distance = distance
        blind = distance.mean(axis=0)
        truth = max(0.0, 1 - max_loss / blind.min())
        channel = truth * np.eye(self.k)
        channel[:, blind.argmin()] += 1 - truth
        self._set_channel(channel)
        self.signature = f"{self.name}(k={self.k}, max_loss={max_loss!r})"

    def distances(self) -> FloatArray:
        return self._distance


def line_distances(k: int) -> FloatArray:
    return np.asarray(np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float))


def city(shape: tuple[int, int], cell_km: float) -> tuple[FloatArray, FloatArray]:
    """A generated distribution on a grid of cells, and the cells' (k, 2) centres, in place of Gowalla's check-ins."""
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[0])
    points = (np.column_stack((x, y)) + 0.5) * cell_km
    weights = ELSEWHERE + sum(
        share * np.exp(-((points - (east, north)) ** 2).sum(axis=1) / (2 * width**2)) for share, east, north, width in PLACES
    )
    weights = weights * np.random.default_rng(CITY_SEED).lognormal(0.0, UNEVENNESS, len(points))
    return weights / weights.sum(), points


def binomial(k: int) -> FloatArray:
    return np.asarray(binom.pmf(np.arange(k), k - 1, 0.5))


def _line(*mechanisms: Mechanism) -> Mix:
    return Mix(binomial(mechanisms[0].k), list(mechanisms))


def _grid(*mechanisms: Mechanism) -> Mix:
    truth, points = city(GRID, CELL_KM)
    return Mix(truth, list(mechanisms), points)


def _bits(levels: tuple[float, ...]) -> list[Mechanism]:
    return [UnaryEncoding("SUE", RAPPOR_K, eps) for eps in levels]


def _grrs(k: int, levels: tuple[float, ...]) -> list[Mechanism]:
    return [GRR(k, eps) for eps in levels]


def _geometric_line(levels: tuple[float, ...]) -> list[Mechanism]:
    return [TruncatedGeometric(LINE_K, eps) for eps in levels]


def _geometric_grid(levels: tuple[float, ...]) -> list[Mechanism]:
    return [PlanarGeometric(GRID, CELL_KM * eps) for eps in levels]


def _shokri_line(k: int, optimum: Callable[[FloatArray, float], Mechanism]) -> Mix:
    return _singular(binomial(k), [optimum(line_distances(k), loss * k / LINE_K) for loss in SHOKRI_LINE])


def _shokri_grid(shape: tuple[int, int], cell_km: float) -> Mix:
    truth, points = city(shape, cell_km)
    distances = cell_km * PlanarGeometric(shape, 1.0).distances()
    return _singular(truth, [solved(distances, loss) for loss in SHOKRI_GRID_KM], points)


def _singular(truth: FloatArray, mechanisms: list[Mechanism], points: FloatArray | None = None) -> Mix:
    invertible = all(np.linalg.matrix_rank(m.channel()) == m.k for m in mechanisms)
    return Mix(truth, mechanisms, points, invertible)


def solved(distance: FloatArray, max_loss: float) -> Shokri:
    return Shokri(np.full(len(distance), 1 / len(distance)), distance, max_loss)


MIXES: dict[str, Callable[[], Mix]] = {
    "rappor-high": lambda: _line(*_bits(RAPPOR_HIGH)),
    "rappor-low": lambda: _line(*_bits(RAPPOR_LOW)),
    "grr-line": lambda: _line(*_grrs(LINE_K, GRR_LINE)),
    "grr-grid": lambda: _grid(*_grrs(GRID[0] * GRID[1], GRR_GRID)),
    "geometric-line": lambda: _line(*_geometric_line(GEOMETRIC_LINE)),
    "geometric-grid": lambda: _grid(*_geometric_grid(GEOMETRIC_GRID_KM)),
    "mixed-line": lambda: _line(*_geometric_line(GEOMETRIC_LINE[HALF:]), *_grrs(LINE_K, GRR_LINE[:HALF])),
    "mixed-grid": lambda: _grid(*_geometric_grid(GEOMETRIC_GRID_KM[HALF:]), *_grrs(GRID[0] * GRID[1], GRR_GRID[:HALF])),
    "shokri-line": lambda: _shokri_line(LINE_K, solved),
    "shokri-grid": lambda: _shokri_grid((12, 8), 1.0),  # at most 128 values: the programme has k³ coefficients
    "shokri-centre": lambda: _shokri_line(LINE_K, TruthOrCentre),
    "shokri-line-small": lambda: _shokri_line(40, solved),
    "shokri-grid-small": lambda: _shokri_grid((6, 4), 2.0),
    "shokri-centre-small": lambda: _shokri_line(40, TruthOrCentre),
}


@cache
def build(name: str) -> Mix:
    return MIXES[name]()


def distances(mix: str, n: int, first: int, repeats: int, seed: int) -> dict[str, list[float]]:
    """The earth mover's distance of every method's estimate from the truth, in each repetition; NaN without an estimate."""
    population = build(mix)
    k, points = len(population.truth), population.points
    found: dict[str, list[float]] = {}
    for repeat in range(first, first + repeats):
        rng = np.random.default_rng([seed, list(MIXES).index(mix), n, repeat])
        for method, estimate in estimates(population, rng.choice(k, n, p=population.truth), rng).items():
            far = emd_line(population.truth, estimate) if points is None else emd_grid(population.truth, estimate, points)
            found.setdefault(method, []).append(far)
    return found


def estimates(mix: Mix, values: IntArray, rng: np.random.Generator) -> dict[str, FloatArray]:
    groups: list[Group] = []
    bits: list[Term] = []
    for m, part in zip(mix.mechanisms, np.array_split(values, len(mix.mechanisms)), strict=True):
        reports = m.simulate(part, rng)
        groups.append((m, m.tabulate(reports)))
        if isinstance(m, UnaryEncoding):
            bits.append(reports_term(m, reports))
    return _of_bits(groups, bits, len(values)) if bits else _of_values(groups, mix)


def _of_bits(groups: list[Group], terms: list[Term], n: int) -> dict[str, FloatArray]:
    uniform = np.full(RAPPOR_K, 1 / RAPPOR_K)
    found = {f"[RAP]_R {name}": combine_results(groups, "RAP", post) for post, name in POSTS}
    found |= {f"[RAP]_M {name}": combine_mechanisms(groups, "RAP", post) for post, name in POSTS}
    found[GIBU] = em(terms, uniform, delta=DELTA * n)[0]
    found[MAXIMUM] = projected_maximum(terms, uniform, PROVEN_GAP * n, MAX_EVALUATIONS)[0]
    return found | {COUNTED: mle(groups).frequencies}


def _of_values(groups: list[Group], mix: Mix) -> dict[str, FloatArray]:
    found: dict[str, FloatArray] = {}
    if mix.points is None:
        nothing = np.full(len(mix.truth), np.nan)
        for post, name in POSTS:
            found[f"[INV]_R {name}"] = combine_results(groups, "INV", post) if mix.invertible else nothing
        found["[IBU]_R"] = combine_results(groups, "IBU")
    for post, name in POSTS:
        found[f"[INV]_M {name}"] = combine_mechanisms(groups, "INV", post)
    found["[IBU]_M"] = combine_mechanisms(groups, "IBU")
    return found | {GIBU: ibu(groups, delta=DELTA).frequencies, MAXIMUM: mle(groups).frequencies}
