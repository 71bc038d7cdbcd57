"""Padding and sampling: losses, probabilities and claims, compared with enumerations of all sets, reports and sequences."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from ldpstream.device.secure_random import SecureRandom
from ldpstream.estimators.maximum.standard_errors import standard_errors
from ldpstream.mechanisms import SETS, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.grr import GRR
from ldpstream.mechanisms.families.padded_sampling import (
    LongitudinalPaddedSampling,
    PaddedSampling,
    SetMechanism,
    drawn_eps,
    set_eps,
)
from ldpstream.mechanisms.sets import code_of, n_sets, set_codes

SIZES = [(2, 1), (2, 2), (3, 2), (4, 4), (5, 3)]
LOSSES = [(0.02, 0.01), (2.0, 1.0), (8.0, 4.0)]
ONCE = [PaddedSampling(n, eps, m) for n, m in SIZES for _, eps in LOSSES]
CHAINS = [LongitudinalPaddedSampling(n, *losses, m) for n, m in SIZES for losses in LOSSES]
SMALL = [LongitudinalPaddedSampling(n, *losses, m) for n, m in [(2, 1), (2, 2)] for losses in LOSSES]
every = pytest.mark.parametrize("m", [*ONCE, *CHAINS], ids=repr)


def padded(m: SetMechanism) -> list[list[int]]:
    """The members of all padded sets, from the docstring."""
    n, found = m.k - m.choices, []
    for code in set_codes(n, m.choices).tolist():
        chosen = [v for v in range(n) if code >> v & 1]
        found.append([*chosen, *range(n, n + m.choices - len(chosen))])
    return found


def rounds(m: LongitudinalPaddedSampling) -> tuple[FloatArray, FloatArray]:
    """Pr[memo | set] and Pr[report | memo], built from A, B, p₂ and q₂."""
    memo = np.full((n_sets(m.k - m.choices, m.choices), m.k), m.other)
    for row, symbols in zip(memo, padded(m), strict=True):
        row[symbols] = m.member
    return memo, np.where(np.eye(m.k, dtype=bool), m.p2, m.q2)


def worst(channel: FloatArray) -> float:
    logs = np.log(channel)
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


def all_sequences(m: LongitudinalPaddedSampling, t: int) -> FloatArray:
    """(sets, d^t) Pr[t reports | the set never changes]."""
    memo, fresh = rounds(m)
    given = fresh
    for _ in range(t - 1):
        given = (given[:, :, None] * fresh[:, None, :]).reshape(m.k, -1)
    return np.asarray(memo @ given)


# ---- losses


@every
def test_a_report_loses_exactly_eps_1(m: SetMechanism) -> None:
    channel = m.channel()
    np.testing.assert_allclose(channel.sum(axis=1), 1, atol=1e-12)
    assert worst(channel) == pytest.approx(m.eps_1, rel=1e-9, abs=1e-13)
    assert m.eps_t(1) == pytest.approx(m.eps_1, rel=1e-9)


@pytest.mark.parametrize("m", CHAINS, ids=repr)
def test_the_chain_is_the_product_of_its_rounds_and_its_memo_loses_eps_inf(m: LongitudinalPaddedSampling) -> None:
    memo, fresh = rounds(m)
    np.testing.assert_allclose(memo.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(memo @ fresh, m.channel(), rtol=1e-9)
    assert worst(memo) == pytest.approx(m.eps_inf, rel=1e-9)


@every
def test_a_report_is_that_of_grr_on_a_member_drawn_uniformly(m: SetMechanism) -> None:
    grr = GRR(m.k, drawn_eps(m.eps_1, m.choices)).channel()
    np.testing.assert_allclose([grr[symbols].mean(axis=0) for symbols in padded(m)], m.channel(), rtol=1e-9)
    assert set_eps(drawn_eps(m.eps_1, m.choices), m.choices) == pytest.approx(m.eps_1, rel=1e-12)


@pytest.mark.parametrize("m", SMALL, ids=repr)
@pytest.mark.parametrize("t", [1, 2, 3])
def test_eps_t_is_the_loss_of_all_sequences_of_reports(m: LongitudinalPaddedSampling, t: int) -> None:
    loss = worst(all_sequences(m, t))
    assert m.eps_t(t) == pytest.approx(loss, rel=1e-9)


def sequence_loss(m: LongitudinalPaddedSampling, t: int) -> float:
    """The loss between any two sequences of sets, by enumeration. Each different set has a memo of its own."""
    memo, fresh = rounds(m)
    outputs = np.array(list(product(range(m.k), repeat=t)))
    powers = fresh[:, outputs]  # (memo, output, step)
    found = []
    for sets in product(range(len(memo)), repeat=t):
        likelihood = np.ones(len(outputs))
        for one in set(sets):
            steps = [i for i, other in enumerate(sets) if other == one]
            likelihood *= memo[one] @ powers[:, :, steps].prod(axis=2)
        found.append(likelihood)
    return worst(np.array(found))


@pytest.mark.parametrize(("m", "t"), [(m, t) for m in SMALL for t in range(1, 7 - m.k)], ids=repr)
def test_no_sequences_of_sets_lose_more_than_eps_sequence(m: LongitudinalPaddedSampling, t: int) -> None:
    loss, claimed = sequence_loss(m, t), m.eps_sequence(t)
    assert loss <= claimed.value * (1 + 1e-9)
    if claimed.exact:
        assert loss == pytest.approx(claimed.value, rel=1e-9)


@pytest.mark.parametrize("m", CHAINS, ids=repr)
def test_the_bound_for_any_sets_never_falls_and_is_at_most_that_of_single_reports(m: LongitudinalPaddedSampling) -> None:
    losses = [m.eps_sequence(t).value for t in (1, 2, 3, 5, 20, 1000, 10**6)]
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(m.eps_1, rel=1e-9)
    assert all(loss <= t * m.claims.eps_per_report * (1 + 1e-9) for loss, t in zip(losses, (1, 2, 3, 5, 20, 1000, 10**6)))


@every
def test_no_guesser_of_one_value_is_right_more_often_than_stated(m: SetMechanism) -> None:
    """Two priors, of the sets with and without a value, are equally likely. The worst priors are single sets."""
    rows = [m.channel()] if isinstance(m, PaddedSampling) or m.k > 5 else [all_sequences(m, t) for t in (1, 2, 3)]  # type: ignore[arg-type]  # memoized
    for t, channel in enumerate(rows, 1):
        having = [0 in symbols for symbols in padded(m)]
        yes, no = channel[having], channel[np.logical_not(having)]
        best = max(np.maximum(one, other).sum() / 2 for one in yes for other in no)
        assert best <= m.guess(t) * (1 + 1e-9)
        assert not m.guess(t).exact
    assert m.claims.guessed == 2


# ---- estimates


@every
def test_the_inversion_is_unbiased(m: SetMechanism) -> None:
    """The expected counts of a population of any sets give its shares: of the values, and of sets with few values."""
    rng = np.random.default_rng(5)
    people = rng.integers(0, 1000, n_sets(m.k - m.choices, m.choices))
    expected = people @ m.channel() / people.sum()
    truth = np.zeros(m.k)
    for n, symbols in zip(people, padded(m), strict=True):
        truth[symbols] += n / people.sum()
    np.testing.assert_allclose(m.choices * (expected - m.q) / (m.p - m.q), truth, atol=1e-9)
    codes = np.repeat(set_codes(m.k - m.choices, m.choices), people)
    np.testing.assert_allclose(m.counts_of(codes), truth * people.sum())
    sizes = np.bitwise_count(codes)
    few = [np.mean(sizes <= m.choices - 1 - j) for j in range(m.choices)]
    np.testing.assert_allclose(truth[m.k - m.choices :], few)


def people_of_sets(m: SetMechanism) -> FloatArray:
    """Probabilities of all sets, all different: popular values, and values that are chosen together."""
    weights = np.random.default_rng(8).dirichlet(np.ones(n_sets(m.k - m.choices, m.choices)))
    return np.asarray(weights)


def counts_over_steps(m: SetMechanism, steps: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of the drawn members; mean and covariance of one person's counts of symbols, by enumeration of all sequences."""
    people = people_of_sets(m)
    if isinstance(m, LongitudinalPaddedSampling):
        given = all_sequences(m, steps)
    else:
        given = channel = m.channel()
        for _ in range(steps - 1):
            given = (given[:, :, None] * channel[:, None, :]).reshape(len(channel), -1)
    chances = people @ given
    counts = np.array([np.bincount(names, minlength=m.k) for names in product(range(m.k), repeat=steps)])
    mean = chances @ counts
    shares = np.array([sum(p for p, padded in zip(people, padded(m), strict=True) if s in padded) for s in range(m.k)])
    return shares / m.choices, mean, counts.T @ (chances[:, None] * counts) - np.outer(mean, mean)


