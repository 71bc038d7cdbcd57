"""One survey with every kind of question through a real Kafka and a real Redis."""

import json
import os
import time
from pathlib import Path

import numpy as np

from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.rehearse import rehearse
from tests.small_survey import small_text

from .rig import STOPPED, Services, wait_until
from .test_pipeline import SEED, STEP_S, check_published, direct_tally, embedded

PEOPLE, STEPS = 2000, 3
MEMOS = {"name": "standard", "mechanism": "auto", "eps_inf": 4.0, "eps_1": 2.0}
ZONE = {"name": "zone", "bins": [0, 2, 5, 50], "level": [{"name": "standard", "mechanism": "OLH", "eps": 2.0}]}
BOTH = {"name": "both", "pair": ["mode", "zone"], "level": [MEMOS]}
SPACED = {"name": "spaced", "mechanism": "PS-GRR", "eps": 2.0, "every_steps": 2}
APPS = {"name": "apps", "values": ["chat", "mail", "maps", "other"], "choices": 2, "level": [MEMOS, SPACED]}
WAVE = {"name": "standard", "mechanism": "SW", "eps": 2.0}
MINUTES = {"name": "minutes", "bins": [0, 10, 20, 30, 40, 50, 60, 70, 80], "level": [WAVE]}
SURVEY = small_text(
    {"name": "mode", "values": ["car", "bus", "other"], "level": [MEMOS]}, ZONE, BOTH, APPS, MINUTES,
    name=f"questions-{os.getpid()}-{time.time_ns()}", window_steps=4, lateness_steps=4, collection="spl",
)  # fmt: skip


def people(folder: Path) -> Path:
    """A file of people who answer all questions, some of them with values that are not listed, or with no value of a set."""
    rng, lines = np.random.default_rng(3), ["person,step,mode,zone,apps,minutes"]
    for person in range(PEOPLE):
        mode, apps = ("car", "bus", "tram")[rng.integers(3)], ("chat;maps", "mail", ";", "game")[rng.integers(4)]
        lines += [
            f"p{person},{step},{mode},{rng.uniform(0, 50):.1f},{apps},{rng.uniform(0, 80):.1f}" for step in range(1, STEPS + 1)
        ]
    path = folder / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_kind_of_question_is_counted_and_published(services: Services, redis_url: str, tmp_path: Path) -> None:
    data, survey_file, sent = people(tmp_path), tmp_path / "now.toml", tmp_path / "sent.json"
    (tmp_path / "source.toml").write_text(SURVEY)
    survey = rehearse(tmp_path / "source.toml", survey_file, STEP_S, now_s=time.time())
    services.start("agent", survey_file)
    wait_until(lambda: now_ms() > survey.opens_ms(1), services.logs)
    services.finish(services.start("produce", survey_file, "--data", data, "--first-step", 1, "--seed", SEED, "--json", sent))
    produced = json.loads(sent.read_text())["produced"]
    steps = sorted({row["step"] for row in produced})
    store = RedisCountStore(survey, Settings(redis=redis_url))
    n_reports = sum(row["reports"] for row in produced)
    wait_until(lambda: sum(table.n for table in store.tables(range(steps[-1] + 1)).values()) == n_reports, services.logs)
    tables = store.tables(range(steps[-1] + 1))
    assert tables == direct_tally(survey, data, steps)
    assert not any(store.rejected().values())
    store.close()
    assert {key.attribute for key in tables} == set(range(len(survey.attributes)))
    assert n_reports > PEOPLE * STEPS

    published = services.estimate(survey_file, steps[-1])
    services.stop()
    assert all(process.returncode in (0, *STOPPED) for process in services.running)
    wanted = {f"{a.name}|{span}|{step}" for a in survey.attributes for span in ("step", "window") for step in steps}
    check_published(published, embedded(survey, data, steps), wanted)
