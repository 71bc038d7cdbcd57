"""A gateway with several surveys: each report goes to its survey's log, and one survey does not disturb the others."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from ldpstream.gateway import served_surveys
from ldpstream.gateway.http.problems import STATUS, Problem
from ldpstream.gateway.metrics import survey_ready
from ldpstream.gateway.served_surveys import ServedSurveys
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import VERSION
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life import checks
from ldpstream.surveys.life.keeper import NotCounted
from ldpstream.surveys.life.watch import SurveyWatch
from ldpstream.surveys.signatures import statement
from tests.agents.samples import make_survey

from .gateway_rig import KEYS, SURVEY, TOKEN, FakeLog, Rig, envelopes, title

OTHER, UNKNOWN = make_survey("other"), make_survey("unknown")
SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"


# ---- requests


async def test_an_envelope_goes_to_the_log_of_its_survey() -> None:
    rig = Rig()
    other, (mine,), (others,) = rig.add(OTHER), envelopes(1), envelopes(1, survey=OTHER)
    for body in (mine, others):
        assert (await rig.post(body, idempotency_key=KEYS[0])).status_code == 202
    assert (rig.log.appended, other.appended) == ([[mine]], [[others]])
    batch = envelopes(5, survey=OTHER)
    assert (await rig.post_batch(batch)).status_code == 202
    assert (rig.log.appended, other.appended) == ([[mine]], [[others], batch])


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0), (0, 0, 0, 1)])
async def test_a_batch_of_two_surveys_is_refused_as_a_whole(order: Sequence[int]) -> None:
    rig = Rig()
    other = rig.add(OTHER)
    one_each = [envelopes(1)[0], envelopes(1, survey=OTHER)[0]]
    answer = await rig.post_batch([one_each[index] for index in order], idempotency_key=KEYS[0])
    assert (title(answer), answer.status_code) == ("several surveys", 422)
    assert "elements" not in answer.json()
    late = envelopes(1, step=0, survey=OTHER)
    assert title(await rig.post_batch([one_each[0], *late])) == "several surveys"
    assert (rig.log.appended, other.appended) == ([], [])


async def test_an_unknown_survey_is_refused_but_not_for_good() -> None:
    """Another gateway may have the survey, or this one may get it later. A batch of two surveys never counts."""
    rig, (envelope,), (unknown,) = Rig(), envelopes(1), envelopes(1, survey=UNKNOWN)
    rig.add(OTHER)
    assert (title(await rig.post(unknown)), STATUS["wrong survey"]) == ("wrong survey", 409)
    answer = await rig.post_batch([b"?", unknown])
    assert (title(answer), answer.status_code) == ("undecodable", 422)
    assert answer.json()["elements"][1] == {"index": 1, "reason": "wrong survey", "retry_after": 3600}
    answer = await rig.post_batch([unknown, unknown])
    assert (title(answer), answer.headers["retry-after"]) == ("wrong survey", "3600")
    assert title(await rig.post_batch([envelope, unknown])) == "several surveys"
    wrong_version = msgspec.msgpack.encode([VERSION + 1, OTHER.fingerprint])
    answer = await rig.post(wrong_version)
    assert (title(answer), answer.status_code) == ("unknown version", 409)
    assert rig.log.appended == []


async def test_an_unknown_survey_may_come_back_while_a_survey_file_is_broken() -> None:
    """A gateway that starts with a broken file must not make the devices of that survey forget their reports."""
    rig, (envelope,), (unknown,) = Rig(), envelopes(1), envelopes(1, survey=UNKNOWN)
    rig.surveys.incomplete = True
    for answer in (await rig.post(unknown), await rig.post_batch([unknown, unknown])):
        assert (title(answer), answer.status_code) == ("survey unavailable", 503)
    assert title(await rig.ask("GET", f"/v1/surveys/{UNKNOWN.fingerprint.hex()}")) == "survey unavailable"
    assert (await rig.post(envelope)).status_code == 202
    assert title(await rig.post(b"?")) == "undecodable"


async def test_a_survey_without_a_log_has_its_own_answer() -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    rig.surveys.put(OTHER, "")
    answer = await rig.post(envelopes(1, survey=OTHER)[0])
    assert (title(answer), answer.status_code) == ("survey unavailable", 503)
    assert title(await rig.post(envelopes(1, step=0, survey=OTHER)[0])) == "step too old"
    assert (await rig.post(envelope)).status_code == 202
    assert (await rig.ask("GET", "/ready")).status_code == 200


async def test_the_gateway_is_ready_while_one_survey_is() -> None:
    rig = Rig()
    other = rig.add(OTHER)
    rig.log.ready = False
    assert title(await rig.post(envelopes(1)[0])) == "log unavailable"
    assert (await rig.post(envelopes(1, survey=OTHER)[0])).status_code == 202
    assert (await rig.ask("GET", "/ready")).status_code == 200
    assert [(sample.labels, sample.value) for family in survey_ready.collect() for sample in family.samples] == [
        ({"survey": "sample"}, 0), ({"survey": "other"}, 1)
    ]  # fmt: skip
    other.ready = False
    assert (await rig.ask("GET", "/ready")).status_code == 503


# ---- documents


async def test_the_surveys_are_listed_and_given_by_fingerprint() -> None:
    rig = Rig()
    rig.add(OTHER)
    (listed, same) = (await rig.ask("GET", "/v1/surveys")).json()["surveys"]
    assert (listed["name"], same["name"]) == ("other", "sample")
    assert listed == {
        "name": "other", "fingerprint": OTHER.fingerprint.hex(), "title": None, "ends": "2057-09-13T01:46:40Z"
    }  # fmt: skip
    for survey in (SURVEY, OTHER):
        found = (await rig.ask("GET", f"/v1/surveys/{survey.fingerprint.hex()}")).json()
        assert (found["name"], found["canonical"]) == (survey.name, survey.canonical)
    for unknown in (UNKNOWN.fingerprint.hex(), "x", "0" * 17, "%00", SURVEY.fingerprint.hex() + "/"):
        answer = await rig.ask("GET", f"/v1/surveys/{unknown}")
        assert title(answer) == "not found"
    assert title(await rig.ask("GET", "/v1/survey")) == "not found"
    rig.surveys.remove(OTHER.fingerprint)
    assert (await rig.ask("GET", "/v1/survey")).json()["name"] == "sample"
    rig.surveys.remove(SURVEY.fingerprint)
    assert (await rig.ask("GET", "/v1/surveys")).json() == {"surveys": []}


async def test_the_documents_need_a_token() -> None:
    rig = Rig(tokens=[TOKEN])
    for path in ("/v1/surveys", f"/v1/surveys/{SURVEY.fingerprint.hex()}"):
        assert title(await rig.ask("GET", path)) == "unauthorized"
        assert (await rig.ask("GET", path, headers={"authorization": f"Bearer {TOKEN}"})).status_code == 200


# ---- files


class Folder:
    """A gateway with the surveys of a folder. A survey whose name is in `unusable` has an unusable topic."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder, self.reachable = folder, True
        for name in names:
            self.write(name)
        self.logs: dict[bytes, FakeLog] = {}
        self.unusable: set[str] = set()
        self.error: type[Exception] = UserError
        self.surveys = GatewaySurveys()
        self.served = ServedSurveys(SurveyWatch([folder]), self.surveys, self, self._check)

    def write(self, name: str, old: str = "", new: str = "") -> None:
        text = SAMPLE.read_text().replace('name = "demo"', f'name = "{name}"').replace(old, new)
        (self.folder / f"{name}.toml").write_text(text)

    def _check(self, survey: Survey) -> None:
        if survey.name in self.unusable:
            raise self.error(f"topic of {survey.name} is unusable")

    def add(self, survey: Survey) -> FakeLog:
        log = self.logs[survey.fingerprint] = FakeLog()
        return log

    def begin(self) -> None:
        self.served.begin(self.served.checks.check_all())

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def look(self) -> None:
        """Looks twice: a change counts once two looks agree."""
        for _ in range(2):
            await self.served.look()

    def states(self) -> dict[str, bool]:
        return dict(self.surveys.states())

    def named(self, name: str) -> Survey:
        (found,) = (survey for survey in self.surveys.by_fingerprint.values() if survey.name == name)
        return found