WINDOWS: list[SetMechanism] = [
    m
    for n, choices in [(2, 1), (2, 2), (3, 2), (3, 3)]
    for eps_inf, eps_1 in LOSSES[1:]
    for m in (PaddedSampling(n, eps_1, choices), LongitudinalPaddedSampling(n, eps_inf, eps_1, choices))
]
windows = pytest.mark.parametrize("m", WINDOWS, ids=repr)


@windows
@pytest.mark.parametrize("t", [1, 2, 3])
def test_the_covariance_over_several_steps_is_that_of_all_sequences(m: SetMechanism, t: int) -> None:
    """All variances are exact. The covariances are exact for one report, for reports of a kept memo, and for one choice.
    Otherwise the counts do not tell them; each symbol's stated covariances sum to 0."""
    shares, mean, covariance = counts_over_steps(m, t)
    np.testing.assert_allclose(mean, t * (m.q + (m.p - m.q) * shares), rtol=1e-9)
    stated = m.reading.support_covariance(shares, t).matrix()
    own = stated.diagonal()
    np.testing.assert_allclose(own, np.diag(covariance), rtol=1e-9)
    np.testing.assert_allclose(
        m.reading.inversion_variances(shares, 1, t), np.diag(covariance) / (t * (m.p - m.q)) ** 2, rtol=1e-9
    )
    if t == 1 or m.choices == 1 or isinstance(m, LongitudinalPaddedSampling):
        np.testing.assert_allclose(stated, covariance, atol=1e-12)
    else:
        np.testing.assert_allclose(stated.sum(axis=0), 0, atol=1e-3 * own.max())
        kept = GRR(m.k, drawn_eps(m.eps_1, m.choices)).reading.support_covariance(shares, t).variances
        assert (kept > own * 1.01).all()  # a control: GRR's person keeps the drawn member


