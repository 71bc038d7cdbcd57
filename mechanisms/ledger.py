"""Privacy loss over time, in nats: eps_t exactly; eps_sequence by a bound that always holds, t times the second round."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SequenceLoss:
    value: float
    exact: bool
    witness: str


@dataclass(frozen=True, slots=True)
class UnaryRounds:
    log_p1: float
    log_not_p1: float
    log_q1: float
    log_not_q1: float
    log_p2: float
    log_not_p2: float
    log_q2: float
    log_not_q2: float


def _add(a: float, b: float) -> float:
    return float(np.logaddexp(a, b))


def eps_t_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> float:
    rest = math.log(k - 1)
    other = math.log(k - 2) if k > 2 else -math.inf
    return _add(log_e1, rest - t * log_e2) - _add(0.0, _add(log_e1, other) - t * log_e2)


def eps_t_unary(t: int, *, rounds: UnaryRounds) -> float:
    lr = t * (rounds.log_p2 - rounds.log_q2)
    ls = t * (rounds.log_not_q2 - rounds.log_not_p2)
    ones = _add(rounds.log_p1, rounds.log_not_p1 - lr) - _add(rounds.log_q1, rounds.log_not_q1 - lr)
    return ones + _add(rounds.log_not_q1, rounds.log_q1 - ls) - _add(rounds.log_not_p1, rounds.log_p1 - ls)


def eps_sequence_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> SequenceLoss:
    if t == 1:
        return SequenceLoss(eps_t_grr(1, k=k, log_e1=log_e1, log_e2=log_e2), True, "")
    return SequenceLoss(t * log_e2, False, "")


def eps_sequence_unary(t: int, *, k: int, rounds: UnaryRounds) -> SequenceLoss:
    if t == 1:
        return SequenceLoss(eps_t_unary(1, rounds=rounds), True, "")
    worst = max(rounds.log_p2 - rounds.log_q2, rounds.log_not_q2 - rounds.log_not_p2)
    return SequenceLoss(t * k * worst, False, "")


def eps_changes(eps_t: Callable[[int], float], report_counts: list[int], max_memos: int) -> float:
    if len(report_counts) > max_memos:
        raise ValueError(f"report_counts must hold at most {max_memos} memos, got {len(report_counts)}")
    return sum(eps_t(t) for t in report_counts)
