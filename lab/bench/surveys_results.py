from dataclasses import dataclass, field

from lab.bench.process_costs import ProcessCosts


@dataclass(frozen=True, slots=True)
class Answer:
    """Size of an HTTP answer in bytes, and the milliseconds that the first and the second answer took."""

    bytes: int
    first_ms: float
    ms: float


@dataclass(frozen=True, slots=True)
class Role:
    """Costs of all agents, or of all estimators, of a run; cores are processor seconds a second."""

    costs: ProcessCosts
    standing_cores: float
    working_cores: float


@dataclass(frozen=True, slots=True)
class Served:
    """One run: `surveys` surveys, served by `deployments` pairs of an agent and an estimator.

    Attributes:
        read_s: seconds from the agents' start until they read all partitions.
        counted_s: seconds from the agents' start until all records are counted.
        per_s: records counted per second, from the first commit to the last; None if the first commit counted all of them.
        counted_cpu_s: processor seconds of the agents from their start until all records are counted.
        late_s: p50, p90 and maximum, over surveys and steps, of the seconds from a step's close to its publication.
    """

    surveys: int
    deployments: int
    records: int
    read_s: float
    counted_s: float
    per_s: float | None
    counted_cpu_s: float
    steps: int
    late_s: tuple[float, float, float]
    agents: Role
    estimators: Role
    agent_metrics: Answer
    metrics: Answer
    page: Answer | None
    api: Answer | None


@dataclass(frozen=True, slots=True)
class SimulatedAgent:
    """Counting of many surveys in one process without Kafka; `counted_s` is wall-clock time."""

    surveys: int
    partitions: int
    mib: float
    standing_ms: float
    records: int
    record_us: float
    counted_s: float
    connections: int


@dataclass(frozen=True, slots=True)
class SimulatedEstimator:
    """Estimates of many surveys in one process without Kafka; `round_s` is wall-clock time."""

    surveys: int
    mib: float
    turn_ms: float
    prepare_ms: float
    step_ms: float
    round_s: float
    metrics: Answer
    page: Answer
    api: Answer


@dataclass(slots=True)
class SurveysBench:
    cores: int
    served: list[Served] = field(default_factory=list)
    agent: SimulatedAgent | None = None
    estimator: SimulatedEstimator | None = None
