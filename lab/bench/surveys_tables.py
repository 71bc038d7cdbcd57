from rich.table import Table

from lab.bench.mechanisms_tables import rate
from lab.bench.surveys_results import Answer, Role, Served, SurveysBench
from ldpstream.terminal import NONE, table


def surveys_tables(result: SurveysBench) -> list[Table]:
    speed = table("Counting the same records, and seconds from a close to the estimates", "surveys", "pairs", "read s",
                  "all s", "CPU s", "rec./s", "p50", "p90", "most", texts=0)  # fmt: skip
    agents, estimators = (
        table(f"{who} of all pairs together; cores idle, and while steps close", "surveys", "pairs", "MiB", "shared", "threads",
              "Kafka", "Redis", "idle", "busy", texts=0)
        for who in ("Agents", "Estimators")
    )  # fmt: skip
    answers = table("Answers of one agent and of one estimator", "what", "surveys", "pairs", "kB", "first ms", "ms")
    for row in result.served:
        name, per_s = (str(row.surveys), str(row.deployments)), NONE if row.per_s is None else rate(row.per_s)
        counting = f"{row.read_s:.1f}", f"{row.counted_s:.1f}", f"{row.counted_cpu_s:.1f}", per_s
        speed.add_row(*name, *counting, *(f"{seconds:.2f}" for seconds in row.late_s))
        agents.add_row(*name, *_role(row.agents))
        estimators.add_row(*name, *_role(row.estimators))
        for what, answer in _answers(row):
            if answer is not None:
                answers.add_row(what, *name, *_answer(answer))
    return [speed, agents, estimators, answers, *_simulated(result)]


def _simulated(result: SurveysBench) -> list[Table]:
    agent, estimator = result.agent, result.estimator
    if agent is None or estimator is None:
        return []
    shown = table(f"{agent.surveys} surveys in one process without Kafka", "what", "value")
    for what, value in (
        ("agent: MiB a survey", f"{agent.mib:.2f}"),
        ("agent: CPU ms a survey and second without records", f"{agent.standing_ms:.2f}"),
        (f"agent: CPU µs a record, of {agent.records:,}", f"{agent.record_us:.1f}"),
        ("agent: seconds until all are committed", f"{agent.counted_s:.1f}"),
        ("agent: connections to Redis", str(agent.connections)),
        ("estimator: MiB a survey", f"{estimator.mib:.2f}"),
        ("estimator: CPU ms a turn without a due step", f"{estimator.turn_ms:.2f}"),
        ("estimator: CPU ms to prepare a survey's step", f"{estimator.prepare_ms:.1f}"),
        ("estimator: CPU ms a turn with a step", f"{estimator.step_ms:.1f}"),
        ("estimator: seconds until a step of all surveys is published", f"{estimator.round_s:.1f}"),
    ):  # fmt: skip
        shown.add_row(what, value)
    for what, answer in (("/metrics", estimator.metrics), ("/", estimator.page), ("/api/v1/surveys", estimator.api)):
        kb, first_ms, ms = _answer(answer)
        shown.add_row(f"estimator: {what}: kB", kb)
        shown.add_row(f"estimator: {what}: ms, first and second answer", f"{first_ms}, {ms}")
    return [shown]


def surveys_notes(result: SurveysBench) -> list[str]:
    return [
        "A pair is an agent and an estimator. read, all: seconds from the agents' start until they read all partitions, and "
        "until they have counted all records. MiB counts a page of memory once for each process that uses it; shared divides "
        "the page among them. Kafka, Redis: connections.",
        f"{result.cores} cores for broker, Redis, agents, estimators and producer. After every count, the tables were exactly "
        "what was sent.",
    ]


def _role(role: Role) -> list[str]:
    costs = role.costs
    connections = str(costs.kafka_connections), str(costs.redis_connections)
    memory = f"{costs.resident_mib:.0f}", f"{costs.share_mib:.0f}"
    return [*memory, str(costs.threads), *connections, f"{role.standing_cores:.2f}", f"{role.working_cores:.2f}"]


def _answers(row: Served) -> list[tuple[str, Answer | None]]:
    return [
        ("agent /metrics", row.agent_metrics), ("estimator /metrics", row.metrics), ("estimator /", row.page),
        ("estimator /api/v1/surveys", row.api),
    ]  # fmt: skip


def _answer(answer: Answer) -> list[str]:
    return [f"{answer.bytes / 1000:,.1f}", f"{answer.first_ms:.0f}", f"{answer.ms:.0f}"]
