"""The survey: the questions, their privacy and their time steps.

    name = "commute"
    start = 2026-01-05T00:00:00Z
    step_seconds = 86400
    window_steps = 24
    lateness_steps = 2
    skew_seconds = 60
    collection = "smp"
    relay = "required"
    crowd = 20000
    ends = 2026-12-31T00:00:00Z         # or a number of steps
    title = "How people travel"
    description = "One question a day."
    purpose = "Plan bus lines."
    owner = "City of Example"
    contact = "travel@example.org"
    retention_steps = 1000
    replaces = "cd834f94b66f32b5"

    [cohort]                            # a public fact about a device
    name = "version"
    values = ["1.0", "1.1", "other"]
    least = 1000

    [[attribute]]                       # a question with one of several answers
    name = "mode"
    values = ["car", "bus", "bicycle", "other"]
    unlisted = "other"
    aliases = { bike = "bicycle" }
    [[attribute.level]]                 # with a memo
    name = "standard"
    mechanism = "auto"
    eps_inf = 2.0
    eps_1 = 1.0
    [[attribute.level]]                 # without a memo: eps in place of eps_inf and eps_1
    name = "changing"
    mechanism = "OUE"
    eps = 1.0
    every_steps = 24
    lifetime_reports = 365

    [[attribute]]                       # numbers
    name = "distance_km"
    bins = [0, 5, 10, 20, 50]           # or size = 100 for the integers from 0 to 99
    unit = "km"
    outside = "refuse"
    [[attribute.level]]
    name = "standard"
    mechanism = "L-GRR"
    calibration = "exact"
    eps_inf = 2.0
    eps_1 = 1.0

    [[attribute]]                       # several answers
    name = "apps"
    values = ["chat", "mail", "maps", "music"]
    choices = 3
    ordered = false
    [[attribute.level]]
    name = "standard"
    mechanism = "auto"
    eps_inf = 4.0
    eps_1 = 2.0

    [[attribute]]                       # computed by the device: needs steps of whole days
    name = "age"
    values = ["new", "weeks 2 to 4", "older"]
    recipe = { measure = "age", edges = [1, 4] }
    [[attribute.level]]
    name = "standard"
    mechanism = "GRR"
    eps = 1.0

    [[attribute]]                       # two questions together
    name = "mode_by_distance"
    pair = ["mode", "distance_km"]
    [[attribute.level]]
    name = "standard"
    mechanism = "auto"
    eps_inf = 2.0
    eps_1 = 1.0

Unknown keys are rejected. A `SurveyError` names the key and the fault. The classes explain the keys. Methods take and return
times in ms since 1970 UTC, as in Kafka.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from ldpstream.surveys.canonical import attribute_keys, text
from ldpstream.surveys.device_survey import DeviceSurvey, Words
from ldpstream.surveys.errors import UserError, did_you_mean
from ldpstream.surveys.questions import DAY_S, LABEL, MAX_RECIPE_DAYS, Attribute, Cohort, Level, Name
from ldpstream.surveys.texts import require_apart

if TYPE_CHECKING:
    from ldpstream.mechanisms import Mechanism

MAX_OPEN_BYTES = 2**27  # for all count tables of open steps; one commit may write all, in a second: docs/explained/counting.md
MAX_COHORT_NUMBERS = 100_000  # cohorts times values of all attributes; limits the time and the bytes of a step's estimates
FINGERPRINT_BYTES = 8
RELAY_LATENESS = 2  # least `lateness_steps` with a relay: a step for the moment of sending, and a step for further attempts
KEPT_STEPS = 1000  # default of `retention_steps`
KEPT_MS = 7 * 86_400_000  # shortest time for which the log keeps a report, by default
END_OF_TIME = datetime(9000, 1, 1, tzinfo=UTC)
HEX = r"\A[0-9a-f]{16}\Z"


class SurveyError(UserError, ValueError):
    """Raised for an invalid survey."""


Collection = Literal["smp", "spl", "rs+fd"]
Relay = Literal["required"]
Text = Annotated[str, Meta(min_length=1, max_length=2000, pattern=LABEL)]


def _of_pair(name: str, named: dict[str, Attribute]) -> Attribute:
    single = [other.name for other in named.values() if other.pair is None and other.most is None]
    if name not in single:
        hint = did_you_mean(name, single)
        raise ValueError(f"pair must name two attributes with one answer: {', '.join(single)}, got {name!r}{hint}")
    return named[name]


def _unix_ms(time: datetime) -> int:
    return round(time.astimezone(UTC).timestamp() * 1000)


class Survey(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A checked survey.

    A change of a key gives the survey a new fingerprint. You may change the keys that devices need not know at any time:
    `title`, `description`, `purpose`, `owner`, `contact`, `retention_steps`, `replaces` and `crowd`; of an attribute,
    `ordered`, `unit` and `aliases`; of a level with a named mechanism, `guess_at_most`.

    Attributes:
        name: letters, digits and ``. _ -``, at most 64 characters.
        start: beginning of step 0, with a time zone.
        step_seconds: length of a step, in seconds.
        window_steps: length of the sliding window, in steps.
        lateness_steps: number of steps from the end of a step to its close; reports that come later do not count. At least 2
            with `relay`.
        skew_seconds: how far a device's clock may run ahead, in seconds; by default 60, or a step if that is shorter.
        collection: ``"smp"``: a device samples one attribute, once, and answers only this attribute. ``"spl"``: a device
            answers all attributes and splits its budget evenly. ``"rs+fd"``: a device samples one attribute and answers the
            others with fake values.
        ends: the last step ends at this time or before; or the number of steps. By default the survey has no end.
        title, description, purpose, owner, contact: texts for people, which page and notice show.
        retention_steps: number of steps of estimates that the service keeps.
        replaces: fingerprint of the earlier survey whose history this survey continues.
        relay: devices send only through a relay; by default they send to the gateway.
        crowd: with `relay`, the number of honest people with the same attribute, level, cohort and step that the second
            promise assumes. Without it the service claims no second promise.
        cohort: a public fact about a device, which each report carries in clear.
        attributes: the questions.
    """

    name: Name
    start: Annotated[datetime, Meta(tz=True)]
    step_seconds: Annotated[int, Meta(ge=1, le=10**9)]
    window_steps: Annotated[int, Meta(ge=1, le=10_000)]
    lateness_steps: Annotated[int, Meta(ge=0, le=10_000)]
    skew_seconds: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    collection: Collection
    ends: Annotated[datetime, Meta(tz=True)] | Annotated[int, Meta(ge=1)] | None = None
    title: Text | None = None
    description: Text | None = None
    purpose: Text | None = None
    owner: Text | None = None
    contact: Text | None = None
    retention_steps: Annotated[int, Meta(ge=1, le=100_000)] = KEPT_STEPS
    replaces: Annotated[str, Meta(pattern=HEX)] | None = None
    relay: Relay | None = None
    crowd: Annotated[int, Meta(ge=2, le=10**9)] | None = None
    cohort: Cohort | None = None
    attributes: Annotated[tuple[Attribute, ...], Meta(min_length=1, max_length=1000)] = field(name="attribute")

    def __post_init__(self) -> None:
        for key, time in (("start", self.start), ("ends", self.ends)):
            if isinstance(time, datetime) and not 1970 < time.year < 9000:
                raise ValueError(f"{key} must be between the years 1971 and 8999, got {time.year}")
        if self.n_steps is not None and not (self.n_steps >= 1 and self.opens_ms(self.n_steps) < _unix_ms(END_OF_TIME)):
            raise ValueError(f"ends must be at least one step after start and before the year 9000, got {self.ends}")
        if self.relay is not None and self.lateness_steps < RELAY_LATENESS:
            raise ValueError(
                f"lateness_steps must be at least {RELAY_LATENESS} with relay = {self.relay!r}, got {self.lateness_steps}: a "
                "device sends a report at a random moment of the next step, and needs a step more for further attempts"
            )
        if self.crowd is not None and self.relay is None:
            raise ValueError(f'crowd needs relay = "required", got crowd = {self.crowd} without a relay')
        require_apart("names of attributes", [attribute.name for attribute in self.attributes])
        structs.force_setattr(self, "attributes", self._with_pairs())
        self._check_cohort()
        self._check_recipes()
        tables_bytes = sum(8 * math.prod(m.table_shape) for levels in self.mechanisms for m in levels)
        open_bytes = tables_bytes * self.open_steps * self.n_cohorts
        if open_bytes > MAX_OPEN_BYTES:
            raise ValueError(
                f"the count tables of the {self.open_steps} steps that are open at a time must take at most "
                f"{MAX_OPEN_BYTES >> 20} MiB, got {open_bytes / 2**20:.0f} MiB: use fewer attributes, "
                f"values{'' if self.cohort is None else ', cohorts'} or lateness_steps"
            )

    def _with_pairs(self) -> tuple[Attribute, ...]:
        named = {attribute.name: attribute for attribute in self.attributes}
        asked: dict[frozenset[str], str] = {}
        found = []
        for i, attribute in enumerate(self.attributes):
            if attribute.pair is not None:
                try:
                    first, second = (_of_pair(name, named) for name in attribute.pair)
                    if first is second:
                        raise ValueError(f"pair must name two different attributes, got {first.name} twice")
                    if (other := asked.setdefault(frozenset(attribute.pair), attribute.name)) != attribute.name:
                        raise ValueError(f"pair: {first.name} and {second.name} are already the pair of {other}")
                    attribute = attribute.of_pair(first, second)
                except ValueError as error:
                    raise ValueError(f"attribute[{i}] ({attribute.name}): {error}") from error
            found.append(attribute)
        return tuple(found)

    def _check_recipes(self) -> None:
        if not any(attribute.recipe for attribute in self.attributes):
            return
        days, rest = divmod(self.step_seconds, DAY_S)
        if rest or days > MAX_RECIPE_DAYS:
            raise ValueError(
                f"step_seconds must be 1 to {MAX_RECIPE_DAYS} whole days of {DAY_S} s with a recipe, got {self.step_seconds}"
            )
        shortest = min((a.recipe.window_days for a in self.attributes if a.recipe and a.recipe.windowed), default=days)
        if shortest < days:
            raise ValueError(f"recipe.days must be at least a step, which has {days} days, got {shortest}")
        if self.start_ms % (1000 * DAY_S):
            raise ValueError(f"start must be at midnight UTC with a recipe, got {self.start.isoformat()}")

    def _check_cohort(self) -> None:
        if self.cohort is None:
            return
        if self.cohort.name in [attribute.name for attribute in self.attributes]:
            raise ValueError(f"cohort.name must not be the name of an attribute, got {self.cohort.name!r}")
        n_values = sum(attribute.k for attribute in self.attributes)
        if n_values * self.n_cohorts > MAX_COHORT_NUMBERS:
            raise ValueError(
                f"cohort.values: {self.n_cohorts} cohorts times {n_values} values of all attributes must be at most "
                f"{MAX_COHORT_NUMBERS}, got {n_values * self.n_cohorts}: use fewer cohorts or values"
            )

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

    def members(self, attribute: int) -> tuple[int, int] | None:
        """The indices of a pair's two attributes; None for an attribute that is no pair."""
        pair = self.attributes[attribute].pair
        return None if pair is None else (self.index(pair[0]), self.index(pair[1]))

    @property
    def share(self) -> int:
        """Number of equal parts into which a device splits its budget: the number of attributes under spl, else 1."""
        return len(self.attributes) if self.collection == "spl" else 1

    @cached_property
    def mechanisms(self) -> tuple[tuple[Mechanism, ...], ...]:
        """The mechanism of every attribute and level, by their indices; with fake data under rs+fd with several attributes."""
        asked = enumerate(self.attributes)
        return tuple(tuple(self._mechanism(i, a, j, level) for j, level in enumerate(a.levels)) for i, a in asked)

    def _mechanism(self, i: int, attribute: Attribute, j: int, level: Level) -> Mechanism:
        from ldpstream.mechanisms import NUMERIC  # loads all mechanisms

        try:
            if attribute.most is not None and self.collection == "rs+fd":
                raise ValueError('choices needs collection = "smp" or "spl", got rs+fd')
            if level.mechanism in NUMERIC and attribute.values is not None:
                raise ValueError(f"{level.mechanism} needs numbers: bins or size instead of values")
            if (level.every_steps or 1) > self.window_steps:
                raise ValueError(
                    f"every_steps must be at most window_steps = {self.window_steps}, got {level.every_steps}: "
                    "every device must report in each window"
                )
            built = attribute.build(level, self.share, self.window_steps)
        except ValueError as error:
            raise ValueError(f"attribute[{i}].level[{j}] ({attribute.name}, {level.name}): {error}") from error
        d = len(self.attributes)
        return built.with_fake_data(d) if self.collection == "rs+fd" and d > 1 else built

    @property
    def levels(self) -> list[tuple[int, Attribute, Level, Mechanism]]:
        """Every level of every attribute: the attribute's index, the attribute, the level and its mechanism."""
        asked = enumerate(zip(self.attributes, self.mechanisms, strict=True))
        return [(i, a, level, m) for i, (a, built) in asked for level, m in zip(a.levels, built, strict=True)]

    @property
    def n_cohorts(self) -> int:
        """Number of cohorts: 1 for a survey without cohorts, whose only cohort has the index 0."""
        return 1 if self.cohort is None else len(self.cohort.values)

    def cohort_index(self, cohort: str | None) -> int:
        """The index of a cohort; 0 for None in a survey without cohorts.

        Raises:
            ValueError: if the survey has no such cohort.
        """
        if self.cohort is not None:
            return self.cohort.index(cohort)
        if cohort is not None:
            raise ValueError(f"survey {self.name} has no cohort, got {cohort!r}")
        return 0

    def cohort_name(self, index: int) -> str | None:
        """The cohort with this index; None for a survey without cohorts."""
        return None if self.cohort is None else self.cohort.values[index]

    @cached_property
    def canonical(self) -> str:
        """The parameters that devices and service share, as JSON in the canonical form of RFC 8785 (`surveys.canonical`).

        `start` is in ms since 1970; `ends` is always the number of steps. These keys are left out if they have their default:
        `skew_seconds` (60, or step_seconds if that is less), `ends` (no end), `relay` (none), `cohort` (none).
        """
        keys: dict[str, Any] = {
            "name": self.name,
            "start": self.start_ms,
            "step_seconds": self.step_seconds,
            "window_steps": self.window_steps,
            "lateness_steps": self.lateness_steps,
            "collection": self.collection,
            "attribute": [attribute_keys(a, built) for a, built in zip(self.attributes, self.mechanisms, strict=True)],
        }
        if self.skew_ms != 1000 * min(60, self.step_seconds):
            keys["skew_seconds"] = self.skew_seconds
        if self.n_steps is not None:
            keys["ends"] = self.n_steps
        if self.relay is not None:
            keys["relay"] = self.relay
        if self.cohort is not None:
            keys["cohort"] = {"name": self.cohort.name, "values": self.cohort.values, "least": self.cohort.least}
        return text(keys)

    @cached_property
    def pin(self) -> str:
        """The SHA-256 of `canonical` in UTF-8, as 64 hexadecimal digits.

        It names the survey also against an author who looks for a second survey with the same fingerprint.
        """
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @cached_property
    def fingerprint(self) -> bytes:
        """The first 8 bytes of `pin`. They name the survey in envelopes, but prove nothing: about 2^33 hashes find two surveys
        with the same 8 bytes."""
        return bytes.fromhex(self.pin)[:FINGERPRINT_BYTES]

    @cached_property
    def device_survey(self) -> DeviceSurvey:
        """Everything that a device needs to answer the survey, with exact probabilities (`surveys.device_survey`)."""
        needed = tuple(tuple(m.parameters() for m in levels) for levels in self.mechanisms)
        words = Words(self.retention_steps, self.title, self.description, self.purpose, self.owner, self.contact)
        return DeviceSurvey(self.name, self.fingerprint.hex(), self.pin, self.canonical, needed, words)

    # ---- time steps

    @cached_property
    def start_ms(self) -> int:
        return _unix_ms(self.start)

    @cached_property
    def step_ms(self) -> int:
        return self.step_seconds * 1000

    @property
    def steps_a_year(self) -> int:
        """Number of the survey's steps that begin in its first 365 days, at least 1."""
        steps = -(-365 * 86_400 // self.step_seconds)
        return steps if self.n_steps is None else min(steps, self.n_steps)

    @cached_property
    def skew_ms(self) -> int:
        return 1000 * (min(60, self.step_seconds) if self.skew_seconds is None else self.skew_seconds)

    @property
    def open_steps(self) -> int:
        """Maximum number of steps for which the service accepts reports at one moment."""
        return self.lateness_steps + 1 + -(-self.skew_ms // self.step_ms)

    @property
    def kept_ms(self) -> int:
        """The log's retention in Kafka by default, in ms: a week, or longer if a window needs more steps."""
        return max(KEPT_MS, (self.window_steps + self.lateness_steps + 2) * self.step_ms)

    @cached_property
    def n_steps(self) -> int | None:
        """Number of steps of the survey; None for a survey without end."""
        return self.step_at(_unix_ms(self.ends)) if isinstance(self.ends, datetime) else self.ends

    def most_reports(self, m: Mechanism) -> int | None:
        """Largest number of reports that a device with this mechanism makes in the whole survey; None for no limit."""
        return m.lifetime_reports if self.n_steps is None else m.reports_in(self.n_steps)

    def loss_until_end(self, m: Mechanism) -> float | None:
        """Upper bound of the loss of all reports until the survey ends, for any values; None without `ends`.

        It holds for a device that enrolls once.
        """
        return None if self.n_steps is None else m.eps_sequence(m.reports_in(self.n_steps)).value

    def ended(self, step: int) -> bool:
        """True if the step is after the survey's last step."""
        return self.n_steps is not None and step >= self.n_steps

    def step_at(self, time_ms: int) -> int:
        """The step that contains the time; negative before the start."""
        return (time_ms - self.start_ms) // self.step_ms

    def opens_ms(self, step: int) -> int:
        return self.start_ms + step * self.step_ms

    def closes_ms(self, step: int) -> int:
        """The time from which a report of the step is too late."""
        return self.opens_ms(step + 1 + self.lateness_steps)

    def too_old(self, step: int, appended_ms: int) -> bool:
        """True if a report of the step, appended to the log at `appended_ms`, is at or after the step's close."""
        return appended_ms >= self.closes_ms(step)

    def too_early(self, step: int, appended_ms: int) -> bool:
        """True if the step begins later than the append time plus the allowed clock skew."""
        return appended_ms + self.skew_ms < self.opens_ms(step)

    # ---- names in Kafka

    @property
    def reports_topic(self) -> str:
        return f"ldpstream.{self.name}.reports"

    @property
    def survey_topic(self) -> str:
        return f"ldpstream.{self.name}.survey"

    @property
    def estimates_topic(self) -> str:
        return f"ldpstream.{self.name}.estimates"
