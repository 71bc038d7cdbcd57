"""The device survey: everything that a device needs to answer a survey, as JSON.

The gateway serves this document at ``GET /v1/survey``, and ``ldpstream canonical SURVEY`` writes it. All probabilities are
integers here, so a device needs no floating-point number to draw a report. docs/write_a_device.md explains the document to
authors of devices.

    {"name": "commute", "fingerprint": "…16 hexadecimal digits…", "canonical": "…the survey's canonical text…",
     "mechanisms": [[parameters of attribute 0 and level 0, …], …]}

A key whose value does not apply to a mechanism is absent. New keys may be added; a device ignores keys that it does not know.
"""

import msgspec


class Coin(msgspec.Struct, frozen=True):
    """An exact probability, stored for tossing.

    Attributes:
        digits: base-256 digits of the smaller probability after the point, most significant first, two hexadecimal digits each.
        inverted: true if "no" has the smaller probability.
    """

    digits: str
    inverted: bool


class FiniteField(msgspec.Struct, frozen=True):
    """The finite field of the hash functions, GF(r^e).

    Attributes:
        characteristic: the prime r.
        degree: e, at least 1.
        polynomial: (e + 1) coefficients of the monic polynomial modulo which elements are multiplied, least power first.
    """

    characteristic: int
    degree: int
    polynomial: tuple[int, ...]


class Parameters(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Parameters of the mechanism of an attribute and level, for a device.

    Attributes:
        mechanism: the mechanism's name, never ``"auto"``.
        k: number of values.
        row_bytes: size of a report in an envelope.
        every_steps: w; a device reports at one of w consecutive steps.
        lifetime_reports: the largest number of reports that a device makes; None for no limit.
        eps: loss of one report of a one-time mechanism, in nats, after the split of the budget.
        eps_inf, eps_1: losses of a memo and of one report of a memoized mechanism, in nats, after the split of the budget.
        g: number of hashed symbols, a prime power (local hashing).
        functions: number S = g^digits of hash functions (local hashing).
        digits: number of base-g digits of a value's place (local hashing).
        stride: a value v has the place v · stride mod k; in [1, k), without a common factor with k (local hashing).
        field: the field with g elements (local hashing).
        omega: number of ones in a report (subset selection).
        width: L, number of near cells (SW). A report is one of k - 1 + L cells; those near a value v are v … v + L - 1.
        coins: the coins of each round, ``"memo"`` (memoized mechanisms only) and ``"report"``. A round of symbols has the coin
            ``"keep"``, a round of bits has ``"one"`` and ``"zero"``, and subset selection has ``"with_value"``. The coin
            ``"keep"`` of SW decides whether the report is a near cell.
    """

    mechanism: str
    k: int
    row_bytes: int
    every_steps: int
    lifetime_reports: int | None
    eps: float | None = None
    eps_inf: float | None = None
    eps_1: float | None = None
    g: int | None = None
    functions: int | None = None
    digits: int | None = None
    stride: int | None = None
    field: FiniteField | None = None
    omega: int | None = None
    width: int | None = None
    coins: dict[str, dict[str, Coin]]


class DeviceSurvey(msgspec.Struct, frozen=True):
    """The document of a survey for devices; see the module's docstring.

    Attributes:
        name: the survey's name.
        fingerprint: the first 8 bytes of the SHA-256 of `canonical` in UTF-8, as lower-case hexadecimal digits.
        canonical: the survey as JSON in the canonical form of RFC 8785.
        mechanisms: the parameters of every attribute and level, by their indices.
    """

    name: str
    fingerprint: str
    canonical: str
    mechanisms: tuple[tuple[Parameters, ...], ...]
