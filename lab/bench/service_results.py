from dataclasses import dataclass, field

BARE_TARGET, STOCK_TARGET, CLOSE_TARGET_S = 0.8, 50.0, 1.0


@dataclass(frozen=True, slots=True)
class Run:
    records: int
    seconds: float
    cpu_s: float | None
    peak_mib: float | None = None

    @property
    def per_s(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Counted:
    """Alternating runs of an agent and of the bare consumer over one log.

    Attributes:
        record_bytes: mean size of an envelope, in bytes.
        ratio: median over the pairs of runs of (agent's rate) / (bare consumer's rate).
        cpu_ratio: (bare consumer's processor time per record) / (agent's processor time per record).
    """

    kind: str
    record_bytes: float
    reports_per_record: float
    bare: list[Run]
    agent: list[Run]
    ratio: float
    cpu_ratio: float | None


@dataclass(frozen=True, slots=True)
class Stock:
    """A stock Faust agent; `ratio` is our agent's rate of reports divided by the stock agent's rate."""

    reports: int
    reports_per_s: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Phases:
    """Processor seconds of an agent per million records, by phase, and the latency of its commits."""

    kind: str
    records: int
    cpu_s_per_million: dict[str, float]
    commits: int
    commit_p50_ms: float
    commit_p99_ms: float


@dataclass(frozen=True, slots=True)
class Closed:
    """Seconds from a step's close until its histograms are in Redis."""

    attributes: int
    k: int
    steps: int
    reports_per_step: int
    p50_s: float
    p99_s: float
    margin_s: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from a kill (SIGKILL) until the next agent's first read, its first commit, and the count of `left_records`."""

    left_records: int
    reading_s: float
    first_commit_s: float
    all_counted_s: float


@dataclass(frozen=True, slots=True)
class Growth:
    workers: int
    partitions: int
    records: int
    fill_s: float
    seconds: float

    @property
    def per_s(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Produced:
    how: str
    records: int
    reports: int
    seconds: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """The cost of the report keys that one partition remembers: bytes a key, and times to commit and to load them."""

    keys: int
    agent_bytes: float
    peak_bytes: float
    redis_bytes: float
    commits: int
    commit_p50_ms: float
    commit_p99_ms: float
    load_s: float
    ready_s: float


@dataclass(slots=True)
class ServiceBench:
    cores: int
    counted: list[Counted] = field(default_factory=list)
    stock: Stock | None = None
    phases: list[Phases] = field(default_factory=list)
    closed: Closed | None = None
    recovery: Recovery | None = None
    remembered: Remembered | None = None
    growth: list[Growth] = field(default_factory=list)
    produced: list[Produced] = field(default_factory=list)
