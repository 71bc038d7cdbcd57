"""The loops of the smoothness prior (`estimators.smooth.smooth_prior`), compiled by Numba.

Import this module only inside functions, because Numba loads slowly.
"""

import numba
import numpy as np

from ldpstream.estimators.bayes.exponential import SUMS, Floats, dot, exp

NEGLIGIBLE = 0.01  # a component that explains less than this number of values is dropped
LEAST_LEVEL = 0.001  # smallest sum of the smooth part
SMALLEST, LARGEST = 1e-100, 1e100  # limits of a product, whose logarithm replaces a sum of logarithms

Row = tuple[float, float, float, float, float, float, float, float, float, float]
NOTHING: Row = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@numba.njit(cache=True, error_model="numpy")
def log_product(x: Floats) -> float:
    """Returns the logarithm of the product of positive numbers."""
    total, even, odd = 0.0, 1.0, 1.0
    for i in range(0, x.size - 1, 2):
        even *= x[i]
        odd *= x[i + 1]
        if not (SMALLEST < even < LARGEST and SMALLEST < odd < LARGEST):
            total, even, odd = total + np.log(even) + np.log(odd), 1.0, 1.0
    if x.size % 2:
        total += np.log(x[x.size - 1])
    return float(total + np.log(even) + np.log(odd))


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def _eliminate(diagonal: float, near: float, far: float, x: float, y: float, last: Row) -> Row:
    """Eliminates a row of a symmetric matrix with five diagonals, and of two right-hand sides.

    Args:
        diagonal: the row's number on the diagonal.
        near, far: the numbers that couple the row with the next row and with the second next row.
        x, y: the row's numbers in the right-hand sides.
        last: result for the row eliminated last, or `NOTHING`.

    Returns:
        1 / pivot; near / pivot and far / pivot; x, y, `near` and `far` after the elimination of earlier rows; and what `last`
        subtracts from the next row's diagonal, x and y.
    """
    inverse, first, second, u, v, near_last, far_last, from_diagonal, from_x, from_y = last
    pivot = diagonal - from_diagonal - near_last * near_last * inverse  # the next row waits for this division
    near -= near_last * far_last * inverse
    after = 1 / pivot
    return (
        after, near * after, far * after, x - from_x - first * u, y - from_y - first * v, near, far,
        far_last * second, second * u, second * v,
    )  # fmt: skip


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def factor(bands: Floats, weights: Floats, l1: Floats, l2: Floats, d: Floats) -> float:
    """Factors H = diag(weights) + Q = L D Lᵀ in O(k), and returns ln det H.

    Args:
        bands: (3, k) Q: its diagonal, and the first and the second diagonal above it (the last 1 and 2 numbers are 0).
        l1, l2, d: (k,) overwritten with the factors: L[i+1, i] = l1[i], L[i+2, i] = l2[i], D[i, i] = d[i].
    """
    row = NOTHING
    for i in range(weights.size):
        row = _eliminate(weights[i] + bands[0, i], bands[1, i], bands[2, i], 0.0, 0.0, row)
        d[i], l1[i], l2[i] = 1 / row[0], row[1], row[2]
    return log_product(d)


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def solve_upper(l1: Floats, l2: Floats, x: Floats) -> None:
    """Replaces x by the solution y of Lᵀ y = x."""
    near = far = 0.0  # local, because a number just written is slow to read
    for i in range(x.size - 1, -1, -1):
        near, far = x[i] - l2[i] * far - l1[i] * near, near
        x[i] = near


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def solve(bands: Floats, weights: Floats, inverse: Floats, first: Floats, second: Floats, x: Floats, y: Floats) -> None:
    """Replaces x and y by H⁻¹x and H⁻¹y, H = diag(weights) + Q.

    The elimination starts at both ends and meets at the middle rows a and b. The two halves do not wait for each other's
    divisions, so a processor overlaps them.

    Args:
        bands: as in `factor`; k is at least 2.
        inverse: (k,) overwritten with positive numbers whose product is 1 / det H.
        first, second: (k,) for intermediate results.
    """
    k = weights.size
    a = k // 2 - 1
    b, top, end = a + 1, NOTHING, NOTHING
    if k % 2:
        end = _eliminate(weights[k - 1] + bands[0, k - 1], bands[1, k - 2], bands[2, k - 3], x[k - 1], y[k - 1], end)
        inverse[k - 1], first[k - 1], second[k - 1], x[k - 1], y[k - 1] = end[:5]
    last = k - 1 - k % 2
    for i in range(a):
        top = _eliminate(weights[i] + bands[0, i], bands[1, i], bands[2, i], x[i], y[i], top)
        inverse[i], first[i], second[i], x[i], y[i] = top[:5]
        j = last - i
        end = _eliminate(weights[j] + bands[0, j], bands[1, j - 1], bands[2, j - 2], x[j], y[j], end)
        inverse[j], first[j], second[j], x[j], y[j] = end[:5]
    _, near, far, u, v, coupled, coupled_far, from_diagonal, from_x, from_y = end
    row_a = _eliminate(
        weights[a] + bands[0, a] - coupled_far * far, bands[1, a] - coupled_far * near, 0.0, x[a] - far * u, y[a] - far * v, top
    )
    row_b = _eliminate(
        weights[b] + bands[0, b] - from_diagonal - coupled * near, 0.0, 0.0,
        x[b] - from_x - near * u, y[b] - from_y - near * v, row_a,
    )  # fmt: skip
    inverse[a], inverse[b] = row_a[0], row_b[0]
    x[b], y[b] = row_b[3] * row_b[0], row_b[4] * row_b[0]
    x[a], y[a] = row_a[3] * row_a[0] - row_a[1] * x[b], row_a[4] * row_a[0] - row_a[1] * y[b]
    x_up, x_down, y_up, y_down = x[a], x[b], y[a], y[b]
    x_up_far, x_down_far, y_up_far, y_down_far = x[b], x[a], y[b], y[a]
    for i in range(a - 1, -1, -1):
        j = last - i
        x_up, x_up_far = x[i] * inverse[i] - second[i] * x_up_far - first[i] * x_up, x_up
        y_up, y_up_far = y[i] * inverse[i] - second[i] * y_up_far - first[i] * y_up, y_up
        x_down, x_down_far = x[j] * inverse[j] - second[j] * x_down_far - first[j] * x_down, x_down
        y_down, y_down_far = y[j] * inverse[j] - second[j] * y_down_far - first[j] * y_down, y_down
        x[i], y[i], x[j], y[j] = x_up, y_up, x_down, y_down
    if k % 2:
        x[k - 1] = x[k - 1] * inverse[k - 1] - second[k - 1] * x_down_far - first[k - 1] * x_down
        y[k - 1] = y[k - 1] * inverse[k - 1] - second[k - 1] * y_down_far - first[k - 1] * y_down


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def times(bands: Floats, x: Floats, out: Floats) -> float:
    """Writes Q x to `out`, and returns xᵀ Q x."""
    k = x.size
    for i in range(k):
        out[i] = bands[0, i] * x[i]
    for j in (1, 2):
        for i in range(k - j):  # not in one loop with the next: a number just written is slow to read
            out[i + j] += bands[j, i] * x[i]
        for i in range(k - j):
            out[i] += bands[j, i] * x[i + j]
    return dot(x, out)


