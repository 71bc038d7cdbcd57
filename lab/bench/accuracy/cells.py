import msgspec
import numpy as np

from lab.bench.accuracy.shapes import DATA_SHAPES, FEW, HARD, Shape
from lab.drawn_tables import drawn_table
from ldpstream.mechanisms import LONGITUDINAL, NAMES, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
STEPS = (1, 1, 1, 4)
FEW_EPSILONS, FEW_PEOPLE = (0.5, 1.0, 2.0), (1000, 2000, 5000, 10_000)
FEW_MECHANISMS = ("GRR", "OUE", "SUE", "OLH", "L-GRR", "L-OSUE")
HARD_PEOPLE = (200, 1000, 10_000, 100_000)
HARD_MECHANISMS = ("GRR", "OUE", "L-OSUE", "OLH")
NUMBERS = "SW"  # also in every second cell of ordered values, and for the real data sets of numbers
# `drawn_table` draws every report of these mechanisms: more people would take too long
MOST_PEOPLE = {"SS": 10_000, "BLH": 100_000, "OLH": 100_000, "L-BLH": 100_000, "L-OLH": 100_000}


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the grid: n people, who report `steps` times. A memoized mechanism has ε₁ = `eps` and ε∞ = 2 ε₁ (nats)."""

    shape: str
    mechanism: str
    k: int
    eps: float
    n: int
    steps: int
    ordered: bool
    held_out: bool

    def build(self) -> Mechanism:
        if self.mechanism in LONGITUDINAL:
            return mechanism(self.mechanism, k=self.k, eps_inf=2 * self.eps, eps_1=self.eps)
        return mechanism(self.mechanism, k=self.k, eps=self.eps)


def grid(shapes: dict[str, Shape]) -> list[Cell]:
    cells = []
    for name, shape in shapes.items():
        wanted = [(k, eps) for k in shape.domains for eps in EPSILONS]
        rng = np.random.default_rng([18, *name.encode()])
        spread = [np.resize(rng.permutation(options), len(wanted)) for options in (len(NAMES), len(SIZES), len(STEPS))]
        for (k, eps), i, size, step in zip(wanted, *map(rng.permutation, spread), strict=True):
            most = MOST_PEOPLE.get(NAMES[i], SIZES[-1])
            cells.append(
                Cell(
                    shape=name, mechanism=NAMES[i], k=k, eps=eps, n=min(SIZES[size], most), steps=STEPS[step],
                    ordered=shape.ordered, held_out=shape.held_out,
                )
            )  # fmt: skip
    return cells


def few_cells() -> list[Cell]:
    settings = [
        (name, k, eps, n) for name, shape in FEW.items() for k in shape.domains for eps in FEW_EPSILONS for n in FEW_PEOPLE
    ]
    spread = np.random.default_rng(18).permutation(np.resize(np.arange(len(FEW_MECHANISMS)), len(settings)))
    return [
        Cell(shape=name, mechanism=FEW_MECHANISMS[i], k=k, eps=eps, n=n, steps=1, ordered=False, held_out=False)
        for i, (name, k, eps, n) in zip(spread, settings, strict=True)
    ]


def hard_cells(shapes: dict[str, Shape]) -> list[Cell]:
    """Cells of the shapes `HARD`, and of the ordered data sets in `shapes` with Square Wave."""
    hard = HARD | {name: shapes[name] for name in DATA_SHAPES if name in shapes and shapes[name].ordered}
    cells = []
    for name, shape in hard.items():
        rng = np.random.default_rng([54, *name.encode()])
        for k in dict.fromkeys(shape.domains):
            chosen = zip(HARD_PEOPLE, rng.permutation(EPSILONS), rng.permutation(HARD_MECHANISMS), strict=True)
            for place, (n, eps, label) in enumerate(chosen):
                pure = [str(label)] if name in HARD else []
                names = [*pure, NUMBERS] if shape.ordered and (place % 2 or not pure) else pure
                cells += [
                    Cell(shape=name, mechanism=one, k=k, eps=float(eps), n=n, steps=1, ordered=shape.ordered, held_out=False)
                    for one in names
                ]
    return cells


def quick_grid(shapes: dict[str, Shape]) -> list[Cell]:
    return [cell for cell in grid(shapes) if cell.k <= 20][::8]


def draw(cell: Cell, truth: FloatArray, rng: np.random.Generator) -> tuple[IntArray, CountTable]:
    people = rng.multinomial(cell.n, truth)
    return people, drawn_table(cell.build(), people, rng, cell.steps)
