"""Arithmetic tables of the finite fields GF(g), where g is a prime power, for the linear hash functions.

An element is an integer 0 … g-1. For g = r^e with r prime, the element stands for the polynomial whose coefficients are the
integer's base-r digits, least significant first. Sums and products are taken modulo r and modulo one irreducible monic
polynomial of degree e. This polynomial is the smallest one, if the low coefficients are read as a base-r number.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, product

import msgspec

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.arrays import np, npt

MAX_FIELD = 1024


class FiniteField(msgspec.Struct, frozen=True):
    """The finite field of the hash functions, GF(r^e), for devices.

    Attributes:
        characteristic: the prime r.
        degree: e, at least 1.
        polynomial: (e + 1) coefficients of the monic polynomial modulo which elements are multiplied, least power first.
    """

    characteristic: int
    degree: int
    polynomial: tuple[int, ...]

    def plus(self, a: int, b: int) -> int:
        """The sum of two elements."""
        return self._element([x + y for x, y in zip(self._digits(a), self._digits(b), strict=True)])

    def times(self, a: int, b: int) -> int:
        """The product of two elements."""
        e, low = self.degree, self.polynomial[:-1]
        product = list(_times(self._digits(a), self._digits(b), self.characteristic))
        for power in range(2 * e - 2, e - 1, -1):  # x^power = -x^(power-e) times the polynomial's low part
            for i, c in enumerate(low, power - e):
                product[i] -= product[power] * c
        return self._element(product[:e])

    def _digits(self, element: int) -> tuple[int, ...]:
        return tuple(element // self.characteristic**i % self.characteristic for i in range(self.degree))

    def _element(self, digits: list[int]) -> int:
        return sum(digit % self.characteristic * self.characteristic**i for i, digit in enumerate(digits))


def prime_power(g: int) -> tuple[int, int] | None:
    """(r, e) with g = r^e and r prime, or None."""
    for r in range(2, g + 1):
        if g % r == 0:
            e = 0
            while g % r == 0:
                g, e = g // r, e + 1
            return (r, e) if g == 1 else None
    return None


@cache
def prime_powers(limit: int) -> tuple[int, ...]:
    """All prime powers from 2 to the limit, ascending."""
    return tuple(g for g in range(2, limit + 1) if prime_power(g))


def _times(a: tuple[int, ...], b: tuple[int, ...], r: int) -> tuple[int, ...]:
    out = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] = (out[i + j] + x * y) % r
    return tuple(out)


def _monic(r: int, degree: int) -> list[tuple[int, ...]]:
    return [(*low[::-1], 1) for low in product(range(r), repeat=degree)]


def modulus(r: int, e: int) -> tuple[int, ...]:
    """The irreducible polynomial that defines GF(r^e), coefficients least significant first."""
    reducible = {_times(a, b, r) for d in range(1, e // 2 + 1) for a in _monic(r, d) for b in _monic(r, e - d)}
    return next(f for f in _monic(r, e) if f not in reducible)


def _multiples(add: IntArray, elements: IntArray, r: int) -> IntArray:
    zero = np.zeros_like(elements)
    return np.array(list(accumulate([elements] * (r - 1), lambda total, one: add[total, one], initial=zero)))


@cache
def field(g: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """Addition and multiplication tables of GF(g), each (g, g) uint16.

    Raises:
        ValueError: if g is not a prime power in [2, 1024].
    """
    power = prime_power(g) if 2 <= g <= MAX_FIELD else None
    if power is None:
        raise ValueError(f"g must be a prime power in [2, {MAX_FIELD}], got {g!r}")
    r, e = power
    every, top = np.arange(g), r ** (e - 1)
    add = sum((every[:, None] // r**i + every // r**i) % r * r**i for i in range(e))
    minus_f = sum(-c % r * r**i for i, c in enumerate(modulus(r, e)[:e]))  # x^e = -(low part of f)
    reduced = _multiples(add, np.array(minus_f), r)
    times_x = add[every % top * r, reduced[every // top]]
    multiply, shifted = np.zeros((g, 1), np.int64), every  # products with the numbers below r^i; products with x^i
    for _ in range(e):
        multiply = np.concatenate([add[multiply, multiple[:, None]] for multiple in _multiples(add, shifted, r)], axis=1)
        shifted = times_x[shifted]
    return add.astype(np.uint16), multiply.astype(np.uint16)