@numba.njit(cache=True, error_model="numpy")
def scale(x: Floats, by: float) -> None:
    for i in range(x.size):
        x[i] *= by


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
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


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def explain(
    z: Floats, precision: Floats, root: Floats, m: Floats, chances: Floats, gamma: Floats, mean_precision: Floats
) -> float:
    """Returns Σ_v ln Σ_j π_j N(z_v; m_v, 1/precision_jv) + k ln(2π)/2, and writes the posterior chances of the components of
    each share.

    Args:
        z, m: (k,) unbiased shares and their smooth part.
        precision, root: (J, k) 1 / (A + ω_j²) with ascending ω_j, and the square root of this number.
        chances: (J,) π_j; a component with π_j = 0 is left out.
        gamma: (J, k) overwritten with the posterior chances of the components.
        mean_precision: (k,) overwritten with Σ_j gamma_j precision_j.
    """
    k = z.size
    if chances.size == 1:
        alone, square = precision[0], 0.0
        for v in range(k):
            gamma[0, v], mean_precision[v] = 1.0, alone[v]
            square += (z[v] - m[v]) ** 2 * alone[v]
        return log_product(root[0]) - 0.5 * square
    widest, mass, square = 0, np.zeros(k), 0.0
    for j in range(chances.size):
        if chances[j] > 0:
            widest = j
    mean_precision[:] = 0.0
    least = precision[widest]
    for j in range(chances.size):
        own, scales, chance = precision[j], root[j], gamma[j]
        if chances[j] > 0:
            for v in range(k):
                chance[v] = chances[j] * scales[v] * exp(0.5 * (z[v] - m[v]) ** 2 * (least[v] - own[v]))
                mass[v] += chance[v]
                mean_precision[v] += chance[v] * own[v]
        else:
            chance[:] = 0.0
    total = log_product(mass)
    for v in range(k):
        square += (z[v] - m[v]) ** 2 * least[v]
        mass[v] = 1 / mass[v]
        mean_precision[v] *= mass[v]
    for j in range(chances.size):
        chance = gamma[j]
        if chances[j] > 0:
            for v in range(k):
                chance[v] *= mass[v]
    return total - 0.5 * square


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def mode(problem: tuple[Floats, ...], bands: Floats, state: tuple[Floats, ...], none: float, rounds: int, tol: float) -> float:
    """Moves η, π and the smooth part's sum c to a mode of their posterior. Returns the Laplace approximation of ln p(z | Q)
    without the term C.

        ln p(z | Q) ≈ C(Q, k) + ln p(z | m, π) - ηᵀQη/2 + a ln π₀ - ln(det H · mᵀ H⁻¹ m / c²)/2, H = diag(m² E[precision]) + Q

    Args:
        problem: the arrays of `smooth_prior._Problem`, with ω_0 = 0.
        bands: (3, k) Q, as in `factor`.
        state: the arrays of `smooth_prior._Mode`: η, π, c, and the smooth part c w e^η / Σ w e^η; and `gamma` and
            `mean_precision` as in `explain`. η, π and c are the start. All are overwritten; if there is one component, π and c
            keep their values.
        none: a, number of further values without an independent part, which regularise π.
        rounds: largest number of rounds.
        tol: the loop stops when a round gains less than tol nats.
    """
    z, _, widths, precision, root, shrinkage = problem
    eta, chances, level, m, gamma, mean_precision = state
    k = z.size
    inverse, first, second, weights = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
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
        for i in range(k):
            step[i] = m[i] * ((z[i] - m[i]) * mean_precision[i] - mean) - pull[i]
            across[i] = m[i]
        solve(bands, weights, inverse, first, second, step, across)
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
    solve(bands, weights, inverse, first, second, step, across)
    return float(value - 0.5 * (np.log(dot(m, across) / level[0] ** 2) - log_product(inverse)))


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def _update_chances(
    z: Floats, shrinkage: Floats, gamma: Floats, chances: Floats, none: float, level: Floats, m: Floats
) -> None:
    k, excess = z.size, 0.0
    for j in range(chances.size):
        chance, kept, told = gamma[j], shrinkage[j], 0.0
        for v in range(k):
            told += chance[v]
            excess += chance[v] * kept[v] * (z[v] - m[v])
        chances[j] = told
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


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def draw(
    problem: tuple[Floats, ...], bands: Floats, state: tuple[Floats, ...], normal: Floats, drawn: Floats, log_weights: Floats
) -> None:
    """Draws the smooth part around its mode, with importance weights for its posterior.

    A draw is η̂ + δ, δ ~ N(0, H⁻¹) given mᵀδ = 0.

    Args:
        problem, bands, state: as `mode` leaves them.
        normal: (r, k) standard normal numbers.
        drawn: (r, k) overwritten with smooth parts.
        log_weights: (r,) overwritten with the log-weights; 0 at the mode.
    """
    z, _, widths, _, _, _ = problem
    eta, _, level, m, _, mean_precision = state
    k = eta.size
    l1, l2, d, weights = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    across, pull, moved = np.zeros(k), np.zeros(k), np.zeros(k)
    for i in range(k):
        weights[i] = m[i] ** 2 * mean_precision[i]
        across[i] = m[i]
    factor(bands, weights, l1, l2, d)
    solve(bands, weights, np.empty(k), np.empty(k), np.empty(k), across, np.zeros(k))
    times(bands, eta, pull)
    inner = dot(m, across)
    for i in range(k):
        d[i] = 1 / np.sqrt(d[i])
    for j in range(len(normal)):
        own, delta = normal[j], drawn[j]
        for i in range(k):
            delta[i] = d[i] * own[i]
        solve_upper(l1, l2, delta)
        drift = dot(m, delta) / inner
        log_weight = 0.0  # in the difference of the two log-densities, the quadratic terms of Q cancel
        for i in range(k):
            delta[i] -= across[i] * drift
            moved[i] = eta[i] + delta[i]
            log_weight += weights[i] * delta[i] ** 2 - 2 * pull[i] * delta[i] + (z[i] - m[i]) ** 2 * mean_precision[i]
        shares(moved, widths, delta)
        scale(delta, level[0])
        for i in range(k):
            log_weight -= (z[i] - delta[i]) ** 2 * mean_precision[i]
        log_weights[j] = log_weight / 2
