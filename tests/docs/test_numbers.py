"""Compares the numbers in the documents with the code: limits, times, defaults, ports, exit statuses."""

import re
import stat
from pathlib import Path

import pytest
import yaml

from lab.audit.audit import EPS, audited_mechanism, losses
from lab.audit.spaced import CLAIMS
from ldpstream.agents import app as agent
from ldpstream.agents import counting, stall_detector
from ldpstream.agents.counting import COMMIT_INTERVAL_S
from ldpstream.commands import service as service_commands
from ldpstream.device import Device
from ldpstream.device.files.memo_file import MAX_DROPPED
from ldpstream.engines.kafka import redis_connection, redis_results, topics
from ldpstream.gateway import credentials
from ldpstream.gateway.http import bodies, problems
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.families import local_hashing
from ldpstream.mechanisms.registry import portable
from ldpstream.mechanisms.wording import up
from ldpstream.output.forecast_tables import points
from ldpstream.planning.forecast import forecast
from ldpstream.publishing.process.prometheus_publisher import MAX_LISTED, TOP_VALUES
from ldpstream.runtime import process
from ldpstream.runtime.errors import LASTING
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import envelope, load_survey, survey
from tests.agents.samples import make_survey
from tests.docs.reference import openapi

ROOT = Path(__file__).parents[2]
PLAIN = {path.name: " ".join(path.read_text().split()) for path in (ROOT / "docs").rglob("*.md")}  # README.md: the index
DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}
WORDS = {2: "two", 3: "three"}


def spaced(number: float) -> str:
    """Formats a number as in 1 000 000."""
    return f"{number:,.0f}".replace(",", " ")


def minutes(seconds: float) -> str:
    return f"{WORDS[round(seconds / 60)]} minutes"


STALLED = minutes(stall_detector.STALLED_AFTER_S + stall_detector.WATCHDOG_S)
SAID = [
    ("wire_format.md", f"number of reports, 1 to {spaced(envelope.MAX_ENVELOPE_REPORTS)}"),
    ("wire_format.md", f"An envelope is at most {spaced(envelope.MAX_ENVELOPE_BYTES)} bytes."),
    ("write_a_device.md", f"`{bodies.BATCH}`"),
    ("write_a_device.md", f"Content-Type: {bodies.ENVELOPE}"),
    ("write_a_device.md", f"the first {problems.MAX_ELEMENTS} of them"),
    ("settings.md", f"gives one line and exit status {LASTING}"),
    ("capacity.md", f"for each of the last `retention_steps` steps ({survey.KEPT_STEPS} by default)"),
    ("metrics.md", f"(at most {MAX_LISTED} values an attribute). Otherwise the {TOP_VALUES} most frequent values"),
    ("counting.md", f"A lease of {redis_results.LEASE_MS // 1000} s in Redis"),
    ("counting.md", f"must be answered within {redis_connection.TIMEOUT_S:.0f} s"),
    ("counting.md", f"With the interval of {COMMIT_INTERVAL_S} s"),
    ("counting.md", f"more than {survey.MAX_OPEN_BYTES >> 20} MiB for all tables"),
    ("counting.md", f"up to {counting.MAX_UNWRITTEN_BYTES >> 20} MiB of tables and report keys that wait to be written"),
    ("counting.md", f"the process ends after {STALLED} (exit status 1)"),
    ("counting.md", "(two, at the start) the process ends (exit status 1)"),
    ("counting.md", f"prints one line and ends with exit status {LASTING}"),
    ("choose.md", f"lose {up(mechanism('L-OSUE', 100, eps_inf=2.0, eps_1=1.0).eps_sequence(2).value)} nats"),
    ("kubernetes.md", f"one of at least {credentials.MIN_TOKEN} characters a line"),
    ("reading.md", f"The service keeps the last {survey.KEPT_STEPS} steps"),
    ("reading.md", f"http://{DEFAULTS['page_host']}:{DEFAULTS['page_port']}/"),
]


@pytest.mark.parametrize(("document", "sentence"), SAID, ids=[f"{document} {text[-40:]}" for document, text in SAID])
def test_a_documented_number_is_the_codes(document: str, sentence: str) -> None:
    assert sentence in PLAIN[document]


def test_derived_numbers_are_the_codes() -> None:
    assert 2 * 8 * local_hashing.AUTO_TABLE <= survey.MAX_OPEN_BYTES  # two open steps
    assert minutes(stall_detector.WATCHDOG_S) == "two minutes"  # docs/explained/counting.md gives two minutes at the start
    stopped_s = max(agent.STOP_S, service_commands.STOP_S) + process.ALARM_AFTER_S
    assert stopped_s < 10  # docs/howto/operate.md promises an end within 10 seconds


def test_a_devices_file_mode_and_envelopes_are_documented(tmp_path: Path) -> None:
    asked = make_survey()
    device = Device(asked, tmp_path / "file", consent="simulated")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == int(re.findall(r"mode (0\d+)", PLAIN["device.md"])[0], 8)
    assert (
        "the `lateness_steps` + 2 latest settled envelopes and up to `lateness_steps` + 26 that are not settled"
        in PLAIN["device.md"]
    )
    for name in ("mode", "zone"):
        for step in range(40):
            device.report(name, 0, step)
    assert len(device.waiting()) == asked.lateness_steps + 26
    assert f"{MAX_DROPPED:_} dropped steps".replace("_", " ") in PLAIN["write_a_device.md"]