@windows
@pytest.mark.parametrize("t", [1, 2, 3])
def test_the_errors_of_the_likelihood_estimate_are_exact(m: SetMechanism, t: int) -> None:
    """Without limits, the estimate from one level is the inversion."""
    shares, _, covariance = counts_over_steps(m, t)
    table = m.tabulate(np.zeros(1000 * t, m.report_dtype))
    exact = np.sqrt(np.diag(covariance) / 1000) / (t * (m.p - m.q))
    np.testing.assert_allclose(standard_errors([(m, table)], shares, t), exact, rtol=2e-3)


@windows
@pytest.mark.parametrize("t", [1, 2, 3])
def test_noise_and_choice_of_the_members_add_up_to_the_variance(m: SetMechanism, t: int) -> None:
    """The posterior knows the noise given the drawn members, up to parts that are constant along rows and columns, and adds
    their choice. For L-PS-GRR the member is drawn once."""
    shares, _, covariance = counts_over_steps(m, t)
    exact = covariance / (t * (m.p - m.q)) ** 2  # one person
    c, k = m.reading.concentration(t), m.k
    noise = m.reading.noise(np.zeros(k), t, t, 1 / c)
    assert callable(noise)
    centre = np.eye(k) - 1 / k
    given = centre @ np.diag(noise(shares)) @ centre
    np.testing.assert_allclose(np.diag(given) + shares * (c - shares), np.diag(exact), rtol=1e-9)
    draws = 1 if isinstance(m, LongitudinalPaddedSampling) else t
    if draws == t:  # all reports are independent given the members
        hit = m.q + (m.p - m.q) * shares
        dense = (np.diag(hit) - np.outer(hit, hit)) / (m.p - m.q) ** 2 - np.diag(shares) + np.outer(shares, shares)
        np.testing.assert_allclose(given, dense / t, atol=1e-12)


@windows
@pytest.mark.parametrize("t", [1, 2, 3])
def test_the_variance_of_the_number_of_values_is_exact(m: SetMechanism, t: int) -> None:
    shares, _, covariance = counts_over_steps(m, t)
    values = slice(m.k - m.choices)
    assert m.reading.values_variance(shares, t) == pytest.approx(covariance[values, values].sum(), rel=1e-9)


@windows
@pytest.mark.parametrize("w", [1, 5])
def test_the_third_moments_of_fresh_noise_are_those_of_all_sets_and_reports(m: SetMechanism, w: int) -> None:
    """At each step the same people draw a member anew (PS-GRR), or report a kept memo. At a spaced level, the people change."""
    if w > 1:
        if not isinstance(m, PaddedSampling):
            return
        given, weights = people_of_sets(m)[None] @ m.channel(), np.ones(1)
    elif isinstance(m, LongitudinalPaddedSampling):
        memo, given = rounds(m)
        weights = people_of_sets(m) @ memo
    else:
        given, weights = m.channel(), people_of_sets(m)
    asked = m.spaced(w) if isinstance(m, PaddedSampling) else m
    third = weights @ (given * (1 - given) * (1 - 2 * given)) / (m.p - m.q) ** 3
    least, found = asked.reading.fresh_moments(counts_over_steps(m, 1)[0])
    np.testing.assert_allclose(found, third, rtol=1e-9)
    assert least == pytest.approx((m.p - m.q) ** -2)


