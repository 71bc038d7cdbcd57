from dataclasses import dataclass, field

from lab.bench.process_costs import ProcessCosts


@dataclass(frozen=True, slots=True)
class Role:
    """Costs of all agents, or of all estimators, of a run; `standing_cores` are processor seconds a second without records."""

    costs: ProcessCosts
    standing_cores: float


@dataclass(frozen=True, slots=True)
class Served:
    """One run: `surveys` surveys, served by `deployments` pairs of an agent and an estimator.

    Attributes:
        counted_s: seconds from the agents' start until all records are counted.
        late_s: p50 and maximum, over surveys and steps, of the seconds from a step's close to its publication.
    """

    surveys: int
    deployments: int
    records: int
    counted_s: float
    steps: int
    late_s: tuple[float, float]
    agents: Role
    estimators: Role


@dataclass(slots=True)
class SurveysBench:
    cores: int
    served: list[Served] = field(default_factory=list)
