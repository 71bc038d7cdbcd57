"""The parameters of a mechanism for devices: exact integers in place of probabilities.

Every double is a rational number whose denominator is a power of two, so its base-256 digits are exact. A mechanism states
probabilities in pairs: the probabilities of an event and of the opposite event. The smaller probability of a pair becomes a
coin; devices realise the larger probability as one minus the smaller. `producers.device.secure_random` bounds the resulting
loss.
"""

import math
from fractions import Fraction

from msgspec.structs import replace

from ldpstream.mechanisms import Longitudinal, Mechanism
from ldpstream.mechanisms.finite_field import modulus, prime_power
from ldpstream.mechanisms.grr import GRR, LongitudinalGRR
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.square_wave import SquareWave
from ldpstream.mechanisms.subset import SubsetSelection
from ldpstream.mechanisms.unary import LongitudinalUnary, Round, UnaryEncoding
from ldpstream.surveys.device_survey import Coin, FiniteField, Parameters


def parameters(m: Mechanism) -> Parameters:
    """The parameters that a device needs to run a mechanism.

    Raises:
        TypeError: if devices have no randomizer for the mechanism.
    """
    m = m.device
    coins = _coins(m)
    memoized = isinstance(m, Longitudinal)
    common = Parameters(
        mechanism=m.name,
        k=m.k,
        row_bytes=m.report_dtype.itemsize,
        every_steps=m.every_steps,
        lifetime_reports=m.lifetime_reports,
        eps=None if memoized else m.eps_1,
        eps_inf=m.eps_inf if memoized else None,
        eps_1=m.eps_1 if memoized else None,
        coins=coins,
    )
    if isinstance(m, (LocalHashing, LongitudinalHashing)):
        r, e = prime_power(m.g) or (m.g, 1)
        field = FiniteField(r, e, modulus(r, e))
        return replace(common, g=m.g, functions=m.pool.size, digits=m.pool.m, stride=m.pool.stride, field=field)
    if isinstance(m, SquareWave):
        return replace(common, width=m.width)
    return replace(common, omega=m.omega) if isinstance(m, SubsetSelection) else common


def coin(yes: float, no: float, shares: int = 1) -> Coin:
    """Returns the coin with Pr[yes] = yes and Pr[no] = shares · no. The smaller of these two probabilities is exact.

    Args:
        yes: in (0, 1].
        no: in (0, 1], probability of each of the equally likely "no" outcomes.
        shares: number of "no" outcomes, at least 1.
    """
    exact_yes, exact_no = Fraction(yes), shares * Fraction(no)
    smaller = min(exact_yes, exact_no)
    if not 0 < smaller < 1:
        raise ValueError(f"the probabilities of a coin must be in (0, 1), got {yes!r} and {shares} times {no!r}")
    length = -(-(smaller.denominator.bit_length() - 1) // 8)
    digits = smaller.numerator * 256**length // smaller.denominator
    return Coin(digits.to_bytes(length, "big").hex(), exact_no < exact_yes)


def _coins(m: Mechanism) -> dict[str, dict[str, Coin]]:
    if isinstance(m, GRR):
        return {"report": _symbol(m.k, m.p, m.q)}
    if isinstance(m, LongitudinalGRR):
        return {"memo": _symbol(m.k, m.p1, m.q1), "report": _symbol(m.k, m.p2, m.q2)}
    if isinstance(m, LocalHashing):
        return {"report": _symbol(m.g, m.p, m.other_symbol)}
    if isinstance(m, LongitudinalHashing):
        return {"memo": _symbol(m.g, m.p1, m.q1), "report": _symbol(m.g, m.p2, m.q2)}
    if isinstance(m, UnaryEncoding):
        return {"report": _bits(m.report_round)}
    if isinstance(m, LongitudinalUnary):
        return {"memo": _bits(m.first), "report": _bits(m.second)}
    if isinstance(m, SubsetSelection):
        outside = (m.k - m.omega) / m.omega * math.exp(-m.eps_1) * m.p  # 1 - p, without cancellation
        return {"report": {"with_value": coin(m.p, outside)}}
    if isinstance(m, SquareWave):
        return {"report": {"keep": coin(m.keep, m.far, m.k - 1)}}
    raise TypeError(f"devices have no randomizer for {m.name}")


def _symbol(n_symbols: int, p: float, q: float) -> dict[str, Coin]:
    return {"keep": coin(p, q, n_symbols - 1)}


def _bits(bit: Round) -> dict[str, Coin]:
    return {"one": coin(bit.p, bit.not_p), "zero": coin(bit.q, bit.not_q)}