@every
def test_one_false_report_moves_a_share_as_stated(m: SetMechanism) -> None:
    moved = m.choices * np.abs(np.eye(m.k) - m.q).max() / (m.p - m.q)
    assert m.outweighs() == pytest.approx(moved, rel=1e-9)


# ---- draws


def p_value(m: Mechanism, reports: FloatArray, expected: FloatArray) -> float:
    return float(chisquare(np.bincount(reports.astype(int), minlength=m.k), expected * len(reports)).pvalue)


class Seeded(SecureRandom):
    """A predictable source for the device's code."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def bytes(self, n: int) -> bytes:
        return self._rng.bytes(n)


@pytest.mark.parametrize("name", SETS)
def test_reports_of_simulations_and_of_devices_follow_the_channel(name: str) -> None:
    """12 χ² tests: one of them fails with probability 1.2e-5. A mechanism with another ε fails them."""
    losses: dict[str, Any] = {"eps": 1.0} if name == "PS-GRR" else {"eps_inf": 2.0, "eps_1": 1.0}
    m = mechanism(name, 4, choices=3, **losses)
    other = mechanism(name, 4, choices=3, **{key: 1.1 * eps for key, eps in losses.items()})
    assert isinstance(m, SetMechanism)
    codes = set_codes(4, 3)
    device, random = m.randomizer(m.parameters()), Seeded(3)
    for code in (0, code_of([2]), code_of([0, 3, 1])):
        row, wrong = (x.channel()[codes.tolist().index(code)] for x in (m, other))
        simulated = m.simulate(np.full(200_000, code), np.random.default_rng(code)).astype(float)
        assert p_value(m, simulated, row) > 1e-6
        assert p_value(m, simulated, wrong) < 1e-6
        sent = [int.from_bytes(device.report(device.memoize(code, 0, random), random), "little") for _ in range(4000)]
        assert p_value(m, np.array(sent, float), row) > 1e-6


def test_a_device_keeps_only_memos_that_it_could_have_drawn() -> None:
    once, chain = PaddedSampling(4, 1.0, 2), LongitudinalPaddedSampling(4, 2.0, 1.0, 2)
    kept = [m.randomizer(m.parameters()).is_memo for m in (once, chain)]
    assert kept[0]((3).to_bytes(4, "little"), 0)
    assert not any(kept[0](code.to_bytes(4, "little"), 0) for code in (7, 16, 2**31))
    assert kept[1](b"\x05", 0)
    assert not any(kept[1](row, 0) for row in (b"\x06", b"\x00\x00", b""))


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "PS-GRR", "k": 5, "eps": 1.0}, "PS-GRR needs choices"),
        ({"name": "GRR", "k": 5, "eps": 1.0, "choices": 2}, "must be one of PS-GRR, L-PS-GRR, got 'GRR'"),
        ({"name": "PS-GRR", "k": 5, "eps": 1.0, "choices": 6}, "choices must be an integer in"),
        ({"name": "PS-GRR", "k": 31, "eps": 1.0, "choices": 2}, "k must be an integer in"),
        ({"name": "PS-GRR", "k": 5, "eps": 1.0, "choices": True}, "choices must be an integer in"),
        ({"name": "PS-GRR", "k": 5, "eps": 699.0, "choices": 5}, "the loss of a set must be at most 698.4 nats, got 699.0"),
        ({"name": "PS-GRR", "k": 5, "eps": float("nan"), "choices": 2}, "eps must be"),
        ({"name": "L-PS-GRR", "k": 5, "eps_inf": 1.0, "eps_1": 1.0, "choices": 2}, "eps_1 must be in"),
        ({"name": "L-PS-GRR", "k": 5, "eps": 1.0, "choices": 2}, "does not take eps"),
        ({"name": "auto", "k": 5, "eps_inf": 2.0, "eps_1": 1.0, "choices": 2, "calibration": "paper"}, "not take calibration"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        mechanism(**arguments)


def test_wrong_sets_are_refused_without_being_shown() -> None:
    m, rng = PaddedSampling(4, 1.0, 2), np.random.default_rng(1)
    for wrong in ([7], [16], [-1], [2**40], [0.5], [[1]]):
        with pytest.raises(ValueError, match="codes") as refused:
            m.report(np.array(wrong), rng)
        assert "7" not in str(refused.value)
    with pytest.raises(ValueError, match="no fake data"):
        m.with_fake_data(2)
    assert mechanism("auto", 4, eps_inf=2.0, eps_1=1.0, choices=2).name == "L-PS-GRR"
