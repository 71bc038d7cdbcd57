"""Sets of answers as the values of one question.

An answer's share is the sum of the shares of the sets that contain it.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ldpstream.advice.question import Question
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.sets import members, n_sets, set_codes
from ldpstream.surveys.questions import LABEL_CHARACTERS

MOST = 1024  # combinations, such as all sets of ten values
NONE, JOINED = "none of these", " + "  # texts of the empty set, and between the values of a set


class Combinations(msgspec.Struct, frozen=True, kw_only=True):
    """A question for one combination of answers, in place of several answers.

    Attributes:
        k: number of combinations.
        mechanism: name of the mechanism with the smallest error.
        deviation: root mean squared error of a value's share, as `Candidate.deviation`.
    """

    k: int
    mechanism: str
    deviation: float


def as_single(question: Question) -> Question:
    """The same question for one of the combinations."""
    assert question.choices is not None
    return msgspec.structs.replace(question, k=n_sets(question.k, question.choices), choices=None)


def combination_labels(labels: Sequence[str], choices: int) -> list[str]:
    codes = set_codes(len(labels), choices).tolist()
    return [JOINED.join(label for i, label in enumerate(labels) if code >> i & 1) or NONE for code in codes]


def best_combinations(question: Question, asked: Sequence[IntArray], labels: Sequence[str] | None) -> Combinations | None:
    """The best mechanism for combinations; None if none fits."""
    assert question.choices is not None
    if n_sets(question.k, question.choices) > MOST:
        return None
    texts = combination_labels(labels, question.choices) if labels else [NONE]
    if max(map(len, texts)) > LABEL_CHARACTERS or len(set(texts)) < len(texts):
        return None
    single, codes = as_single(question), set_codes(question.k, question.choices)
    order = np.argsort(codes)
    shares = []
    for people in asked:
        found, numbers = np.unique(people, return_counts=True)
        frequencies = np.zeros(single.k)
        frequencies[order[np.searchsorted(codes, found, sorter=order)]] = numbers / people.size
        shares.append(frequencies)
    having = members(codes, question.k, question.choices)[:, : question.k].T
    options = []
    for name in single.names:
        try:
            m = single.build(name)
        except ValueError:
            continue
        if question.max_bytes is None or m.report_dtype.itemsize <= question.max_bytes:
            variances = [sum_variances(m, having, f, question.n) for f in shares]
            options.append(Combinations(k=single.k, mechanism=name, deviation=math.sqrt(np.mean(variances))))
    return min(options, key=lambda one: one.deviation, default=None)


def sum_variances(m: Mechanism, of_value: npt.NDArray[np.bool_], f: FloatArray, n: int) -> FloatArray:
    own, x = m.support_covariance(f)
    total = of_value @ (own + (x**2).sum(axis=0)) - ((of_value @ x.T) ** 2).sum(axis=1)
    share = of_value @ f
    return np.asarray((total / (m.p - m.q) ** 2 - share * (1 - share)) / n)
