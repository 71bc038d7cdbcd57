"""Covariance matrices that are a diagonal matrix plus outer products of few vectors."""

from __future__ import annotations

from dataclasses import dataclass

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """The covariance matrix C = diag(own) + Σ_r signs_r rows_r rows_rᵀ.

    Attributes:
        own: (k,) the part of the variances that no other entry shares.
        rows: (r, k) the vectors of the shared part.
        signs: (r,) +1 or -1 for each vector.
    """

    own: FloatArray
    rows: FloatArray
    signs: FloatArray

    @property
    def variances(self) -> FloatArray:
        return np.asarray(self.own + self.signs @ self.rows**2)

    def matrix(self) -> FloatArray:
        return np.asarray(np.diag(self.own) + (self.rows.T * self.signs) @ self.rows)

    def __add__(self, other: Covariance) -> Covariance:
        rows, signs = np.concatenate([self.rows, other.rows]), np.concatenate([self.signs, other.signs])
        return Covariance(self.own + other.own, rows, signs)

    def minus(self, rows: FloatArray) -> Covariance:
        """C - rowsᵀ rows, for further vectors, (n, k)."""
        return self + Covariance(np.zeros(self.own.size), rows, -np.ones(len(rows)))

    def scaled(self, weights: FloatArray | float) -> Covariance:
        """The covariance after each entry is multiplied by its weight."""
        return Covariance(self.own * np.square(weights), self.rows * weights, self.signs)

    def with_sums(self, sums: FloatArray) -> FloatArray:
        """(n, k) covariances of n weighted sums with each entry, for the weights `sums`, (n, k)."""
        return np.asarray(sums * self.own + (sums @ self.rows.T * self.signs) @ self.rows)

    def of_sums(self, sums: FloatArray) -> FloatArray:
        """(n, n) covariance matrix of n weighted sums, for the weights `sums`, (n, k)."""
        return np.asarray(self.with_sums(sums) @ sums.T)
