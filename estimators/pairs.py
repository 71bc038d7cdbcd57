"""Two attributes together: the cross table of a pair, from its own reports and from the reports of its two attributes.

A pair is asked as one attribute with k₁ k₂ values, the cells (i, j) of a table θ whose sum is 1. Row i is a value of the first
attribute, column j a value of the second. Three estimates describe this table:

    z  = θ + noise         the matrix inversion of the pair's reports, with the covariance V
    z₁ = θ 1 + noise       the first attribute's reports: the sums of the rows, with V₁
    z₂ = θᵀ 1 + noise      the second attribute's reports: the sums of the columns, with V₂

Each of the three is first made to sum to 1 by least squares. Generalised least squares then joins them. With H the map from
cells to row sums and column sums, y = (z₁, z₂), W the covariance of y and K that of z and y,

    S = H V Hᵀ + W - H K - Kᵀ Hᵀ
    θ̂ = z + (V Hᵀ - K) S⁻¹ (y - H z)              Q = V - (V Hᵀ - K) S⁻¹ (V Hᵀ - K)ᵀ

Q is the covariance of θ̂. K is 0 if different people answer the three questions. If the same people answer all of them, K is
the covariance of the sample of people.

Source: Aitken 1936 (generalised least squares); Fieller 1954 (ratios); Wald 1943 and Rao 1948 (the test).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from ldpstream.estimators.estimate import NORMAL, Group, Steps, of_each_group
from ldpstream.estimators.matrix_inversion import inversion_weight
from ldpstream.estimators.post_processing import post_process
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.covariance import Covariance

ROUNDING, TINY = 1e-12, 1e-30  # relative and absolute variance of rounding errors
NO_NOISE = 1e-9  # a sum whose variance is below this part of the cells' variances is known; the rest is rounding
MOST_CURVATURE = 0.05  # largest `curvature` for which the test has its size; see `independence`


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares, and the ends of their 95 % intervals; an unknown share is NaN with the interval [0, 1]."""

    shares: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Independence:
    """A χ² test of the hypothesis that the two attributes are independent.

    Attributes:
        statistic: X², approximately χ² with `degrees` degrees of freedom if the attributes are independent.
        degrees: (k₁ - 1)(k₂ - 1).
        p: probability of a statistic at least this large if they are.
    """

    statistic: float
    degrees: int
    p: float


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """The joint shares of two attributes, with the covariance of the cells, row by row.

    Attributes:
        shares: (k₁, k₂) shares with the sum 1; may be negative.
        covariance: of the k₁ k₂ cells.
        agreement: p of the χ² test that the sums of the pair's reports agree with the attributes' own reports; None if those
            carry no information.
    """

    shares: FloatArray
    covariance: Covariance
    agreement: float | None = None

    def cells(self) -> Shares:
        """The share of each cell, (k₁, k₂): of all people, those with both values."""
        return _normal(self.shares, self.cell_errors().reshape(self.shares.shape) ** 2)

    def cell_errors(self) -> FloatArray:
        """The standard errors of the cells, (k₁ k₂,)."""
        return np.asarray(np.sqrt(np.maximum(self.covariance.variances, 0)))

    def margin(self, axis: int) -> Shares:
        """The shares of the values of the first attribute (axis 0), (k₁,), or of the second (axis 1), (k₂,)."""
        return _normal(self.shares.sum(axis=1 - axis), np.diag(self.margin_covariance(axis)))

    def margin_covariance(self, axis: int) -> FloatArray:
        """The covariance of the margin's shares."""
        return self.covariance.of_sums(_margin_sums(self.shares.shape, axis))

    def within(self, axis: int) -> Shares:
        """Of the people with a value of one attribute, the shares of the values of the other, (k₁, k₂).

        The interval is Fieller's set of the ratios that the estimate does not reject, cut to [0, 1]. If the share of the row or
        column is not above 0 at this level, the result is NaN with the interval [0, 1].
        """
        shape, sums = self.shares.shape, _margin_sums(self.shares.shape, axis)
        whole = self.shares.sum(axis=1 - axis, keepdims=True)
        together = (self.covariance.with_sums(sums) * sums).sum(axis=0).reshape(shape)
        of_whole = np.expand_dims(np.diag(self.margin_covariance(axis)), 1 - axis)
        of_cell = self.covariance.variances.reshape(shape)
        a = np.broadcast_to(whole**2 - NORMAL**2 * of_whole, shape)
        b = self.shares * whole - NORMAL**2 * together
        c = self.shares**2 - NORMAL**2 * of_cell
        known = (a > 0) & (whole > 0)
        root = np.sqrt(np.maximum(b**2 - a * c, 0))
        a = np.where(known, a, 1.0)
        low, high = np.clip((b - root) / a, 0, 1), np.clip((b + root) / a, 0, 1)
        shares = self.shares / np.where(known, whole, np.nan)
        return Shares(shares, np.where(known, low, 0.0), np.where(known, high, 1.0))


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of one question over some steps.

    Attributes:
        groups: each level's mechanism and count table.
        steps: as in `matrix_inversion`.
    """

    groups: Sequence[Group]
    steps: Steps = 1

    def informative(self) -> list[tuple[Group, int]]:
        """The groups of pure mechanisms whose counts carry information, each with the most reports of one person."""
        each = of_each_group(list(self.groups), self.steps) if self.groups else []
        return [((m, t), n) for (m, t), n in zip(self.groups, each, strict=True) if t.n and m.pure and m.p != m.q]


@dataclass(frozen=True, slots=True)
class _Seen:
    shares: FloatArray
    covariance: Covariance
    people: float


def pair_estimate(counts: Sequence[Counted], shape: tuple[int, int], same_people: bool = False) -> PairEstimate | None:
    """The joint shares of two attributes by generalised least squares; see the module's docstring.

    Args:
        counts: the counts of the pair, whose value i k₂ + j means the values i and j; of its first attribute; of the second.
            Levels of mechanisms that are not pure are ignored.
        shape: (k₁, k₂).
        same_people: true if the same people answer all three questions (spl); false if everybody answers one of them.

    Returns:
        None if the pair's counts carry no information.
    """
    guess = _fit(counts, shape, False, None)
    if guess is None:
        return None
    # the variances depend on the shares: all of them must come from one table, and the joined shares are the best
    return _fit(counts, shape, same_people, post_process(guess.shares.ravel(), "norm-sub").reshape(shape))


def independence(counts: Sequence[Counted], shape: tuple[int, int], same_people: bool = False) -> Independence | None:
    """Tests whether the two attributes are independent; the arguments are those of `pair_estimate`.

        X² = δᵀ C⁻¹ δ,   δ_ij = θ̂_ij - r̂_i ĉ_j

    for all rows and columns but the last ones. C is the covariance of δ to first order, with the noise at the shares r_i c_j
    that independent attributes would have. X² is approximately χ² with (k₁ - 1)(k₂ - 1) degrees of freedom.

    Returns:
        None if the pair's counts carry no information, or too little for this test.
    """
    from scipy.linalg import cho_factor, cho_solve  # slow to load; only surveys with pairs need it

    guess = pair_estimate(counts, shape, same_people)
    if guess is None:
        return None
    rows, columns = (post_process(guess.shares.sum(axis=1 - axis), "norm-sub") for axis in (0, 1))
    found = _fit(counts, shape, same_people, np.outer(rows, columns))
    assert found is not None
    k1, k2 = shape
    r, c = found.shares.sum(axis=1), found.shares.sum(axis=0)
    delta = (found.shares - np.outer(r, c))[:-1, :-1].ravel()
    # the derivative of δ, for cells (i, j) without the last row and column, by the cells (u, v)
    same_row, same_column = np.eye(k1)[:-1], np.eye(k2)[:-1]
    slope = (
        np.einsum("iu,jv->ijuv", same_row, same_column)
        - np.einsum("iu,j,v->ijuv", same_row, columns[:-1], np.ones(k2))
        - np.einsum("i,u,jv->ijuv", rows[:-1], np.ones(k1), same_column)
    ).reshape(delta.size, k1 * k2)
    covariance = found.covariance.of_sums(slope)
    if _curvature(found, covariance) > MOST_CURVATURE:
        return None
    statistic = float(delta @ cho_solve(cho_factor(_steady(covariance, found.covariance.own.max())), delta))
    return Independence(statistic, delta.size, float(chdtrc(delta.size, statistic)))


def _curvature(found: PairEstimate, covariance: FloatArray) -> float:
    of_margins = np.trace(found.margin_covariance(0)) * np.trace(found.margin_covariance(1))
    of_contrasts = np.trace(covariance)
    return float(of_margins / of_contrasts) if of_contrasts > 0 else math.inf


def _steady(covariance: FloatArray, largest: float) -> FloatArray:
    return np.asarray(covariance + np.eye(len(covariance)) * (ROUNDING * largest + TINY))


def _fit(counts: Sequence[Counted], shape: tuple[int, int], same_people: bool, at: FloatArray | None) -> PairEstimate | None:
    from scipy.linalg import solve_triangular  # slow to load; only surveys with pairs need it

    pair, *parts = counts
    cells = _seen(pair, None if at is None else at.ravel())
    if cells is None:
        return None
    sums, rest, cross = [], [], []
    for axis, counted in enumerate(parts):
        seen = _seen(counted, None if at is None else at.sum(axis=1 - axis))
        if seen is None:
            continue
        k = shape[axis]
        of_cells = _margin_sums(shape, axis)
        sums.append(of_cells[:-1])  # the last sum follows from the others, since all add up to 1
        rest.append(seen)
        cross.append(
            _sampled(cells, seen, of_cells, at) if same_people and at is not None else np.zeros((k - 1, cells.shares.size))
        )
    if not sums:
        return PairEstimate(cells.shares.reshape(shape), cells.covariance)
    h, k_t = np.concatenate(sums), np.concatenate(cross)
    hv = cells.covariance.with_sums(h)
    s = hv @ h.T - h @ k_t.T - k_t @ h.T
    at_row = 0
    for seen in rest:
        n = seen.shares.size - 1
        s[at_row : at_row + n, at_row : at_row + n] += seen.covariance.matrix()[:-1, :-1]
        at_row += n
    if same_people and at is not None and len(rest) == 2:
        n = rest[0].shares.size - 1
        of_both = _between(rest, at)
        s[:n, n:] += of_both
        s[n:, :n] += of_both.T
    difference = np.concatenate([seen.shares[:-1] for seen in rest]) - h @ cells.shares
    root = np.linalg.cholesky(_steady(s, cells.covariance.own.max()))
    gained = solve_triangular(root, hv - k_t, lower=True)
    excess = solve_triangular(root, difference, lower=True)
    shares = cells.shares + gained.T @ excess
    agreement = float(chdtrc(difference.size, excess @ excess))
    return PairEstimate(shares.reshape(shape), cells.covariance.minus(gained), agreement)


def _margin_sums(shape: tuple[int, ...], axis: int) -> FloatArray:
    """(k, k₁ k₂) the cells of each value of the first (axis 0) or of the second attribute."""
    one = np.eye(shape[axis])
    return np.repeat(one, shape[1], axis=1) if axis == 0 else np.tile(one, shape[0])


def _sampled(cells: _Seen, seen: _Seen, of_cells: FloatArray, at: FloatArray) -> FloatArray:
    shares = at.ravel()
    covariance = of_cells * shares - np.outer(of_cells @ shares, shares)
    return np.asarray(covariance[:-1] / max(cells.people, seen.people))


def _between(rest: list[_Seen], at: FloatArray) -> FloatArray:
    covariance = at - np.outer(at.sum(axis=1), at.sum(axis=0))
    return np.asarray(covariance[:-1, :-1] / max(seen.people for seen in rest))


def _seen(counted: Counted, at: FloatArray | None) -> _Seen | None:
    informative = counted.informative()
    if not informative:
        return None
    weights = np.array([float(inversion_weight(m, t.n / each, each)[0]) for (m, t), each in informative])
    weights /= weights.sum()
    inverted = [m.reading.inversion(t) for (m, t), _ in informative]
    shares = np.sum([w * z for w, z in zip(weights, inverted, strict=True)], axis=0)
    f = post_process(shares, "norm-sub") if at is None else at
    noise = Covariance(np.zeros(shares.size), np.zeros((0, shares.size)), np.zeros(0))
    for ((m, table), each), w in zip(informative, weights.tolist(), strict=True):
        scale = w / (math.sqrt(table.n / each) * each * (m.p - m.q))
        noise += m.reading.support_covariance(f, each).scaled(scale)
    along = noise.with_sums(np.ones((1, shares.size)))[0]  # covariance of each share with the sum
    of_sum = along.sum()
    if of_sum > NO_NOISE * noise.own.sum():
        shares = shares - along * (shares.sum() - 1) / of_sum
        noise = noise.minus(along[None] / math.sqrt(of_sum))
    # the weighted mean of samples of n_l people varies like one sample of 1 / Σ w_l² / n_l people
    people = 1 / sum(w**2 * each / t.n for ((_, t), each), w in zip(informative, weights.tolist(), strict=True))
    return _Seen(shares, noise, people)


def _normal(shares: FloatArray, variances: FloatArray) -> Shares:
    half = NORMAL * np.sqrt(np.maximum(variances, 0))
    return Shares(shares, np.clip(shares - half, 0, 1), np.clip(shares + half, 0, 1))