async def test_surveys_come_and_go_with_their_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "one", "two")
    folder.begin()
    assert folder.states() == {"one": True, "two": True}
    folder.write("three")
    await folder.look()
    assert folder.states() == {"one": True, "two": True, "three": True}
    gone = folder.named("one")
    (tmp_path / "one.toml").unlink()
    await folder.look()
    assert folder.states() == {"two": True, "three": True}
    assert [log.closed for key, log in folder.logs.items()] == [key == gone.fingerprint for key in folder.logs]


async def test_a_replaced_survey_is_removed_and_added(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "one")
    folder.begin()
    old = folder.named("one")
    replaces = f'replaces = "{old.fingerprint.hex()}"\n'
    folder.write("one", "step_seconds = ", f"{replaces}step_seconds = 1")
    await folder.look()
    new = folder.named("one")
    assert old.fingerprint != new.fingerprint
    assert (folder.logs[old.fingerprint].closed, folder.logs[new.fingerprint].closed) == (True, False)
    folder.write("one", "step_seconds = ", f'{replaces}title = "Screens"\nstep_seconds = 1')
    await folder.look()
    assert folder.named("one").title == "Screens"
    assert b"Screens" in folder.surveys.document(new.fingerprint.hex())
    assert len(folder.logs) == 2  # another title is no other survey


