"""The survey: the questions, their privacy and their time steps. Devices and service read the same public TOML file.

    name = "commute"                    # letters, digits, . _ -
    start = 2026-01-05T00:00:00Z        # beginning of step 0, with a time zone
    step_seconds = 3600                 # length of a time step
    window_steps = 24                   # length of the sliding window, in steps
    lateness_steps = 1                  # number of steps from the end of a step to its close
    skew_seconds = 60                   # how far a device's clock may run ahead (default: 60 s, or a step if that is shorter)
    collection = "smp"                  # smp: a device samples one attribute, once, and answers only that attribute
                                        # spl: a device answers all attributes and splits its budget evenly
                                        # rs+fd: a device samples one attribute and answers the other attributes with fake
                                        # values

    [[attribute]]
    name = "mode"
    values = ["car", "bus", "bicycle"]  # or size = 100, or bins = [0, 10, 20, 50] for numbers
    [[attribute.level]]                 # a participant picks one level
    name = "standard"
    mechanism = "auto"                  # a name of mechanisms.NAMES, or auto
    eps_inf = 2.0                       # largest privacy loss while the value stays the same, in nats
    eps_1 = 1.0                         # privacy loss of a single report, in nats
    [[attribute.level]]                 # a level with a one-time mechanism has eps in place of eps_inf and eps_1
    name = "changing"
    mechanism = "OUE"
    eps = 1.0                           # privacy loss of every report, in nats; the losses add up
    every_steps = 24                    # a device makes one report in 24 consecutive steps (default: 1)
    lifetime_reports = 365              # a device stops after this number of reports (default: no limit)

Unknown keys are rejected. The whole file is checked once, when it is read. A `SurveyError` names the key, the given value and
the allowed values.
"""

import hashlib
import json
import math
import re
import unicodedata
from bisect import bisect_right
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mechanisms import Mechanism, OneTime, mechanism
from surveys.errors import UserError, did_you_mean

MAX_LABELS = 2**24
MAX_REPORT_BYTES = 900_000  # one report must fit an envelope
MAX_TABLE_BYTES = 2**26  # for one count table; Redis needs half a second to write a table of this size (docs/counting.md)
MAX_OPEN_BYTES = 2**27  # for all count tables of open steps together; one commit may write all of them
FINGERPRINT_BYTES = 8


class SurveyError(UserError, ValueError):
    """Raised for an invalid survey. The message is one line: the file, the key, the given value and the allowed values."""


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("must be 1 to 64 letters, digits, dots, underscores or hyphens")
    return value


def _label(value: str) -> str:
    if any(unicodedata.category(letter) == "Cc" for letter in value):  # a terminal would obey them
        raise ValueError("must not contain control characters")
    return value


Name = Annotated[str, AfterValidator(_name)]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_label)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Level(_Part):
    """A privacy level that a participant may choose.

    Attributes:
        name: unique within the attribute.
        mechanism: a mechanism's name, or ``"auto"``.
        eps_inf, eps_1: loss of any number of reports of one memo, and of one report, in nats (longitudinal mechanisms).
        eps: loss of each report, in nats (one-time mechanisms).
        calibration: ``"exact"`` (default) or ``"paper"``, for longitudinal mechanisms.
        every_steps: w; a device reports at one of w consecutive steps, for one-time mechanisms (`OneTime.spaced`).
        lifetime_reports: the largest number of reports that a device makes, for one-time mechanisms.
    """

    name: Name
    mechanism: str
    eps_inf: float | None = None
    eps_1: float | None = None
    eps: float | None = None
    calibration: Literal["exact", "paper"] | None = None
    every_steps: Annotated[int, Field(ge=1, le=10_000)] | None = None
    lifetime_reports: Annotated[int, Field(ge=1, le=10**9)] | None = None

    def build(self, k: int, share: int) -> Mechanism:
        """The mechanism on k values, with the budget divided by `share`.

        Raises:
            ValueError: if the mechanism does not take the level's keys.
        """
        eps, eps_inf, eps_1 = (None if budget is None else budget / share for budget in (self.eps, self.eps_inf, self.eps_1))
        built = mechanism(self.mechanism, k, eps=eps, eps_inf=eps_inf, eps_1=eps_1, calibration=self.calibration)
        if isinstance(built, OneTime):
            return built.spaced(self.every_steps or 1, self.lifetime_reports)
        for key in ("every_steps", "lifetime_reports"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} needs a one-time mechanism (with eps): a memo links all reports of {built.name}")
        return built


