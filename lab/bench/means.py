"""Variances of mechanisms that report only one number, for a mean, beside the unbiased mean from Square Wave reports.

The numbers x are uniform on [0, 1]. The noise of one report has these variances; the functions add 1/12, the variance of x:

    Laplace      2/ε²
    Duchi        ((e^ε + 1)/(e^ε - 1))² / 4 - (x - 1/2)²                              two reports
    piecewise    ((2x - 1)²/(h - 1) + (h + 3)/(3 (h - 1)²)) / 4,  h = e^{ε/2}          the piecewise mechanism (PM)
    least        the least mean noise of any unbiased mechanism, on a grid, by linear programming

Sources: Duchi, Jordan and Wainwright 2018; Wang et al. 2019, arXiv:1907.00782 (PM).
"""

import math

import numpy as np
from rich.table import Table
from scipy.optimize import linprog

from ldpstream.estimators.smooth.numbers import mean_variance
from ldpstream.mechanisms.families.square_wave import SquareWave

EPS = (0.5, 1.0, 2.0, 3.0, 4.0)
BINS, INPUTS, REPORTS = 256, 9, 61
REACHES = (0.6, 1.0, 1.6, 3.0)  # candidates: the farthest report from 1/2, as a part of Duchi's
SAMPLING = 1 / 12


def square_wave(eps: float) -> float:
    middles = (np.arange(BINS) + 0.5) / BINS
    return mean_variance(SquareWave(BINS, eps), np.full(BINS, 1 / BINS), middles)


def laplace(eps: float) -> float:
    return 2 / eps**2 + SAMPLING


def duchi(eps: float) -> float:
    return 1 / math.tanh(eps / 2) ** 2 / 4


def piecewise(eps: float) -> float:
    h = math.exp(eps / 2)
    return (1 / (3 * (h - 1)) + (h + 3) / (3 * (h - 1) ** 2)) / 4 + SAMPLING


def least(eps: float) -> float:
    return min(_least(eps, reach) for reach in REACHES) + SAMPLING


def _least(eps: float, reach: float) -> float:
    x = np.linspace(0, 1, INPUTS)
    y = np.linspace(-1, 1, REPORTS) * max(0.5, reach / math.tanh(eps / 2) / 2) + 0.5
    weight = np.full(INPUTS, 1.0)
    weight[[0, -1]] = 0.5
    cost = (weight[:, None] / weight.sum() * (y - x[:, None]) ** 2).ravel()
    equal = np.vstack([np.kron(np.eye(INPUTS), np.ones(REPORTS)), np.kron(np.eye(INPUTS), y)])
    rows = []
    for z in range(REPORTS):  # Pr[z | u] <= e^ε × a free lower bound of the column
        for u in range(INPUTS):
            row = np.zeros(INPUTS * REPORTS + REPORTS)
            row[u * REPORTS + z], row[INPUTS * REPORTS + z] = 1, -math.exp(eps)
            rows.append(row)
            row = np.zeros(INPUTS * REPORTS + REPORTS)
            row[u * REPORTS + z], row[INPUTS * REPORTS + z] = -1, 1
            rows.append(row)
    found = linprog(
        np.concatenate([cost, np.zeros(REPORTS)]), np.array(rows), np.zeros(len(rows)),
        np.hstack([equal, np.zeros((2 * INPUTS, REPORTS))]), np.concatenate([np.ones(INPUTS), x]),
    )  # fmt: skip
    return float(found.fun) if found.success else math.inf


def means_table() -> Table:
    table = Table(
        "ε",
        "Square Wave",
        "Laplace",
        "Duchi",
        "piecewise",
        "least",
        title="Standard error of the mean, 10 000 people",
    )
    for eps in EPS:
        found = (one(eps) for one in (square_wave, laplace, duchi, piecewise, least))
        table.add_row(f"{eps:g}", *(f"{100 * math.sqrt(variance / 10_000):.3f} %" for variance in found))
    return table
