"""The surveys that an agent starts, retries and stops. The test's `check` and dispatcher stand in for Kafka and Redis."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
import structlog

from ldpstream.agents.app import AgentApp
from ldpstream.agents.counted_surveys import CountedSurveys
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import Unreachable, UserError
from ldpstream.surveys.life import checks
from ldpstream.surveys.life.watch import SurveyWatch

from .test_fair_shares import FakeCounting, settle

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"


class Rig:
    """The surveys `bad` and `good` of a folder. A survey whose name is in `unusable` has unusable topics."""

    def __init__(self, folder: Path) -> None:
        for name in ("bad", "good"):
            self.write(folder, name)
        self.watch, self.unusable, self.fakes = SurveyWatch([folder]), {"bad"}, dict[str, FakeCounting]()
        self.forgotten = list[Survey]()
        self.dispatcher = Dispatcher(self._make, lambda *_: None, self._failed)
        self.surveys = CountedSurveys(self.watch, self.dispatcher, self._check, list, self._subscribe, self.forgotten.append)
        self.topics = set[str]()
        self.error: Exception | None = None

    @staticmethod
    def write(folder: Path, name: str) -> None:
        (folder / f"{name}.toml").write_text(SAMPLE.read_text().replace('name = "demo"', f'name = "{name}"'))

    def _make(self, survey: Survey) -> Any:
        return self.fakes.setdefault(survey.name, FakeCounting(survey.name, []))

    def _check(self, survey: Survey) -> None:
        if survey.name in self.unusable:
            raise self.error or UserError(f"topic of {survey.name} is unusable")

    async def _subscribe(self, topics: set[str]) -> None:
        self.topics = topics

    async def _failed(self, survey: Survey, error: Exception) -> None:
        await self.surveys.give_up(survey)


async def counting(folder: Path) -> Rig:
    """A rig that counts both surveys."""
    rig = Rig(folder)
    rig.unusable.clear()
    rig.surveys.check()
    await rig.surveys._reconcile(checked=True)
    return rig


def topic(name: str) -> str:
    return f"ldpstream.{name}.reports"


async def test_an_unusable_survey_is_not_counted_however_long_the_start_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "RETRY_S", 0.0)
    rig = Rig(tmp_path)
    assert rig.surveys.check() == {topic("good")}
    await rig.surveys._reconcile(checked=True)
    assert rig.topics == {topic("good")}
    rig.unusable.clear()
    await rig.surveys._reconcile()
    assert rig.topics == {topic("bad"), topic("good")}


def test_an_unreachable_broker_comes_before_other_errors(tmp_path: Path) -> None:
    away = type("Away", (UserError, Unreachable), {})
    rig = Rig(tmp_path)
    errors = {"bad": UserError("topic of bad is unusable"), "good": away("no broker")}
    check = patch.object(rig.surveys._checks, "_check", lambda survey: raise_(errors[survey.name]))
    with check, pytest.raises(away, match="no broker"):
        rig.surveys.check()


def raise_(error: Exception) -> NoReturn:
    raise error


def test_unusable_topics_at_the_start_are_one_error_and_no_log_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.unusable.add("good")
    with structlog.testing.capture_logs() as lines, pytest.raises(UserError, match="topic of bad is unusable"):
        rig.surveys.check()
    assert lines == []


async def test_an_error_in_the_last_commit_of_a_survey_ends_only_this_survey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "RETRY_S", 0.0)
    rig = await counting(tmp_path)

    rig.dispatcher.take(topic("bad"), Chunk(0, 1, 99, []))
    with patch.object(rig.fakes["bad"], "close", side_effect=RuntimeError("the store broke")):
        await settle()
    assert rig.dispatcher.topics == {topic("good")}
    await rig.surveys._reconcile()
    assert topic("good") in rig.topics
    await rig.dispatcher.close()


async def test_a_replaced_survey_waits_until_the_old_one_of_its_name_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await counting(tmp_path)
    closing = asyncio.Event()
    monkeypatch.setattr(rig.fakes["bad"], "close", closing.wait)
    old = next(text.survey for text in rig.watch.surveys.values() if text.survey.name == "bad")
    giving_up = asyncio.create_task(rig.surveys.give_up(old))
    await asyncio.sleep(0)
    text = (tmp_path / "bad.toml").read_text()
    (tmp_path / "bad.toml").write_text(
        f'replaces = "{old.fingerprint.hex()}"\n' + text.replace("step_seconds = ", "step_seconds = 1")
    )
    for _ in range(2):
        rig.watch.look()
    assert old.fingerprint not in rig.watch.surveys
    await rig.surveys._reconcile()
    closing.set()
    await giving_up
    assert rig.dispatcher.topics == {topic("good")}
    await rig.surveys._reconcile()
    assert rig.dispatcher.topics == {topic("bad"), topic("good")}
    await rig.dispatcher.close()


async def test_an_agent_is_not_ready_before_it_has_joined_its_group() -> None:
    app: Any = AgentApp(SurveyWatch([SAMPLE]), Settings())
    assert app.unready == "starting"
    app.dispatcher = SimpleNamespace(unready=None, n_partitions=0, store_answers=True)
    assert app.unready == "starting"
    app.surveys.started = True
    assert app.unready is None
