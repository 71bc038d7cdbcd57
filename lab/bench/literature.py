"""Mechanisms of the literature beside ours, at equal ε∞ and ε₁: exact variances, chances of a guess, false reports, sizes.

Every mechanism below reports once, with one ε. We know of no published memoized form of them, except dBitFlipPM. The comparison
assumes the best memoized form that can exist: one report has the variance V₁ of the mechanism with ε₁, and infinitely many
reports have the variance V∞ of the mechanism with ε∞, each with its own parameters. Then the mean of T reports of an unchanged
value has

    V_T = V∞ + (V₁ - V∞) / T

A real memoized form has one parameter for both rounds, such as one g, and is at best equal.

A variance is n Var of one share; people are drawn at random.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray

MOST_MODULI = 5
PROBABILITIES = np.linspace(0.5, 0.999999, 100)  # that AUE tries


@dataclass(frozen=True, slots=True)
class Figures:
    """One mechanism at one ε.

    Attributes:
        variance: n Var of the share of a value that nobody has, if the other values are equally frequent; mean over the values.
        equal: the same if all values are equally frequent.
        guess: chance of a right guess of a value from one report, if all values are equally likely.
        weight: the largest change of one share by one false report, in honest people.
        bits: size of a report.
    """

    variance: float
    equal: float
    guess: float
    weight: float
    bits: float


def _of_support(k: int, p: float, q: float, guess: float, bits: float) -> Figures:
    """A mechanism whose reports support the own value with probability p, and each other value with probability q."""
    supported = q + (p - q) / k
    equal = supported * (1 - supported) / (p - q) ** 2
    return Figures(_variance(p, q), equal, guess, max(1 - q, q) / (p - q), bits)


def hadamard_response(k: int, eps: float) -> Figures:
    """HR: a column of one of B Hadamard matrices; a value prefers the b/2 columns with a one in its row of its matrix.

    B = 2^(⌈log₂ min(e^ε, 2k)⌉ - 1) and b = 2^⌈log₂(k/B + 1)⌉. The estimate of a share is proportional to the number of reports
    among the b/2 columns, minus half of the number of reports of the matrix. Source: Acharya, Sun and Zhang 2019,
    arXiv:1802.04705.
    """
    e = math.exp(eps)
    n_blocks = 2 ** (math.ceil(math.log2(min(e, 2 * k))) - 1)
    side = 2 ** math.ceil(math.log2(k / n_blocks + 1))
    held = np.bincount(np.arange(k) % n_blocks, minlength=n_blocks)
    total = side / 2 * (e - 1) + n_blocks * side  # in units of the chance of a column that a value does not prefer
    contrast = side / 4 * (e - 1) / total

    def in_matrix(share: FloatArray) -> FloatArray:
        """Chance of a column of the matrix, if the people of this share have one of its values."""
        return np.asarray((share * side / 2 * (e + 1) + (1 - share) * side) / total)

    variance = float(held @ in_matrix((held - 1) / (k - 1))) / k / (2 * contrast) ** 2
    equal = float(held @ in_matrix(held / k)) / k / (2 * contrast) ** 2 - 1 / k**2
    preferred = side * np.choose(np.minimum(held, 3), [0.0, 0.5, 0.75, 1.0])  # rows 1 to 3 cover all columns together
    guess = float((preferred * (e - 1) + side).sum() / total / k)
    return Figures(variance, equal, guess, 0.5 / contrast, math.log2(n_blocks * side))


def projective_geometry_response(k: int, eps: float) -> Figures:
    """PGR: a point of a projective space over GF(q); a value is a point and prefers the points that are orthogonal to it.

    Source: Feldman, Nelson, Nguyen and Talwar 2022, arXiv:2203.00194. They choose the prime q next to e^ε + 1, and the smallest
    dimension with at least k points. Here q is the prime with the smallest variance.
    """
    found = []
    for q in _primes(2 * k + 2):
        t = next(t for t in count(2) if (q**t - 1) // (q - 1) >= k)
        points, preferred, common = ((q**s - 1) // (q - 1) for s in (t, t - 1, t - 2))
        total = preferred * math.expm1(eps) + points
        chances = (preferred * math.exp(eps) / total, (common * math.expm1(eps) + preferred) / total)
        found.append((_of_support(k, *chances, math.nan, math.log2(points)), q, t, total))
    best, q, t, total = min(found, key=lambda one: one[0].variance)
    space = _points(q, t)
    covered = int(((space[:k] @ space.T) % q == 0).any(axis=0).sum())
    guess = (covered * math.expm1(eps) + len(space)) / total / k
    return replace(best, guess=guess)


def _points(q: int, t: int) -> FloatArray:
    """((q^t - 1) / (q - 1), t) the vectors over GF(q) whose first number that is not zero is one, in ascending order."""
    vectors = np.arange(q**t)[:, None] // q ** np.arange(t)[::-1] % q
    leading = vectors[np.arange(q**t), (vectors != 0).argmax(axis=1)]
    return np.asarray(vectors[leading == 1])


def _primes(most: int) -> list[int]:
    return [n for n in range(2, most + 1) if all(n % r for r in range(2, math.isqrt(n) + 1))]


def subset_chances(k: int, eps: float, omega: int) -> tuple[float, float]:
    """Chances that a report of subset selection has the own value, and a given other value."""
    p = omega * math.exp(eps) / (omega * math.exp(eps) + k - omega)
    return p, (p * (omega - 1) + (1 - p) * omega) / (k - 1)


def _variance(p: float, q: float) -> float:
    """n Var of the share of a value that nobody has."""
    return q * (1 - q) / (p - q) ** 2


def modular_subset_selection(k: int, eps: float) -> Figures | None:
    """MSS: one of ℓ moduli, drawn at random, and subset selection of the value's residue; weighted least squares.

    Source: Arcolezi 2026 (AAAI), arXiv:2511.11569, without regularization. The paper draws sets of primes at random from a
    band, and keeps the set with the least exact error. Here the sets are 2 to 5 consecutive primes below k.

    Returns:
        None if no such set determines all shares.
    """
    primes = _primes(k - 1)
    sets = [primes[i : i + n] for n in range(2, MOST_MODULI + 1) for i in range(len(primes) - n + 1)]
    found = [modular(k, eps, moduli) for moduli in sets if sum(moduli) - len(moduli) + 1 >= k]
    return min((one for one in found if one is not None), key=lambda one: one.variance, default=None)


def modular(k: int, eps: float, moduli: list[int]) -> Figures | None:
    """MSS with these moduli; None if they do not determine all shares. Each modulus has the same number of reports."""
    sizes = [int(np.argmin([_variance(*subset_chances(m, eps, size)) for size in range(1, m)])) + 1 for m in moduli]
    chances = [subset_chances(m, eps, omega) for m, omega in zip(moduli, sizes, strict=True)]
    design = np.concatenate([np.arange(k) % m == np.arange(m)[:, None] for m in moduli]).astype(float)
    weights = np.repeat([1 / _variance(p, q) for p, q in chances], moduli)
    normal = design.T @ (weights[:, None] * design)
    if np.linalg.matrix_rank(normal) < k:
        return None
    n, bits, guess, weight = len(moduli), 0.0, 0.0, 0.0
    variances = np.zeros((2, k))  # of a value that nobody has, and with equal shares
    blocks = np.split(np.linalg.solve(normal, design.T * weights), np.cumsum(moduli)[:-1], axis=1)
    for block, m, omega, (p, q) in zip(blocks, moduli, sizes, chances, strict=True):
        held = np.bincount(np.arange(k) % m, minlength=m)
        without = (held - (np.arange(k)[:, None] % m == np.arange(m))) / (k - 1)
        own = p * (omega - 1) / (m - 1)  # chance of the own and a given other residue
        others = (q - own) * (omega - 1) / max(m - 2, 1)  # of two given other residues
        for i, shares in enumerate((without, np.broadcast_to(held / k, (k, m)))):
            supported, squares, sums = q + (p - q) * shares, block**2, block.sum(axis=1)
            pairs = (own - others) * 2 * ((block * shares).sum(axis=1) * sums - (squares * shares).sum(axis=1))
            pairs += others * (sums**2 - squares.sum(axis=1))
            mean = (block * supported).sum(axis=1)
            variances[i] += n * ((squares * supported).sum(axis=1) + pairs - mean**2) / (p - q) ** 2
        ordered, centre = np.sort(block, axis=1), q * block.sum(axis=1)
        extremes = ordered[:, -omega:].sum(axis=1) - centre, centre - ordered[:, :omega].sum(axis=1)
        weight = max(weight, n / (p - q) * float(np.max(extremes)))
        bits += math.log2(math.comb(m, omega)) / n
        guess += m / omega * p / k / n
    variance, equal = variances.mean(axis=1).tolist()
    return Figures(variance, equal, guess, weight, bits + math.log2(n))


def adaptive_subset_selection(k: int, eps: float) -> Figures:
    """ASS: subset selection with the size of the least mean of the chance of a guess and the variance.

    Source of ASS, AUE and ALH: Arcolezi and Gambs 2025, arXiv:2503.01482, with equal weights and one report, as in its code.
    """

    def size_cost(size: int) -> float:
        p, q = subset_chances(k, eps, size)
        return p / size + _variance(p, q)

    omega = min(range(1, max(k - 1, 2)), key=size_cost)
    p, q = subset_chances(k, eps, omega)
    return _of_support(k, p, q, p / omega, k)


def adaptive_unary_encoding(k: int, eps: float) -> Figures:
    """AUE: unary encoding with the p of the least mean of the chance of a guess and the variance."""
    tried = [(p, p / (math.exp(eps) * (1 - p) + p)) for p in PROBABILITIES.tolist()]
    p, q = min(tried, key=lambda chances: unary_guess(k, *chances) + _variance(*chances))
    return _of_support(k, p, q, unary_guess(k, p, q), k)


def unary_guess(k: int, p: float, q: float) -> float:
    """Chance of the guess of a value whose bit is set, or of any value if no bit is set."""
    return float(((1 - p) * (1 - q) ** (k - 1) + p / q * (1 - (1 - q) ** k)) / k)


def adaptive_local_hashing(k: int, eps: float) -> Figures:
    """ALH: local hashing with the g of the least mean of the chance of a guess and the variance, and a seed of eight bytes.

    The objective has the paper's approximate chance; `Figures.guess` is exact for functions drawn from all functions.
    """

    def chances(g: int) -> tuple[float, float]:
        return math.exp(eps) / (math.exp(eps) + g - 1), 1 / g

    options = range(2, max(k, round(math.exp(eps)) + 2))
    g = min(options, key=lambda g: chances(g)[0] / max(k / g, 1) + _variance(*chances(g)))
    p, q = chances(g)
    used = g * (1 - (1 - 1 / g) ** k)  # expected number of symbols that a value has
    guess = (p * used + (1 - p) / (g - 1) * (g - used)) / k
    return _of_support(k, p, q, guess, 64 + math.log2(g))


def bit_flip(k: int, eps: float) -> Figures:
    """dBitFlipPM with d = k buckets, which has the smallest variance: the device sends its memo at every step.

    Source: Ding, Kulkarni and Yekhanin 2017, arXiv:1712.01524.
    """
    p = math.exp(eps / 2) / (math.exp(eps / 2) + 1)
    return _of_support(k, p, 1 - p, unary_guess(k, p, 1 - p), k)


LITERATURE: dict[str, Callable[[int, float], Figures | None]] = {
    "HR": hadamard_response,
    "PGR": projective_geometry_response,
    "MSS": modular_subset_selection,
    "ASS": adaptive_subset_selection,
    "AUE": adaptive_unary_encoding,
    "ALH": adaptive_local_hashing,
    "dBitFlipPM": bit_flip,
}
MEMO_SENT = "dBitFlipPM"  # one report tells the whole memo, so its ε is ε₁
