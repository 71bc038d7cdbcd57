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
    """Costs of all agents, or of all estimators, of a run.

    Attributes:
        costs: memory, threads and connections after the last step.
        standing_cores: processor seconds a second while no record arrives and no step closes.
        working_cores: processor seconds a second while records arrive and steps close.
    """

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
    """Counting of many surveys in one process without Kafka.

    Attributes:
        surveys, partitions: number of surveys, and of all their partitions.
        mib: memory that a survey adds, in MiB.
        standing_ms: processor time that a survey needs in a second without records, in ms.
        records: number of records counted.
        record_us: processor time of a record, in µs, with its share of the commits.
        counted_s: wall-clock seconds from the first chunk until all counts are committed.
        connections: number of connections to Redis.
    """

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
    """Estimates of many surveys in one process without Kafka.

    Attributes:
        surveys: number of surveys.
        mib: memory that a survey adds, in MiB.
        turn_ms: processor time of a survey's turn without a due step, in ms.
        prepare_ms: processor time for the privacy losses of a survey's next step, in ms.
        step_ms: processor time of a survey's turn that publishes a step, in ms.
        round_s: wall-clock seconds until one step of every survey is published, if all these steps close at the same time.
        metrics, page, api: answers of the servers.
    """

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
