"""The loops of the smoothness prior (`estimators.smooth_prior`), compiled by Numba.

Import this module only inside functions, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ldpstream.estimators.exponential import exp

Floats = npt.NDArray[Any]

NEGLIGIBLE = 0.01  # a component that explains less than this number of values is dropped
LEAST_LEVEL = 0.001  # smallest sum of the smooth part
SMALLEST, LARGEST = 1e-100, 1e100  # limits of a product, whose logarithm replaces a sum of logarithms


@numba.njit(cache=True, nogil=True, error_model="numpy")
def factor(bands: Floats, weights: Floats, l1: Floats, l2: Floats, d: Floats) -> float:
    """Factors H = diag(weights) + Q = L D Lᵀ in O(k), and returns ln det H.

    Args:
        bands: (3, k) Q: its diagonal, and the first and the second diagonal above it (the last 1 and 2 numbers are 0).
        l1, l2, d: (k,) overwritten with the factors: L[i+1, i] = l1[i], L[i+2, i] = l2[i], D[i, i] = d[i].
    """
    k = weights.size
    log_det, product = 0.0, 1.0
    # l1[i-1], l2[i-1], l2[i-2], d[i-1] and d[i-2]; local, because a number just written is slow to read
    first = second = third = last = before = 0.0
    for i in range(k):
        pivot = weights[i] + bands[0, i] - first**2 * last - third**2 * before
        product *= pivot
        if not SMALLEST < product < LARGEST:
            log_det, product = log_det + np.log(product), 1.0
        inverse = 1 / pivot
        first = (bands[1, i] - second * first * last) * inverse
        third, second, before, last = second, bands[2, i] * inverse, last, pivot
        l1[i], l2[i], d[i] = first, second, pivot
    return float(log_det + np.log(product))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def solve_upper(l1: Floats, l2: Floats, x: Floats) -> None:
    """Replaces x by the solution y of Lᵀ y = x."""
    near = far = 0.0  # local, because a number just written is slow to read
    for i in range(x.size - 1, -1, -1):
        near, far = x[i] - l1[i] * near - l2[i] * far, near
        x[i] = near


@numba.njit(cache=True, nogil=True, error_model="numpy")
def solve(l1: Floats, l2: Floats, d: Floats, x: Floats) -> None:
    """Replaces x by the solution y of L D Lᵀ y = x."""
    near = far = 0.0  # l1[i-1] y[i-1], and l2[i-2] y[i-2]
    below = 0.0
    for i in range(x.size):
        y = x[i] - near - far
        near, far, below = l1[i] * y, below, l2[i] * y
        x[i] = y / d[i]
    solve_upper(l1, l2, x)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def solve_two(l1: Floats, l2: Floats, d: Floats, x: Floats, y: Floats) -> None:
    near_x = far_x = below_x = near_y = far_y = below_y = 0.0
    for i in range(x.size):
        u, v = x[i] - near_x - far_x, y[i] - near_y - far_y
        near_x, far_x, below_x = l1[i] * u, below_x, l2[i] * u
        near_y, far_y, below_y = l1[i] * v, below_y, l2[i] * v
        x[i], y[i] = u / d[i], v / d[i]
    near_x = far_x = near_y = far_y = 0.0
    for i in range(x.size - 1, -1, -1):
        near_x, far_x = x[i] - l1[i] * near_x - l2[i] * far_x, near_x
        near_y, far_y = y[i] - l1[i] * near_y - l2[i] * far_y, near_y
        x[i], y[i] = near_x, near_y


@numba.njit(cache=True, nogil=True, error_model="numpy")
def times(bands: Floats, x: Floats, out: Floats) -> float:
    """Writes Q x to `out`, and returns xᵀ Q x."""
    k = x.size
    for i in range(k):
        out[i] = bands[0, i] * x[i]
    for i in range(k - 1):
        out[i] += bands[1, i] * x[i + 1]
        out[i + 1] += bands[1, i] * x[i]
    for i in range(k - 2):
        out[i] += bands[2, i] * x[i + 2]
        out[i + 2] += bands[2, i] * x[i]
    return dot(x, out)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def scale(x: Floats, by: float) -> None:
    for i in range(x.size):
        x[i] *= by


@numba.njit(cache=True, nogil=True, error_model="numpy")
def shares(eta: Floats, widths: Floats, f: Floats) -> None:
    """Writes the shares w e^η, normalised, to `f`."""
    highest, total = -np.inf, 0.0
    for i in range(eta.size):
        highest = max(highest, eta[i])
    for i in range(eta.size):
        f[i] = widths[i] * exp(eta[i] - highest)
    for i in range(eta.size):
        total += f[i]
    scale(f, 1 / total)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def explain(
    z: Floats, precision: Floats, root: Floats, m: Floats, chances: Floats, gamma: Floats, mean_precision: Floats
) -> float:
    """Returns Σ_v ln Σ_j π_j N(z_v; m_v, 1/precision_jv) + k ln(2π)/2, and writes the posterior chances of the components of
    each share.

    Args:
        z, m: (k,) unbiased shares and their smooth part.
        precision, root: (J, k) 1 / (A + ω_j²), and the square root of this number.
        chances: (J,) π_j; a component with π_j = 0 is left out.
        gamma: (J, k) overwritten with the posterior chances of the components.
        mean_precision: (k,) overwritten with Σ_j gamma_j precision_j.
    """
    k = z.size
    total, product = 0.0, 1.0
    if chances.size == 1:
        alone, scales = precision[0], root[0]
        for v in range(k):
            gamma[0, v], mean_precision[v] = 1.0, alone[v]
            total -= 0.5 * (z[v] - m[v]) ** 2 * alone[v]
            product *= scales[v]
            if not SMALLEST < product < LARGEST:
                total, product = total + np.log(product), 1.0
        return float(total + np.log(product))
    least, mass = np.full(k, np.inf), np.zeros(k)
    for j in range(chances.size):
        if chances[j] > 0:
            own = precision[j]
            for v in range(k):
                least[v] = min(least[v], (z[v] - m[v]) ** 2 * own[v])
    mean_precision[:] = 0.0
    for j in range(chances.size):
        own, scales, chance = precision[j], root[j], gamma[j]
        if chances[j] > 0:
            for v in range(k):
                chance[v] = chances[j] * scales[v] * exp(0.5 * (least[v] - (z[v] - m[v]) ** 2 * own[v]))
                mass[v] += chance[v]
                mean_precision[v] += chance[v] * own[v]
        else:
            chance[:] = 0.0
    for v in range(k):
        total -= 0.5 * least[v]
        product *= mass[v]
        if not SMALLEST < product < LARGEST:
            total, product = total + np.log(product), 1.0
        mass[v] = 1 / mass[v]
        mean_precision[v] *= mass[v]
    for j in range(chances.size):
        chance = gamma[j]
        for v in range(k):
            chance[v] *= mass[v]
    return float(total + np.log(product))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def mode(
    z: Floats,
    precision: Floats,
    root: Floats,
    shrinkage: Floats,
    widths: Floats,
    bands: Floats,
    eta: Floats,
    chances: Floats,
    level: Floats,
    m: Floats,
    gamma: Floats,
    mean_precision: Floats,
    none: float,
    rounds: int,
    tol: float,
) -> float:
    """Moves η, π and the smooth part's sum c to a mode of their posterior. Returns the Laplace approximation of ln p(z | Q)
    without the term C.

        ln p(z | Q) ≈ C(Q, k) + ln p(z | m, π) - ηᵀQη/2 + a ln π₀ - ln(det H · mᵀ H⁻¹ m / c²)/2, H = diag(m² E[precision]) + Q

    Args:
        z: (k,) unbiased shares.
        precision, root: (J, k) 1 / (A + ω_j²), ω_0 = 0, and the square root of this number.
        shrinkage: (J, k) ω_j² / (A + ω_j²).
        widths: (k,) widths of the bins, positive.
        bands: (3, k) Q, as in `factor`.
        eta: (k,) start; overwritten with the mode.
        chances: (J,) π, start; overwritten. With J = 1, π and c keep their values.
        level: (1,) c, start; overwritten.
        m, gamma, mean_precision: overwritten with the smooth part c w e^η / Σ w e^η and as in `explain`.
        none: a, number of further values without an independent part, which regularise π.
        rounds: largest number of rounds.
        tol: the loop stops when a round gains less than tol nats.
    """
    k = z.size
    l1, l2, d, weights = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    pull, step, across, tried, m_tried = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    shares(eta, widths, m)
    scale(m, level[0])
    value = explain(z, precision, root, m, chances, gamma, mean_precision) - 0.5 * times(bands, eta, pull)
    before, moved = -np.inf, True
    for _ in range(rounds):
        if chances.size > 1:
            _update_chances(z, shrinkage, gamma, chances, none, level, m)
            value = explain(z, precision, root, m, chances, gamma, mean_precision) - 0.5 * times(bands, eta, pull)
            value += none * np.log(chances[0])
        if value - before < tol:
            break
        before = value
        mean = 0.0
        for i in range(k):
            weights[i] = m[i] ** 2 * mean_precision[i]
            mean += m[i] * (z[i] - m[i]) * mean_precision[i] / level[0]
        factor(bands, weights, l1, l2, d)
        for i in range(k):
            step[i] = m[i] * ((z[i] - m[i]) * mean_precision[i] - mean) - pull[i]
            across[i] = m[i]
        solve_two(l1, l2, d, step, across)
        drift = dot(m, step) / dot(m, across)
        for i in range(k):
            step[i] -= across[i] * drift
        length, after = 1.0, -np.inf
        while length > 1e-4:
            for i in range(k):
                tried[i] = eta[i] + length * step[i]
            shares(tried, widths, m_tried)
            scale(m_tried, level[0])
            after = explain(z, precision, root, m_tried, chances, gamma, mean_precision)
            after += none * np.log(chances[0]) - 0.5 * times(bands, tried, pull)
            if after >= value:
                value = after
                for i in range(k):
                    eta[i], m[i] = tried[i], m_tried[i]
                break
            length /= 2
        if not after >= value:
            moved = False
            break
    if not moved:  # `gamma` and `mean_precision` are those of a step that was not made
        explain(z, precision, root, m, chances, gamma, mean_precision)
    for i in range(k):
        weights[i] = m[i] ** 2 * mean_precision[i]
        across[i] = m[i]
    log_det = factor(bands, weights, l1, l2, d)
    solve(l1, l2, d, across)
    return float(value - 0.5 * (log_det + np.log(dot(m, across) / level[0] ** 2)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _update_chances(
    z: Floats, shrinkage: Floats, gamma: Floats, chances: Floats, none: float, level: Floats, m: Floats
) -> None:
    k = z.size
    for j in range(chances.size):
        chances[j] = 0.0
    excess = 0.0
    for j in range(chances.size):
        chance, kept = gamma[j], shrinkage[j]
        for v in range(k):
            chances[j] += chance[v]
            excess += chance[v] * kept[v] * (z[v] - m[v])
    chances[0] += none
    for j in range(1, chances.size):
        if chances[j] < NEGLIGIBLE:
            chances[j] = 0.0
    total = chances.sum()
    for j in range(chances.size):
        chances[j] /= total
    after = min(max(1 - excess, LEAST_LEVEL), 2.0)
    scale(m, after / level[0])
    level[0] = after


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw(
    z: Floats,
    mean_precision: Floats,
    widths: Floats,
    bands: Floats,
    eta: Floats,
    level: float,
    normal: Floats,
    log_weights: Floats,
) -> None:
    """Replaces normal numbers by draws of the smooth part around its mode, with importance weights for its posterior.

    A draw is η̂ + δ, δ ~ N(0, H⁻¹) given mᵀδ = 0.

    Args:
        eta: (k,) the mode.
        level: c, the sum of the smooth part.
        normal: (r, k) standard normal numbers; overwritten with smooth parts.
        log_weights: (r,) overwritten with the log-weights; 0 at the mode.
    """
    k = eta.size
    l1, l2, d, weights = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    m, across, pull, moved = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    shares(eta, widths, m)
    scale(m, level)
    for i in range(k):
        weights[i] = m[i] ** 2 * mean_precision[i]
        across[i] = m[i]
    factor(bands, weights, l1, l2, d)
    solve(l1, l2, d, across)
    times(bands, eta, pull)
    inner = dot(m, across)
    for i in range(k):
        d[i] = 1 / np.sqrt(d[i])
    for j in range(len(normal)):
        delta = normal[j]
        for i in range(k):
            delta[i] *= d[i]
        solve_upper(l1, l2, delta)
        drift = dot(m, delta) / inner
        log_weight = 0.0  # in the difference of the two log-densities, the quadratic terms of Q cancel
        for i in range(k):
            delta[i] -= across[i] * drift
            log_weight += weights[i] * delta[i] ** 2 - 2 * pull[i] * delta[i] + (z[i] - m[i]) ** 2 * mean_precision[i]
            moved[i] = eta[i] + delta[i]
        shares(moved, widths, delta)
        for i in range(k):
            delta[i] *= level
            log_weight -= (z[i] - delta[i]) ** 2 * mean_precision[i]
        log_weights[j] = log_weight / 2