class Attribute(_Part):
    """One question: its values, in the order of their indices 0 … k-1, and its levels."""

    name: Name
    values: tuple[Label, ...] | None = None
    size: Annotated[int, Field(ge=2, le=MAX_LABELS)] | None = None
    bins: tuple[float, ...] | None = None
    levels: Annotated[tuple[Level, ...], Field(alias="level", min_length=1, max_length=32)]

    @model_validator(mode="after")
    def _check(self) -> "Attribute":
        given = [key for key in ("values", "size", "bins") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of values, size and bins, got {' and '.join(given) or 'none'}")
        if self.values is not None and (len(self.values) < 2 or len(set(self.values)) < len(self.values)):
            raise ValueError("values must be at least 2 different texts")
        if self.bins is not None and (
            len(self.bins) < 3 or not all(map(math.isfinite, self.bins)) or any(b <= a for a, b in pairwise(self.bins))
        ):
            raise ValueError("bins must be at least 3 finite edges in ascending order")
        _distinct("level", [level.name for level in self.levels])
        return self

    @cached_property
    def k(self) -> int:
        """Domain size."""
        if self.values is not None:
            return len(self.values)
        return self.size if self.size is not None else len(self.bins or ()) - 1

    def label(self, index: int) -> str:
        """The text of the value with this index: the value itself, the number, or the bin ``[a, b)``."""
        if self.values is not None:
            return self.values[index]
        if self.bins is None:
            return str(index)
        return f"[{_short(self.bins[index])}, {_short(self.bins[index + 1])}{']' if index == self.k - 1 else ')'}"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All k labels, in the order of the indices."""
        return tuple(self.label(i) for i in range(self.k))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.values or ())}

    def index(self, raw: str) -> int:
        """The index of a value given as a text.

        Raises:
            ValueError: if the value is not in the domain. The message does not show the value, which is private.
        """
        found: int | None = None
        if self.values is not None:
            found = self._index.get(raw)
        elif self.bins is not None:
            number = _number(raw)
            if number is not None and self.bins[0] <= number <= self.bins[-1]:
                found = min(bisect_right(self.bins, number) - 1, self.k - 1)
        elif raw.isascii() and raw.isdigit() and int(raw) < self.k:
            found = int(raw)
        if found is None:
            raise ValueError(f"not a value of the attribute {self.name} ({self.domain})")
        return found

    @property
    def domain(self) -> str:
        """The domain in a few words, for messages."""
        if self.values is not None:
            return f"{self.k} values, {self.values[0]} … {self.values[-1]}"
        if self.bins is None:
            return f"integers 0 … {self.k - 1}"
        return f"numbers {_short(self.bins[0])} … {_short(self.bins[-1])}"


def _short(number: float) -> str:
    """The shortest text that parses to the same number."""
    return repr(number).removesuffix(".0")


def _number(raw: str) -> float | None:
    try:
        return float(raw)
    except ValueError:
        return None


def _table_bytes(m: Mechanism) -> int:
    """Returns the size of a mechanism's count table, in bytes. Raises ValueError if its report or table is too large to
    process."""
    if m.report_dtype.itemsize > MAX_REPORT_BYTES:
        raise ValueError(f"a report must take at most {MAX_REPORT_BYTES} bytes, got {m.report_dtype.itemsize}")
    table_bytes = 8 * math.prod(m.table_shape)
    if table_bytes > MAX_TABLE_BYTES:
        raise ValueError(
            f"a count table must take at most {MAX_TABLE_BYTES >> 20} MiB, got {table_bytes / 2**20:.0f} MiB "
            f"for {m.signature}: use fewer values or another mechanism"
        )
    return table_bytes


def _distinct(what: str, names: list[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"two {what}s are named {name}")


class Survey(_Part):
    """A checked survey. Times are in ms since 1970 UTC, as in Kafka. Step 0 begins at `start`."""

    name: Name
    start: datetime
    step_seconds: Annotated[int, Field(ge=1, le=10**9)]
    window_steps: Annotated[int, Field(ge=1, le=10_000)]
    lateness_steps: Annotated[int, Field(ge=0, le=10_000)]
    skew_seconds: Annotated[int, Field(ge=0)] | None = None
    collection: Literal["smp", "spl", "rs+fd"]
    attributes: Annotated[tuple[Attribute, ...], Field(alias="attribute", min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _check(self) -> "Survey":
        if self.start.tzinfo is None:
            raise ValueError("start must have a time zone, as in 2026-01-05T00:00:00Z")
        if not 1970 < self.start.year < 9000:
            raise ValueError(f"start must be between the years 1971 and 8999, got {self.start.year}")
        _distinct("attribute", [attribute.name for attribute in self.attributes])
        tables_bytes = 0
        for i, attribute in enumerate(self.attributes):
            for j, level in enumerate(attribute.levels):
                try:
                    tables_bytes += _table_bytes(level.build(attribute.k, self.share))
                    if (level.every_steps or 1) > self.window_steps:
                        raise ValueError(
                            f"every_steps must be at most window_steps = {self.window_steps}, got {level.every_steps}: "
                            "every device must report in each window"
                        )
                except ValueError as error:
                    raise ValueError(f"attribute[{i}].level[{j}] ({attribute.name}, {level.name}): {error}") from error
        open_bytes = tables_bytes * self.open_steps
        if open_bytes > MAX_OPEN_BYTES:
            raise ValueError(
                f"the count tables of the {self.open_steps} steps that are open at a time must take at most "
                f"{MAX_OPEN_BYTES >> 20} MiB, got {open_bytes / 2**20:.0f} MiB: use fewer attributes, values or lateness_steps"
            )
        return self

    # ---- questions and mechanisms

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {attribute.name: i for i, attribute in enumerate(self.attributes)}

    def index(self, attribute: str) -> int:
        """The index of the attribute with this name.

        Raises:
            ValueError: if there is none.
        """
        if attribute not in self._indices:
            suggestion = did_you_mean(attribute, self._indices)
            raise ValueError(f"attribute must be one of {', '.join(self._indices)}, got {attribute!r}{suggestion}")
        return self._indices[attribute]

    @property
    def share(self) -> int:
        """Number of equal parts into which a device splits its budget: the number of attributes under spl, else 1."""
        return len(self.attributes) if self.collection == "spl" else 1

    @cached_property
    def mechanisms(self) -> tuple[tuple[Mechanism, ...], ...]:
        """The mechanism of every attribute and level, by their indices."""
        d = len(self.attributes)
        built = [[level.build(a.k, self.share) for level in a.levels] for a in self.attributes]
        if self.collection == "rs+fd" and d > 1:
            built = [[m.with_fake_data(d) for m in levels] for levels in built]
        return tuple(map(tuple, built))

    @cached_property
    def canonical(self) -> str:
        """The whole survey as JSON, without spaces and with sorted keys; `start` is in ms since 1970."""
        document = self.model_dump(mode="json", by_alias=True) | {"start": self.start_ms}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> bytes:
        """First 8 bytes of the SHA-256 of the survey's canonical JSON. An envelope with another fingerprint is rejected."""
        return hashlib.sha256(self.canonical.encode()).digest()[:FINGERPRINT_BYTES]

    # ---- time steps

    @cached_property
    def start_ms(self) -> int:
        return round(self.start.astimezone(UTC).timestamp() * 1000)

    @cached_property
    def step_ms(self) -> int:
        return self.step_seconds * 1000

    @property
    def steps_a_year(self) -> int:
        """Number of steps that begin in 365 days, at least 1."""
        return -(-365 * 86_400 // self.step_seconds)

    @cached_property
    def skew_ms(self) -> int:
        return 1000 * (min(60, self.step_seconds) if self.skew_seconds is None else self.skew_seconds)

    @property
    def open_steps(self) -> int:
        """Maximum number of steps for which the service accepts reports at one moment."""
        return self.lateness_steps + 1 + -(-self.skew_ms // self.step_ms)

    def step_at(self, time_ms: int) -> int:
        """The step that contains the time; negative before the start."""
        return (time_ms - self.start_ms) // self.step_ms

    def opens_ms(self, step: int) -> int:
        """The time at which the step begins."""
        return self.start_ms + step * self.step_ms

    def closes_ms(self, step: int) -> int:
        """The time from which a report of the step is too late."""
        return self.opens_ms(step + 1 + self.lateness_steps)

    def too_old(self, step: int, appended_ms: int) -> bool:
        """True if a report of the step, appended to the log at `appended_ms`, is after the step's close."""
        return appended_ms >= self.closes_ms(step)

    def too_early(self, step: int, appended_ms: int) -> bool:
        """True if the step begins later than the append time plus the allowed clock skew."""
        return appended_ms + self.skew_ms < self.opens_ms(step)

    # ---- names in Kafka

    @property
    def reports_topic(self) -> str:
        return f"ldpstream.{self.name}.reports"

    @property
    def rejected_topic(self) -> str:
        return f"ldpstream.{self.name}.rejected"

    @property
    def estimates_topic(self) -> str:
        return f"ldpstream.{self.name}.estimates"
