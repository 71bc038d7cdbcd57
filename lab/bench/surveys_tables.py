from rich.table import Table

from lab.bench.surveys_results import Role, SurveysBench
from ldpstream.output.terminal import table


def surveys_tables(result: SurveysBench) -> list[Table]:
    speed = table("Counting the same records, and seconds from a close to the estimates", "surveys", "pairs", "all s", "p50",
                  "most", texts=0)  # fmt: skip
    agents, estimators = (
        table(f"{who} of all pairs together", "surveys", "pairs", "MiB", "Kafka", "Redis", "idle cores", texts=0)
        for who in ("Agents", "Estimators")
    )
    for row in result.served:
        name = str(row.surveys), str(row.deployments)
        speed.add_row(*name, f"{row.counted_s:.1f}", *(f"{seconds:.2f}" for seconds in row.late_s))
        agents.add_row(*name, *_role(row.agents))
        estimators.add_row(*name, *_role(row.estimators))
    return [speed, agents, estimators]


def surveys_notes(result: SurveysBench) -> list[str]:
    return [
        "A pair is an agent and an estimator. all: seconds from the agents' start until they have counted all records. MiB "
        "counts a page of memory once for each process that uses it. Kafka, Redis: connections.",
        f"{result.cores} cores for broker, Redis, agents, estimators and producer. After every count, the tables were exactly "
        "what was sent.",
    ]


def _role(role: Role) -> list[str]:
    costs = role.costs
    connections = str(costs.kafka_connections), str(costs.redis_connections)
    return [f"{costs.resident_mib:.0f}", *connections, f"{role.standing_cores:.2f}"]
