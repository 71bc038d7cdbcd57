"""An attack on reports without senders, beside the upper bounds of `mechanisms.ledger.shuffled`.

    python -m lab.bench.shuffled_attack

At each step, the attacker sees n reports without senders. One is of a person with value v or v', and the others are of people
with the known value u. With a(y) = R(y | v) / R(y | u), b(y) = R(y | v') / R(y | u), A = Π (Σ a(y_i) / n) and B = Π (Σ b(y_i) /
n) over the steps, the attack reaches the loss ε with

    δ = E[(A - e^ε B)₊],   all n reports of each step drawn from R(· | u)

This ε is a lower bound of the true loss. The printed bound is four standard errors below the estimate.
"""

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.wording import up

DELTA, SAMPLES, SEED, ERRORS = 1e-6, 50_000, 20240601, 4
GRR4, MEMO = mechanism("GRR", 4, eps=1.0), mechanism("GRR", 6, eps=2.0)
SETTINGS: list[tuple[str, Mechanism, int, int]] = [  # name, mechanism, n, number of steps
    ("`mode`, one report, 20 000 people", GRR4, 1250, 1),
    ("`mode`, 45 reports, 20 000 people", GRR4, 1250, 45),
    ("`mode`, 45 reports, 1 000 000 people", GRR4, 62_500, 45),
    ("`distance_km`, one memo, 20 000 people", MEMO, 10_000, 1),
    ("`distance_km`, one memo, 1 000 000 people", MEMO, 500_000, 1),
    *(
        (
            f"{name}, k = 6, ε = 1, {'one report' if steps == 1 else f'{steps} reports'}",
            mechanism(name, 6, eps=1.0),
            10_000,
            steps,
        )
        for name in ("OUE", "OLH", "SS", "SW")
        for steps in (1, 45)
    ),
]


class Reached(NamedTuple):
    """Loss in nats that the attack reaches at `delta`: the estimate and its standard error."""

    eps: float
    error: float

    @property
    def low(self) -> float:
        return self.eps - ERRORS * self.error


def ratios(channel: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    found, triple = -1.0, (0, 0, 0)
    for v, w in permutations(range(len(channel)), 2):
        for u, row in enumerate(channel):
            variance = float(((channel[v] - channel[w]) ** 2 / row).sum())
            if variance > found * (1 + 1e-9):
                found, triple = variance, (u, v, w)
    u, v, w = triple
    return channel[u], channel[v] / channel[u], channel[w] / channel[u]


def attack(m: Mechanism, n: int, steps: int, delta: float, near: float, samples: int, rng: np.random.Generator) -> Reached:
    """Estimates the loss that the attack reaches, in nats, with n reports of new devices at each step.

    `near` is a rough value of this loss, for importance sampling; 0 for plain sampling.
    """
    common, a, b = ratios(m.channel())
    gap = a - b
    tilt = near / (steps * float(common @ gap**2))
    weights = common * np.exp(tilt * gap)
    scale = float(weights.sum())
    of_v, of_w, log_weight = np.zeros(samples), np.zeros(samples), np.full(samples, steps * n * math.log(scale))
    for _ in range(steps):
        counts = rng.multinomial(n, weights / scale, samples)
        mean_a, mean_b = counts @ a / n, counts @ b / n
        of_v += np.log(mean_a)
        of_w += np.log(mean_b)
        log_weight -= tilt * n * (mean_a - mean_b)
    chance_v, chance_w = np.exp(log_weight + of_v), np.exp(log_weight + of_w)

    def excess(eps: float) -> FloatArray:
        return np.maximum(chance_v - math.exp(eps) * chance_w, 0)

    low, high = 0.0, m.eps_t(steps)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle).mean() > delta else (low, middle)
    slope = math.exp(low) * float(np.where(excess(low) > 0, chance_w, 0).mean())
    return Reached(low, float(excess(low).std()) / math.sqrt(samples) / slope)


def attack_table() -> Table:
    shown = Table("setting", "n", "steps", "estimate", "at least", "bound", "distance")
    for i, (name, m, n, steps) in enumerate(SETTINGS):
        bound = m.claims.shuffled(steps, n, DELTA).eps(DELTA)
        found = attack(m, n, steps, DELTA, bound, SAMPLES, np.random.default_rng([SEED, i]))
        distance = f"{100 * (bound / found.low - 1):.1f} %"
        shown.add_row(name, f"{n:,}", str(steps), f"{found.eps:.4g}", f"{found.low:.4g}", up(bound), distance)
    return shown


if __name__ == "__main__":
    Console(width=128).print(attack_table())
