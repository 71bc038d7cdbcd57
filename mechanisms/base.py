"""Base class of all mechanisms: the local randomizer on the device, and the evaluation of reports on the server."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from ldpstream.mechanisms.arguments import MAX_COUNT, MAX_K, FloatArray, IntArray, Reports, integer, real, user_values
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import Coins, Parameters, Randomizer
from ldpstream.mechanisms.ledger import SequenceLoss
from ldpstream.mechanisms.table import CountTable

MAX_CHANNEL_ENTRIES = 2**24
Answers = Literal["values", "numbers", "sets"]
Invalid = Literal["symbol out of range", "padding bits set"]


class Mechanism(ABC):
    """A mechanism: the `randomizer` of devices, the `claims` about its privacy, and the `reading` of its counts.

    If a mechanism is not `pure`, p and q are NaN. A new mechanism may keep these defaults:

    ====================================  ==============================  ==========================  ======================
    override                              default                         wrong or loose if           noticed by the tests of
    ====================================  ==============================  ==========================  ======================
    `marks`                               1                               a report raises no or more  impossible counts
                                                                          counts
    `n_enrolments`, `enroll`              1, 0                            a device keeps a choice     devices, conformance
    `supported`                           0 to k values                   loose: false reports weigh  false reports
                                                                          less
    `Reading._support`                    the table's counts              they are not the supports   counted reports
    `Reading._channel_term`               None: likelihood of supports    the table determines more   channel terms
    `Reading._covariance_factors`         independent bits                supports depend on each     the enumerated second
                                                                          other                       moment
    `Reading._unshared_variances`         entry by entry                  a vector mixes entries      the second moment
    `Reading.supported_together`          at uniform frequencies          supports rise together      rates of false alarms
                                                                          more at others
    `Reading.fit_tests`                   total, floor and least support  loose: forgeries escape     forged reports
    `OneTimeClaims._guess_once`           dense channel, or a bound       never                       guesses
    `OneTimeClaims.favours`,              from the loss                   loose                       guesses
    `LongitudinalClaims.distance`
    `Claims._guess_any_values`,           from the evidence               loose                       guesses
    `Claims._guess_memos`
    `Claims.blanket`, `memo_blanket`      None: no gain from shuffling    loose                       shuffled reports
    ====================================  ==============================  ==========================  ======================

    Attributes:
        names: the names of the class's mechanisms in `mechanisms.registry`. If there are several, `name` is a parameter of the
            constructor. Its other parameters are those of `registry.mechanism`.
        answers: the kind of question that the mechanism answers: one of several values, with or without an order; one of
            several numbers in bins; or a set of values.
        most_values: the largest k.
        portable: true if docs/reference/write_a_device.md describes the mechanism, and devices in other languages have it. If
            false, only devices in Python have it, and the documents and the test vectors for other devices leave it out.
        name: the mechanism's name.
        k: domain size, at least 2; for sets, the number of values and dummies. A mechanism for values works for every k up to
            2^24 or `most_values`, except for methods that need the dense `channel` or say so.
        eps_1: privacy loss of a single report, in nats (ε₁); with fake data, of a true report (`with_fake_data`).
        eps_inf: bound over infinitely many reports of an unchanged value, in nats (ε∞); infinite for a one-time mechanism.
        p: Pr[report supports v | the value (for sets, the drawn member) is v].
        q: Pr[report supports v | the value (for sets, the drawn member) is not v].
        table_shape: shape of the count table.
        signature: the mechanism's name and all parameters that affect the counts.
        marks: number of counts that every report raises by one; None if this number varies.
        invalid: the reason for the rejection of a row that is not `valid`.
        memoized: true if a device makes one memo of a value, and randomizes the memo again for each report.
        n_keys: number of memo keys, which are in [0, n_keys): k, g for local hashing, 2^n for sets of n values; memoized
            mechanisms only.
        max_memos: maximum number of memos that a device draws in its lifetime: the number of values or sets, or min(k, g) for
            local hashing; 0 for a one-time mechanism.
        n_enrolments: number of possible results of a device's permanent choice (`enroll`). If this number is above 1, all
            reports of a device show the choice.
        every_steps: w; a device reports at one of w consecutive time steps (`OneTime.spaced`); 1 means at every step.
        pure: true if p and q describe the reports.
        lifetime_reports: B, the largest number of reports that a device makes, or None for no limit.
        claims_by, read_by: the classes of the mechanism's `claims` and `reading`.
        choices: m, if a value is a set of at most m values (`mechanisms.families.padded_sampling`), else None.
    """

    names: ClassVar[tuple[str, ...]]
    answers: ClassVar[Answers] = "values"
    most_values: ClassVar[int] = MAX_K
    portable: ClassVar[bool] = True
    name: str
    k: int
    eps_1: float
    eps_inf: float
    p: float
    q: float
    table_shape: tuple[int, ...]
    signature: str
    marks: int | None = 1
    invalid: Invalid = "symbol out of range"
    memoized: bool
    n_keys: int
    max_memos: int
    n_enrolments: int = 1
    pure: bool = True
    every_steps: int = 1
    lifetime_reports: int | None = None
    claims_by: type[Claims]
    read_by: type[Reading] = Reading
    choices: int | None = None

    fakes: int = 1  # d: one device in d encodes its true value; the others encode a uniform value (`with_fake_data`)
    _device: Mechanism | None = None

    # ---- on the device

    @property
    def device(self) -> Mechanism:
        """This mechanism without the fake data."""
        return self._device or self

    def with_fake_data(self, d: int) -> Mechanism:
        """The server's view under RS+FD: a device encodes its true value with probability 1/d, else a uniform value.

        The support probabilities become

            p' = (p + (d-1) u) / d,   q' = (q + (d-1) u) / d,   u = q + (p - q) / k

        The losses stay those of `device`, because the reports of all attributes together can lose `eps_1`. One of these reports
        alone, as in `channel`, loses less.

        Args:
            d: in [1, 10⁶]; usually the number of attributes.

        Raises:
            ValueError: if d is outside its range, or for a mechanism of sets.

        Source: Arcolezi, Couchot, Al Bouna and Xiao 2021 (RS+FD), with uniform fake values.
        """
        d = integer("d", d, 1, 10**6)
        mixed = self._copy()
        uniform = self.q + (self.p - self.q) / self.k
        mixed.p, mixed.q = (self.p + (d - 1) * uniform) / d, (self.q + (d - 1) * uniform) / d
        mixed.fakes, mixed._device = d, self
        mixed.signature = f"{self.signature} with fake data, d={d}"
        return mixed

    def _copy(self) -> Self:
        copied = copy.copy(self)
        copied.__dict__ = {key: one for key, one in self.__dict__.items() if key not in ("claims", "reading")}
        return copied

    @abstractmethod
    def coins(self) -> Coins:
        """Returns the coins of each round, as in `Parameters.coins`."""

    def device_fields(self) -> dict[str, Any]:
        """Returns the keys of `Parameters` that only this family of mechanisms has."""
        return {}

    @property
    @abstractmethod
    def randomizer(self) -> type[Randomizer]: ...

    def parameters(self) -> Parameters:
        """Returns the parameters that a device of a user needs to run the mechanism `self.device`."""
        m = self.device
        return Parameters(
            mechanism=m.name,
            k=m.k,
            row_bytes=m.row_bytes,
            every_steps=m.every_steps,
            lifetime_reports=m.lifetime_reports,
            eps=None if m.memoized else m.eps_1,
            eps_inf=m.eps_inf if m.memoized else None,
            eps_1=m.eps_1 if m.memoized else None,
            coins=m.coins(),
            **m.device_fields(),
        )

    @cached_property
    def row_bytes(self) -> int:
        """Size of one report in an envelope, in bytes. A mechanism that sets it needs no NumPy on a device."""
        return self.report_dtype.itemsize

    @cached_property
    def report_dtype(self) -> np.dtype[Any]:
        """NumPy dtype of one report, fixed width and little-endian, as in the envelope's payload; by default an integer."""
        return np.dtype(f"<u{self.row_bytes}")

    def enroll(self, n: int, rng: np.random.Generator) -> IntArray:
        """(n,) enrolments, in [0, n_enrolments): each device's permanent choice, such as the number of its hash function."""
        return np.zeros(integer("n", n, 0, 2**40), np.int64)

    def memo_keys(self, values: npt.ArrayLike, enrolment: IntArray) -> IntArray:
        """The keys under which a device stores its memos."""
        return user_values(values, self.k)

    @abstractmethod
    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        """A fresh memo for each value, in rows of `report_dtype`; for a one-time mechanism, the values themselves, unchecked.

        Args:
            values: (n,) integers in [0, k), or codes of sets.
            rng: source of randomness, as in `simulate`.
            enrolment: (n,) the result of `enroll` for these devices; newly drawn by default.

        Raises:
            ValueError: if a memoized mechanism gets invalid values or, for local hashing, invalid enrolments. The message never
                shows a value.
        """

    @abstractmethod
    def report(self, memos: npt.ArrayLike, rng: np.random.Generator, /) -> Reports:
        """One sanitized report for each memo (the second round), or for each value of a one-time mechanism, in rows of
        `report_dtype`.

        Args:
            memos: (n,) rows that `memoize` returned; for a one-time mechanism, values or codes of sets.
            rng: source of randomness, as in `simulate`.

        Raises:
            ValueError: if a memo or a value is invalid. The message shows no memo and no value.
        """

    def simulate(self, values: npt.ArrayLike, rng: np.random.Generator, steps: int = 1) -> Reports:
        """(steps · n) reports of n new devices: all n reports of the first step, then all n of the second step, and so on.

        Args:
            values: (n,) values in [0, k) or codes of sets that the devices encode, the same at every step.
            rng: source of randomness, for simulations and tests only. Some mechanisms draw from it only the seed of a faster
                generator, which is predictable. A device runs the `randomizer`.
            steps: number of reports of each device, at least 1.
        """
        memos = self.memoize(values, rng)
        reports = [self.report(memos, rng) for _ in range(integer("steps", steps, 1, 2**31))]
        return reports[0] if len(reports) == 1 else np.concatenate(reports)  # does not copy the reports of a single step

    def counts_of(self, values: IntArray) -> IntArray:
        """(k,) the number of people with each value; for sets, the number of people whose padded set has each symbol."""
        return np.bincount(values, minlength=self.k)

    def epsilons(self) -> dict[str, float]:
        """The privacy losses, by the names of the arguments of `mechanism`; for THE, the ε of the noise."""
        return {"eps_inf": self.eps_inf, "eps_1": self.eps_1} if self.memoized else {"eps": self.eps_1}

    @abstractmethod
    def spaced(self, every_steps: int, lifetime_reports: int | None = None) -> Mechanism:
        """The same mechanism on devices that report less often (`OneTime.spaced`); memoized mechanisms raise ValueError."""

    # ---- its privacy

    @cached_property
    def claims(self) -> Claims:
        """Losses, chances of a right guess, and known distributions of the reports."""
        return self.claims_by(self)

    def eps_t(self, t: int) -> float:
        """Exact privacy loss of t reports of an unchanged value, in nats; see `Claims.eps_t`."""
        return self.claims.eps_t(t)

    def eps_sequence(self, t: int) -> SequenceLoss:
        """Privacy loss of t reports between any two value sequences, in nats, or an upper bound; see `Claims.eps_sequence`."""
        return self.claims.eps_sequence(t)

    def guess(self, t: float = 1) -> Chance:
        """Chance of a right guess of a value that never changes, from t reports; see `Claims.guess`."""
        return self.claims.guess(t)

    def reports_in(self, steps: int) -> int:
        """Largest number of reports of one device in `steps` >= 1 consecutive time steps: min(⌈steps / w⌉, B)."""
        reports = -(-integer("steps", steps, 1, MAX_COUNT) // self.every_steps)
        return reports if self.lifetime_reports is None else min(reports, self.lifetime_reports)

    @property
    def eps_window(self) -> float | None:
        """Loss between two value sequences that differ only within `every_steps` consecutive steps, in nats.

        None for a memoized mechanism.
        """
        return None

    @property
    def eps_lifetime(self) -> float:
        """Bound of the loss of all reports of a device between any two value sequences, in nats; infinite without
        `lifetime_reports`."""
        return math.inf

    def symbol_chances(self) -> tuple[float, float] | None:
        """Pr[a report is s] for a member s of the padded set, and for another symbol s; None except for mechanisms of sets."""
        return None

    # ---- on the server

    @cached_property
    def reading(self) -> Reading:
        """Estimates from the mechanism's counts, and their errors."""
        return self.read_by(self)

    @abstractmethod
    def rounds(self) -> tuple[float, float, float, float]:
        """(a, b, p₂, q₂): a = Pr[memo supports v | value is v], b = Pr[memo supports v | value is not v],
        p₂ = Pr[report supports v | memo supports v], q₂ = Pr[report supports v | memo does not support v].

        The memo of a one-time mechanism is the value itself: (1, 0, p, q).
        """

    def support(self, table: CountTable) -> IntArray:
        """(k,) int64 support counts C_v: how many reports support each value.

        Raises:
            ValueError: if the table belongs to another mechanism, or if the mechanism is not pure.
        """
        return self.reading.support(table)

    @property
    def supported(self) -> tuple[int, int]:
        """The least and the largest number of values that one report can support."""
        return 0, self.k

    def variance(self, f: float = 0.0, n: int = 10_000, steps: int = 1) -> float:
        """Exact variance of one bin of the matrix inversion.

            steps = 1:  γ(1 - γ) / (n (p - q)²),  γ = q + f (p - q)
            steps = W:  Var S / (n W² (p - q)²),
                        Var S = W [π p₂(1-p₂) + (1-π) q₂(1-q₂)] + W² (p₂-q₂)² π (1-π),  π = f a + (1-f) b

        The n people are drawn at random from a population in which a share f has the value. Every device reports at each of the
        W steps, with an unchanged value. a, b, p₂ and q₂ are those of `rounds`. The second formula holds without fake data, and
        not for PS-GRR (see `SampledReading.given_memo`).

        Args:
            f: true frequency of the bin, in [0, 1].
            n: number of people, at least 1.
            steps: number of steps W that are averaged, at least 1.

        Returns:
            The variance; infinite if p and q are the same double.

        Raises:
            ValueError: if an argument is outside its range, or if the mechanism is not pure.

        Equation 10 of ALLOMFREE has another factor of f in γ. It is right at f = 0, and for all f only if p + q = 1 in both
        rounds.
        """
        f, n, steps = real("f", f, 0.0, 1.0), integer("n", n, 1, MAX_COUNT), integer("steps", steps, 1, 2**31)
        return self.reading.bin_variance(f, n, steps)

    def outweighs(self, values: int = 1) -> float:
        """Number of honest people whom one false report outweighs, for a set of r values.

            max_y max_R |Σ_{v∈R} w_v(y)|,   w_v(y) = (1[y supports v] - q) / (p - q)

        Args:
            values: r, the size of the set, in [1, k].

        Returns:
            The exact maximum; infinite if p = q.

        Source of the idea: Cheu, Smith and Ullman 2021 (manipulation attacks).
        """
        return self.reading.outweighs(integer("values", values, 1, self.k))

    def require(self, table: CountTable) -> None:
        if table.mechanism != self.signature:
            raise ValueError(f"expected a count table of {self.signature}, got one of {table.mechanism}")

    @abstractmethod
    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """(n,) true for each row that a device could have sent."""

    @abstractmethod
    def _count(self, reports: Reports) -> IntArray: ...

    def tabulate(self, reports: Reports) -> CountTable:
        """Count table of the reports.

        Raises:
            ValueError: if the rows are not of `report_dtype`, or if a row is not a report of this mechanism.
        """
        reports = self._as_reports(reports)
        wrong = ~self.valid(reports)
        if wrong.any():
            raise ValueError(
                f"{int(wrong.sum())} of {len(reports)} reports are not reports of {self.signature}, "
                f"the first at position {int(wrong.argmax())}"
            )
        return CountTable(self.signature, len(reports), self._count(reports))

    def table(self, n: int, counts: npt.ArrayLike) -> CountTable:
        """Checks stored counts and returns them as a count table of this mechanism.

        Raises:
            ValueError: if n is outside [0, 2^62], if the counts are not integers of `table_shape`, if a count is outside [0,
                n], or if n reports cannot give the sum of the counts (`marks`).
        """
        n = integer("n", n, 0, MAX_COUNT)
        array = np.asarray(counts)
        if array.shape != self.table_shape or array.dtype.kind not in "iu":
            raise ValueError(
                f"counts of {self.signature} must be integers of shape {self.table_shape}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if array.size and (array.min() < 0 or array.max() > n):
            raise ValueError(f"counts of {n} reports must be in [0, {n}], got {array.min()} to {array.max()}")
        total = int(array.sum(dtype=object if n * array.size >= 2**63 else None))  # the sum could overflow 64 bits
        if self.marks is not None and total != n * self.marks:
            raise ValueError(f"counts of {n} reports of {self.signature} must sum to {n * self.marks}, got {total}")
        return CountTable(self.signature, n, array.astype(np.int64))

    def table_from_bytes(self, blob: bytes) -> CountTable:
        """The inverse of `CountTable.to_bytes`.

        Raises:
            ValueError: if the bytes have the wrong length, or `table` refuses the counts.
        """
        needed = 8 * (1 + math.prod(self.table_shape))
        if len(blob) != needed:
            raise ValueError(f"a stored table of {self.signature} takes {needed} bytes, got {len(blob)}")
        numbers = np.frombuffer(blob, "<i8")
        return self.table(int(numbers[0]), numbers[1:].reshape(self.table_shape))

    def separating_part(self, table: CountTable) -> tuple[Mechanism, CountTable]:
        """Returns the mechanism and the table of those reports that distinguish values; by default, this mechanism and the
        whole table.
        """
        return self, table

    def empty_table(self) -> CountTable:
        return CountTable(self.signature, 0, np.zeros(self.table_shape, np.int64))

    @property
    def has_channel(self) -> bool:
        """True if `channel` has at most 2^24 entries."""
        return self._log2_outputs() + math.log2(self.k) <= math.log2(MAX_CHANNEL_ENTRIES)

    def channel(self) -> FloatArray:
        """Dense channel: row v holds Pr[output | v] of one report of a new device. For sets, row i is the i-th set of
        `set_codes`.

        Raises:
            ValueError: if the channel would have more than 2^24 entries.
        """
        if not self.has_channel:
            raise ValueError(f"the dense channel of {self.signature} would have more than {MAX_CHANNEL_ENTRIES} entries")
        real = self.device._channel()
        return np.asarray((real + (self.fakes - 1) * real.mean(axis=0)) / self.fakes)

    @abstractmethod
    def _channel(self) -> FloatArray: ...

    @abstractmethod
    def _log2_outputs(self) -> float: ...

    def _as_reports(self, reports: Reports) -> Reports:
        reports = np.asarray(reports)
        row = self.report_dtype
        if reports.dtype != row.base or reports.shape[1:] != row.shape or reports.ndim == 0:
            raise ValueError(f"reports of {self.signature} must be rows of {row}, got {reports.dtype} of shape {reports.shape}")
        return reports

    def __repr__(self) -> str:
        return self.signature
