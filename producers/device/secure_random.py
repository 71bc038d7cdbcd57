"""Randomness of one device: exact coins and uniform integers from the operating system's generator.

`Mechanism.randomizer` draws memos and reports from this randomness.

A coin's probability is a rational number whose denominator is a power of two, like every double. The code writes it as base-256
digits 0.d₁d₂…. A toss draws the digits 0.u₁u₂… of a uniform number one by one and compares each digit with the coin's digit:

    u₁ < d₁: yes      u₁ > d₁: no      u₁ = d₁: draw u₂ and go on; no, when the digits have ended

Hence Pr[yes] = Σ dᵢ 256^-i exactly, even for the smallest probabilities. A toss draws at most 1.004 bytes on average. The code
never computes or compares a floating-point number that depends on a value (Mironov 2012 shows how such numbers leak the value).

Realised loss. A mechanism states probabilities in pairs: the probabilities of an event and of the opposite event. Each
probability is a double with relative error at most δ. The coin uses the smaller probability of a pair unchanged. The larger
probability becomes one minus the smaller, with relative error at most δ as well. Every probability that a device realises is
thus within a factor 1 ± δ of the ideal probability, and

    |loss of the memo - ε∞|, |loss of a one-time report - ε|  <=  4δ     (a ratio of two symbols, or two ratios of two bits)
    |loss of t reports of a memo - ε_t|                       <=  4(t+1)δ, and the loss of t reports is at most ε∞ + 4δ

up to terms in δ². The third bound holds because the probability of t reports is a sum over memos of products of t+1 such
probabilities, all positive. The bound ε∞ + 4δ holds because the reports are drawn from the memo alone. δ is a few units in the
last place (2^-53) times 1 + ε₂, since ε₂ is rounded before its exponential is taken. δ is below 10^-12 for every ε up to 700.
(An exception is q₂ below 10^-300: then ε₂ has an error of up to 10^-7, but a report's ε₁ has no such error.) The deviation is
therefore below 10^-11 nats for a report. The tests compute it with 60 digits over a grid, where it is below 10^-13.

A draw does not take constant time. Measuring the device's time to a microsecond may reveal something about its draws.
"""

import secrets

import numpy as np

from ldpstream.mechanisms.devices import BitArray, Coin


class SecureRandom:
    """Draws from the operating system's generator. The object keeps no state that a fork or a snapshot could repeat."""

    def bytes(self, n: int) -> bytes:
        """n uniform bytes."""
        return secrets.token_bytes(n)

    def below(self, n: int) -> int:
        """A uniform integer in [0, n): the low bits of big-endian bytes, drawn again until they are below n."""
        n_bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.bytes(-(-n_bits // 8)), "big") & ((1 << n_bits) - 1)
            if drawn < n:
                return drawn

    def toss(self, coin: Coin, n: int) -> BitArray:
        """(n,) independent tosses of the coin. Draws the first digit of every toss, then the second digit where needed, …"""
        smaller = np.zeros(n, np.bool_)
        undecided = np.arange(n)
        for digit in bytes.fromhex(coin.digits):
            if not undecided.size:
                break
            drawn = np.frombuffer(self.bytes(undecided.size), np.uint8)
            smaller[undecided[drawn < digit]] = True
            undecided = undecided[drawn == digit]
        return smaller ^ coin.inverted
