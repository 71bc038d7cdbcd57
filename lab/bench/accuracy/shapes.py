"""The true distributions of the accuracy benchmark: synthetic shapes, and real data sets."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.stats import beta, norm

from lab import datasets
from ldpstream.mechanisms.arguments import FloatArray

DOMAINS = (2, 5, 20, 100, 300, 1000)
FEW_DOMAINS = (2, 3, 5, 9)
DATA_SHAPES = ("ages", "countries", "kosarak", "visits", "weights", "hours", "bms_pos")  # read from the user's folder


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A family of distributions: `make` returns the (k,) frequencies."""

    make: Callable[[int], FloatArray]
    domains: tuple[int, ...] = DOMAINS
    ordered: bool = False
    held_out: bool = False


def _shuffled(weights: FloatArray) -> FloatArray:
    return np.random.default_rng([18, weights.size]).permutation(weights / weights.sum())


def _in_proportion(weights: npt.ArrayLike) -> FloatArray:
    shares = np.asarray(weights, np.float64)
    return np.asarray(shares / shares.sum())


def _zipf(exponent: float, k: int) -> FloatArray:
    return _shuffled(np.arange(1.0, k + 1) ** -exponent)


def _spikes(number: int, share: float, k: int) -> FloatArray:
    weights = np.full(k, (1 - share) / k)
    weights[: min(number, k - 1)] += share / min(number, k - 1)
    return _shuffled(weights)


def _lognormal(sigma: float, k: int) -> FloatArray:
    return _shuffled(np.exp(sigma * norm.ppf((np.arange(k) + 0.5) / k)))


def _dirichlet(concentration: float, k: int) -> FloatArray:
    return np.random.default_rng([18, k]).dirichlet(np.full(k, concentration))


def _between(ends: FloatArray) -> FloatArray:
    return np.asarray(np.diff(ends) / (ends[-1] - ends[0]))


def _ends(k: int) -> FloatArray:
    return np.linspace(0, 1, k + 1)


def _geometric(k: int) -> FloatArray:
    return _between(-np.exp(-5 * _ends(k)))


def _step(k: int) -> FloatArray:
    return _between(np.interp(_ends(k), [0, 0.3, 0.5, 1], [0, 0.1, 0.8, 1]))


def _gaps(k: int) -> FloatArray:
    return _between(np.interp(_ends(k), [0, 0.1, 0.3, 0.6, 0.7, 1], [0, 0, 0.5, 0.5, 1, 1]))


def _sawtooth(k: int) -> FloatArray:
    x = 3 * _ends(k)
    return _between(np.floor(x) + (x - np.floor(x)) ** 2)


def _cut_off(k: int) -> FloatArray:
    x = _ends(k)
    return _between(0.9 * norm.cdf(np.minimum(x, 0.7), 0.6, 0.2) / norm.cdf(0.7, 0.6, 0.2) + 0.1 * x)


def _hills(near: float, share: float, k: int) -> FloatArray:
    x = _ends(k)
    return _between(share * norm.cdf(x, near, 0.06) + (1 - share) * norm.cdf(x, 0.75, 0.1))


SYNTHETIC: dict[str, Shape] = {
    "uniform": Shape(make=lambda k: np.full(k, 1 / k)),
    "zipf 1": Shape(make=partial(_zipf, 1.0)),
    "one spike": Shape(make=partial(_spikes, 1, 0.5)),
    "dirichlet 1": Shape(make=partial(_dirichlet, 1.0)),
    "geometric": Shape(make=_geometric, ordered=True),
    "step": Shape(make=_step, ordered=True),
    "beta 5 2": Shape(make=lambda k: _between(beta.cdf(_ends(k), 5, 2)), ordered=True),
    "zipf 1.5": Shape(make=partial(_zipf, 1.5)),
    "few spikes": Shape(make=partial(_spikes, 4, 0.7)),
    "dirichlet 0.2": Shape(make=partial(_dirichlet, 0.2)),
    "zipf 0.7": Shape(make=partial(_zipf, 0.7), held_out=True),
    "log-normal": Shape(make=partial(_lognormal, 1.5), held_out=True),
    "ten spikes": Shape(make=partial(_spikes, 10, 0.4), held_out=True),
    "two hills": Shape(make=partial(_hills, 0.25, 0.35), ordered=True),
    "gaps": Shape(make=_gaps, ordered=True),
    "sawtooth": Shape(make=_sawtooth, ordered=True, held_out=True),
    "cut-off": Shape(make=_cut_off, ordered=True, held_out=True),
}