async def test_a_request_outlives_its_survey() -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    answers: list[Any] = []
    rig.log.open = False
    headers = [(b"content-type", b"application/octet-stream")]
    rig.intake.take(headers, "192.0.2.1", envelope, answers.append)
    rig.surveys.remove(SURVEY.fingerprint)
    assert title(await rig.post(envelope)) == "wrong survey"
    rig.log.release()
    assert (answers, rig.log.appended) == ([1], [[envelope]])


async def test_an_unusable_topic_stops_only_its_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "RETRY_S", 0.0)
    folder = Folder(tmp_path, "bad", "good")
    folder.unusable = {"bad"}
    with structlog.testing.capture_logs() as lines:
        folder.begin()
        assert folder.states() == {"bad": False, "good": True}
        await folder.served.look()
    assert [(line["event"], line["survey"], line["error"]) for line in lines] == [
        ("survey not served", "bad", "topic of bad is unusable")
    ] * 2
    folder.unusable.clear()
    folder.reachable = False
    await folder.served.look()
    assert folder.states() == {"bad": False, "good": True}
    folder.reachable = True
    await folder.served.look()
    assert folder.states() == {"bad": True, "good": True}


async def test_a_gateway_takes_no_reports_that_the_agents_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the agents count another survey of its name, a survey gets 503."""
    for module in (checks, served_surveys):
        monkeypatch.setattr(module, "RETRY_S", 0.0)
    folder, refused = Folder(tmp_path, "one", "two"), {"two"}

    def counted(survey: Survey) -> None:
        if survey.name in refused:
            raise NotCounted("the agents count another survey")

    monkeypatch.setattr(folder.served.checks, "_check", counted)
    monkeypatch.setattr(folder.served, "_counted", counted)
    folder.begin()
    one = folder.named("one")
    assert folder.states() == {"one": True, "two": False}
    for refuses in ({"one"}, {"two"}):
        refused.clear()
        refused |= refuses
        for _ in range(2):
            await folder.look()
        assert folder.states() == {name: name not in refuses for name in ("one", "two")}
        if "one" in refuses:
            assert folder.logs[one.fingerprint].closed
            with pytest.raises(Problem, match="survey unavailable"):
                folder.surveys.log_of(one)


async def test_a_broken_file_makes_the_surveys_incomplete_until_it_is_mended(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "one")
    folder.begin()
    assert not folder.surveys.incomplete
    (tmp_path / "two.toml").write_text("name = [")
    await folder.look()
    assert (folder.surveys.incomplete, folder.states()) == (True, {"one": True})
    folder.write("two")
    await folder.look()
    assert (folder.surveys.incomplete, folder.states()) == (False, {"one": True, "two": True})
    (tmp_path / "two.toml").write_text("name = [")
    await folder.look()
    assert (folder.surveys.incomplete, folder.states()) == (False, {"one": True, "two": True})  # its last good survey stays


async def test_the_signature_beside_the_files_is_served_and_followed(tmp_path: Path) -> None:
    """A gateway serves all signatures of a survey and the latest one, and checks none."""
    folder = Folder(tmp_path, "one", "two")
    folder.begin()
    one, path = folder.named("one"), tmp_path / "signatures.jsonl"

    def served(name: str) -> Any:
        found = json.loads(folder.surveys.document(folder.named(name).fingerprint.hex()))
        assert found["signature"] == (found["signatures"][-1] if found["signatures"] else None)
        return [one["signature"] for one in found["signatures"]]

    def line(stated: str, signature: str) -> str:
        return json.dumps({"statement": stated, "signature": signature, "toml": "x"}) + "\n"

    stated = statement(one, "x", None, datetime(2026, 1, 5, tzinfo=UTC))
    assert served("one") == []
    path.write_text(line(stated, "first") + line(stated, "last"))
    await folder.look()
    assert (served("one"), served("two")) == (["first", "last"], [])
    with structlog.testing.capture_logs() as logged:
        path.write_text("broken")
        await folder.look()
        await folder.look()
    assert [entry["event"] for entry in logged] == ["signatures cannot be read"]  # one line, as long as the reason is the same
    assert served("one") == ["first", "last"]
    path.unlink()
    await folder.look()
    assert served("one") == []