def test_the_topics_have_the_documented_settings() -> None:
    asked = make_survey()
    specs = topics._specs(Settings(), asked)
    kept_ms = int(specs["reports"][1]["retention.ms"])
    assert kept_ms == 7 * 86_400_000  # a week
    rows = re.findall(r"\| `ldpstream\.NAME\.(\w+)` \| (`[^|]*?) \|", PLAIN["security.md"])
    stated = {topic: dict(re.findall(r"`([a-z.]+)=(\w+)`", settings)) for topic, settings in rows}
    assert set(stated) == set(specs)
    for topic, settings in stated.items():
        assert settings
        assert settings.items() <= specs[topic][1].items()
    assert "`min.insync.replicas` to ⌊replication/2⌋ + 1" in PLAIN["counting.md"]
    for replicas, in_sync in ((1, 1), (2, 2), (3, 2), (5, 3)):
        made = topics._specs(Settings(replication=replicas), asked)["reports"][1]
        assert made["min.insync.replicas"] == str(in_sync)


def test_the_documented_rights_in_kafka_are_those_checked() -> None:
    rows = re.findall(
        r"\| (producer|gateway|agent|estimator) \| topic \| `ldpstream\.NAME\.(\w+)` \| ([\w, ]+) \|", PLAIN["security.md"]
    )
    stated: dict[str, dict[str, set[str]]] = {}
    for role, topic, operations in rows:
        names = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() for name in operations.split(", ")}
        stated.setdefault(role, {})[topic] = names
    assert stated == topics.RIGHTS


def test_the_apis_errors_are_documented() -> None:
    document = openapi()
    answers = {int(status) for path in document["paths"].values() for status in path["get"]["responses"]} - {200, 304}
    (errors,) = re.findall(r"Errors are problem documents.*", (ROOT / "docs" / "reference" / "api.md").read_text(), re.DOTALL)
    assert {int(status) for status in re.findall(r"\b[45]\d\d\b", errors)} == answers


ALERTS = {
    "LdpstreamNoReports": ("For a quarter of an hour", ("== 0", "for 15m")),
    "LdpstreamLagGrowing": ("More than 10 000 records wait", ("> 10000", "10m")),
    "LdpstreamGatewayRefuses": ("more than one request in twenty", ("> 0.05", "10m")),
    "LdpstreamRejectedRatio": ("More than one envelope in twenty", ("> 0.05", "15m")),
    "LdpstreamCommitsRefused": ("more than three times in a quarter of an hour", ("[15m]", "> 3")),
    "LdpstreamEstimateOverdue": ("is more than two minutes late", ("> 120", "1m")),
    "LdpstreamPrivacyBudget": ("more than 80 % of `eps_lifetime`", ("> 0.8", "5m")),
    "LdpstreamPoorFit": ("(|`ldpstream_fit_z`| > 6)", ("> 6", "< -6")),
    "LdpstreamDrift": ("5.7e-7", ("< 5.7e-7",)),
}


def test_the_alerts_have_the_documented_thresholds() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    found = {rule["alert"]: f"{rule['expr']} for {rule.get('for', '0m')}" for rule in rules}
    sections = dict(re.findall(r"## (Ldpstream\w+) (.*?)(?=## |\Z)", PLAIN["alerts.md"]))
    for alert, (sentence, thresholds) in ALERTS.items():
        assert sentence in sections[alert], alert
        assert all(threshold in found[alert] for threshold in thresholds), alert


# ---- the table of exact calibration, and other numbers that are fast to compute


def test_the_table_of_variances() -> None:
    text = (ROOT / "docs" / "evidence" / "choices.md").read_text()
    rows = re.findall(r"(?m)^\| (\d+) \| (\d), (\d) \| ([\d.]+), ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text)
    assert len(rows) == 5
    for k, eps_inf, eps_1, *stated in rows:
        paper, exact, unary, hashed = [
            mechanism(name, int(k), eps_inf=float(eps_inf), eps_1=float(eps_1), calibration=calibration)
            for name, calibration in (("L-GRR", "paper"), ("L-GRR", "exact"), ("L-OSUE", None), ("L-OLH", None))
        ]
        made = [paper.eps_1, *(m.variance() for m in (paper, exact, unary, hashed))]
        assert [float(text) for text in stated] == [pytest.approx(value, rel=0.005, abs=5e-4) for value in made[:1]] + [
            pytest.approx(value, rel=0.006) for value in made[1:]
        ]


def test_the_number_of_attacks() -> None:
    """The default of `python -m lab.audit`: two code paths of each mechanism at each ε, and a spaced level."""
    audited = [audited_mechanism(name, eps) for name in portable() for eps in EPS]
    n = 2 * sum(len(losses(m)) for m in audited) + len(CLAIMS)
    assert f"None of the {n} lower bounds" in PLAIN["privacy.md"]
    assert f"[{n} attacks]" in PLAIN["README.md"]


def test_the_forecast_of_the_commute_survey() -> None:
    text = (ROOT / "docs" / "howto" / "choose.md").read_text()
    for row in forecast(load_survey(ROOT / "surveys" / "samples" / "commute.toml"), 5000, 0.02):
        for span, name in (("step", "a step"), ("window", "8 steps")):
            found = row.spans[span]
            numbers = (points(found.half_width), f"{found.people:,}")
            assert f"| {row.attribute}, {name} | {' | '.join(numbers)} |" in text
