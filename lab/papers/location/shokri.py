"""Shokri's optimal location mechanism, from a linear programme that maximises an adversary's expected error.

    maximise    Σ_z t_z
    subject to  t_z ≤ Σ_x π_x A[x, z] d(x, g)         for every report z and every guess g
                Σ_x π_x Σ_z A[x, z] ℓ(x, z) ≤ Q       the user's expected quality loss
                Σ_z A[x, z] = 1,  A ≥ 0

π is the prior, d the adversary's error, ℓ the user's quality loss. The optimum is the smallest expected error of an adversary
who knows π and A. There is no guarantee against an adversary who knows more than π. A report may exclude values; `eps_1` and
`eps_distance` are then infinite.

Sources: Shokri, Theodorakopoulos, Troncoso, Hubaux and Le Boudec 2012; ElSalamouny and Palamidessi, "Reconstruction of the
distribution of sensitive data under free-will privacy", §8.2.4, where ℓ = d.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from lab.papers.location.base import StoredChannel
from ldpstream.mechanisms.arguments import FloatArray, integer, real

MAX_LP_K = 128  # the programme has k² + k unknowns and about k³ coefficients
DUST = 1e-11  # entries of a solution below this are rounding errors of the solver


class Shokri(StoredChannel):
    """Shokri's optimal mechanism for a prior and a bound on the expected quality loss.

    If the optimum is not unique, the channel depends on the solver. The signature contains a digest of the channel.

    Args:
        prior: (k,) π, the distribution of values that the adversary assumes; positive everywhere, 2 <= k <= 128.
        distance: (k, k) d, the adversary's error: symmetric, zero on the diagonal and positive elsewhere; also the unit of
            `eps_distance`.
        max_loss: Q, the bound on the expected quality loss, from 0 to the largest loss.
        loss: (k, k) ℓ, the quality loss ℓ(x, z) of reporting z for x: zero on the diagonal, not negative; default: d.

    Raises:
        ValueError: if an argument is invalid; the message names the argument and what is allowed.
        RuntimeError: if the solver fails; the error contains the solver's message.

    Attributes:
        expected_loss: the channel's expected quality loss, at most Q to within 1e-9 of the largest loss.
        expected_error: the adversary's smallest expected error: the optimum.

    >>> line = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    >>> m = Shokri(prior=np.full(5, 0.2), distance=line, max_loss=0.5)
    >>> round(m.expected_loss, 9), round(m.expected_error, 9)
    (0.5, 0.5)
    """

    name = "Shokri"

    def __init__(
        self, prior: npt.ArrayLike, distance: npt.ArrayLike, max_loss: float, loss: npt.ArrayLike | None = None
    ) -> None:
        self.prior = distribution("prior", prior)
        self._set_domain(integer("the length of prior", self.prior.size, 2, MAX_LP_K))
        if not self.prior.all():
            raise ValueError(f"prior must be positive everywhere, got 0.0 at position {int(self.prior.argmin())}")
        self._distance = _matrix("distance", distance, self.k)
        _require_metric(self._distance)
        self.loss = self._distance if loss is None else _matrix("loss", loss, self.k)
        self.max_loss = real("max_loss", max_loss, 0.0, float(self.loss.max()))
        channel = optimal_channel(self.prior, self._distance, self.loss, self.max_loss)
        self._set_channel(channel)
        self.expected_loss = expected_loss(channel, self.prior, self.loss)
        self.expected_error = expected_error(channel, self.prior, self._distance)
        digest = hashlib.sha256(np.ascontiguousarray(channel, "<f8").tobytes()).hexdigest()[:16]
        self.signature = f"{self.name}(k={self.k}, max_loss={self.max_loss!r}, channel={digest})"

    def distances(self) -> FloatArray:
        return self._distance


def expected_loss(channel: FloatArray, prior: FloatArray, loss: FloatArray) -> float:
    """Σ_x π_x Σ_z A[x, z] ℓ(x, z): the user's expected quality loss."""
    return float(prior @ (channel * loss).sum(axis=1))


def expected_error(channel: FloatArray, prior: FloatArray, distance: FloatArray) -> float:
    """Σ_z min_g Σ_x π_x A[x, z] d(x, g): the expected error of an adversary who knows the prior and the channel."""
    return float((distance.T @ (prior[:, None] * channel)).min(axis=0).sum())


def optimal_channel(prior: FloatArray, distance: FloatArray, loss: FloatArray, max_loss: float) -> FloatArray:
    """Solves the linear programme of the module's docstring with HiGHS and returns the channel."""
    from scipy import sparse  # scipy.sparse is slow to load; only this function needs it
    from scipy.optimize import linprog

    k = prior.size
    guesses = -(distance * prior[:, None]).T / distance.max()
    errors = sparse.hstack([sparse.kron(sparse.eye_array(k), guesses), sparse.kron(sparse.eye_array(k), np.ones((k, 1)))])
    scale = loss.max() or 1.0
    quality = np.concatenate([(loss * prior[:, None]).T.ravel() / scale, np.zeros(k)])[None, :]
    rows = sparse.hstack([sparse.kron(np.ones((1, k)), sparse.eye_array(k)), sparse.csr_array((k, k))])
    solution = linprog(
        np.concatenate([np.zeros(k * k), -np.ones(k)]),
        A_ub=sparse.vstack([errors, quality]).tocsr(),
        b_ub=np.concatenate([np.zeros(k * k), [max_loss / scale]]),
        A_eq=rows.tocsr(),
        b_eq=np.ones(k),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.status != 0:
        raise RuntimeError(f"no optimal channel for k = {k}, max_loss = {max_loss!r}: {solution.message}")
    channel = solution.x[: k * k].reshape(k, k).T.copy()
    channel[channel < DUST] = 0.0
    return np.asarray(channel / channel.sum(axis=1, keepdims=True))


def distribution(name: str, values: npt.ArrayLike) -> FloatArray:
    """Checks a (k,) distribution (non-negative numbers with sum 1 to within 1e-9), and returns it divided by its sum."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a one-dimensional array of numbers, got {array.dtype} of shape {array.shape}")
    array = array.astype(np.float64)
    good = (array >= 0) & (array <= 1 + 1e-9)  # this comparison is False for NaN
    if not good.all():
        i = int(good.argmin())
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {float(array[i])!r} at position {i}")
    if not abs(array.sum() - 1) <= 1e-9:
        raise ValueError(f"{name} must sum to 1 to within 1e-09, got {float(array.sum())!r}")
    return np.asarray(array / array.sum())


def _matrix(name: str, values: npt.ArrayLike, k: int) -> FloatArray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be numbers of shape {(k, k)}, got rows of different lengths") from None
    if array.shape != (k, k) or array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers of shape {(k, k)}, got {array.dtype} of shape {array.shape}")
    array = array.astype(np.float64)
    _require(name, array, (array >= 0) & (array < np.inf), "finite and not negative")
    _require(name, array, (array == 0) | ~np.eye(k, dtype=bool), "zero on the diagonal")
    array.setflags(write=False)
    return array


def _require_metric(distance: FloatArray) -> None:
    _require("distance", distance, (distance > 0) | np.eye(len(distance), dtype=bool), "positive off the diagonal")
    _require("distance", distance, distance == distance.T, "symmetric")


def _require(name: str, array: FloatArray, good: npt.NDArray[np.bool_], what: str) -> None:
    if not good.all():
        i, j = np.unravel_index(int(good.argmin()), good.shape)
        raise ValueError(f"{name} must be {what}, got {float(array[i, j])!r} at [{i}, {j}]")