FEW: dict[str, Shape] = {  # answers to questions with few values; cells with few people
    "few equal": Shape(make=lambda k: np.full(k, 1 / k), domains=FEW_DOMAINS),
    "few falling": Shape(make=lambda k: _in_proportion(np.linspace(3, 2, k)), domains=FEW_DOMAINS),
    "few geometric": Shape(make=lambda k: _in_proportion(0.6 ** np.arange(k)), domains=FEW_DOMAINS),
    "few values of which one has 90 %": Shape(
        make=lambda k: np.append(0.9, np.full(k - 1, 0.1 / (k - 1))), domains=FEW_DOMAINS
    ),
    "few with two": Shape(make=lambda k: _in_proportion((np.arange(k) < 2) + 0.0), domains=FEW_DOMAINS[1:]),
}


def _one_value(share: float, k: int) -> FloatArray:
    return np.append(share, np.full(k - 1, (1 - share) / (k - 1)))


def _far_group(k: int) -> FloatArray:
    shares = 0.986 * _between(beta.cdf(_ends(k) / 0.6, 3, 4))
    shares[int(0.95 * k)] += 0.014
    return shares


def _heaps(k: int) -> FloatArray:
    smooth, heaps = _hills(0.3, 0.5, k), np.arange(2, k, 5)
    nearest = heaps[np.abs(heaps - np.arange(k)[:, None]).argmin(axis=1)]
    return 0.5 * smooth + np.bincount(nearest, 0.5 * smooth, k)


def _irregular(k: int) -> FloatArray:
    return _in_proportion(_hills(0.3, 0.6, k) * np.exp(0.15 * np.random.default_rng([18, k]).standard_normal(k)))


HARD: dict[str, Shape] = {  # the shapes for which estimates and intervals were worst
    "one value 95 %": Shape(make=partial(_one_value, 0.95), domains=(2, 3, 5, 9)),
    "one value 99.5 %": Shape(make=partial(_one_value, 0.995), domains=(2, 9, 15)),
    "many, zipf 1": Shape(make=partial(_zipf, 1.0), domains=(21, 40, 120, 500)),
    "many, few spikes": Shape(make=partial(_spikes, 4, 0.7), domains=(21, 40, 120, 500)),
    "far group": Shape(make=_far_group, domains=(32, 100), ordered=True),
    "comb": Shape(make=lambda k: _in_proportion(np.where(np.arange(k) % 4 == 0, 1.0, 0.1)), domains=(16, 64), ordered=True),
    "heaps": Shape(make=_heaps, domains=(64, 200), ordered=True),
    "irregular": Shape(make=_irregular, domains=(64, 200), ordered=True),
    "far ends": Shape(
        make=lambda k: _in_proportion(np.where(np.isin(np.arange(k), (0, k - 1)), 1.0, 0.05 / k)), domains=(8, 64), ordered=True
    ),
}


def shapes(folder: Path | None) -> dict[str, Shape]:
    return SYNTHETIC | ({} if folder is None else real_shapes(folder))


def real_shapes(folder: Path) -> dict[str, Shape]:
    found = {name: datasets.load(name, folder) for name in ("adult", "kosarak", "bms_pos", "ms_fimu", "pwgtp")}
    missing = [name for name, data in found.items() if not data.real]
    if missing:
        raise datasets.DatasetError(f"{folder} has no files of {', '.join(missing)}")
    present = found["ms_fimu"].values[:, 0][found["ms_fimu"].values[:, 0] != datasets.ABSENT]
    counts = {
        "ages": datasets.adult_numbers(folder, 0),
        "countries": np.bincount(found["adult"].values[:, 7]),
        "kosarak": np.bincount(found["kosarak"].values[:, 0]),
        "visits": np.bincount(present),
        "weights": np.bincount(found["pwgtp"].values[:, 0] // 5),  # five neighbouring weights form one value
        "hours": datasets.adult_numbers(folder, 12),
        "bms_pos": np.bincount(found["bms_pos"].values[:, 0]),
    }
    return {
        name: Shape(
            make=partial(_fixed, counts[name] / counts[name].sum()),
            domains=(counts[name].size,) * 2,
            ordered=name in ("ages", "weights", "hours"),
            held_out=name == "bms_pos",
        )
        for name in DATA_SHAPES
    }


def _fixed(frequencies: FloatArray, k: int) -> FloatArray:
    return frequencies
