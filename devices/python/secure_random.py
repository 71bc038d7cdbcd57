"""Randomness of one device: exact coins and uniform integers from the operating system's generator.

A coin's probability is a rational number whose denominator is a power of two, like every double. The code writes it as base-256
digits 0.d₁d₂…. A toss draws the digits 0.u₁u₂… of a uniform number one by one and compares each digit with the coin's digit:

    u₁ < d₁: yes      u₁ > d₁: no      u₁ = d₁: draw u₂ and go on; no, when the digits have ended

Hence Pr[yes] = Σ dᵢ 256^-i exactly, even for the smallest probabilities. An inverted coin swaps yes and no. No floating-point
number here depends on a value (Mironov 2012 shows how such numbers leak values).

Realised loss: if each stated probability has a relative error of at most δ, then, up to terms in δ²,

    |loss of the memo - ε∞|, |loss of a one-time report - ε|  <=  4δ     (a ratio of two symbols, or two ratios of two bits)
    |loss of t reports of a memo - ε_t|                       <=  4(t+1)δ, and the loss of t reports is at most ε∞ + 4δ

A draw does not take constant time: its duration may reveal something about the draw.
"""

import os

from ldpstream.mechanisms.devices import BitArray, Coin


class SecureRandom:
    """The object keeps no state that a fork or a snapshot could repeat."""

    def bytes(self, n: int) -> bytes:
        """Returns n uniform bytes."""
        return os.urandom(n)

    def below(self, n: int) -> int:
        """Returns a uniform integer in [0, n)."""
        n_bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.bytes(-(-n_bits // 8)), "big") & ((1 << n_bits) - 1)
            if drawn < n:
                return drawn

    def toss(self, coin: Coin, n: int) -> BitArray:
        """Returns n independent tosses of the coin, 1 for yes."""
        tossed, undecided = bytearray([coin.inverted]) * n, list(range(n))
        for digit in bytes.fromhex(coin.digits):
            if not undecided:
                break
            equal = []
            for place, drawn in zip(undecided, self.bytes(len(undecided)), strict=True):
                if drawn < digit:
                    tossed[place] = not coin.inverted
                elif drawn == digit:
                    equal.append(place)
            undecided = equal
        return tossed
