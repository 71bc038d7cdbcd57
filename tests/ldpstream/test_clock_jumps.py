"""The service on one machine when the machine's clock jumps: no report is lost, and no step closes early."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.gateway_logs import FolderLogs
from ldpstream.engines.folder.survey_keeper import ClockBehind, FolderKeeper
from ldpstream.publishing.process.estimator_loop import EstimatorLoop
from ldpstream.publishing.schedule import MARGIN_MS
from ldpstream.runtime.clock import SteadyClock, now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.counting import FolderCounting
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys import load_survey
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.survey import KEPT_MS
from tests.agents.samples import sound
from tests.gateway.gateway_rig import Rig, title

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "changing.toml"
SURVEY = load_survey(SAMPLE)
STEP = 50
YEAR_MS = 365 * 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with closing(DataFolder(tmp_path / "data")) as folder:
        yield folder


@pytest.mark.parametrize("jump_ms", [SURVEY.step_ms * 3 // 2, YEAR_MS, -SURVEY.step_ms * 3 // 2])
def test_a_jump_for_a_moment_refuses_no_report_for_good(folder: DataFolder, jump_ms: int) -> None:
    wall_ms, running_ms = [SURVEY.opens_ms(STEP) + 1], [0]
    clock = SteadyClock(lambda: [SURVEY], lambda: wall_ms[0], lambda: running_ms[0])
    engine = FolderEngine(folder, lambda _: None, clock)
    counting = FolderCounting(folder, lambda: [SURVEY], True, clock, KEPT_MS)
    watch = SurveyFolder([SAMPLE], clock)
    loop = EstimatorLoop(watch, engine, Event(), Settings(page_port=0), clock)

    def turn() -> None:
        for _ in range(4):
            counting.count()
            loop._turn(loop._estimators[SURVEY.fingerprint])

    def stored() -> list[object]:
        with folder.read() as db:
            return db.execute("SELECT * FROM record").fetchall() + db.execute("SELECT * FROM progress").fetchall()

    async def run() -> None:
        logs = FolderLogs(folder, lambda _: None, clock)
        rig = Rig(SURVEY, now_ms=clock)
        rig.surveys.logs[SURVEY.fingerprint] = logs.add(SURVEY)
        reports = iter([sound(SURVEY, np.random.default_rng(i), STEP, 0, 1) for i in range(3)])
        assert (await rig.post(next(reports))).status_code == 202
        turn()
        before = stored()
        wall_ms[0] += jump_ms
        refused = await rig.post(waiting := next(reports))
        assert (refused.status_code, title(refused)) == (503, "log unavailable")
        turn()
        assert stored() == before
        assert (rig.intake.ready, loop.unready is None) == (False, False)
        wall_ms[0] -= jump_ms
        assert (await rig.post(waiting)).status_code == (await rig.post(next(reports))).status_code == 202
        turn()
        assert (rig.intake.ready, loop.unready is None) == (True, True)
        wall_ms[0] = SURVEY.closes_ms(STEP) + MARGIN_MS
        running_ms[0] = wall_ms[0] - SURVEY.opens_ms(STEP) - 1
        turn()
        published = [p for p in loop._estimators[SURVEY.fingerprint].results.history() if p.span == "step"]
        assert (published[-1].step, published[-1].reports, published[-1].complete) == (STEP, 3, True)
        await logs.close()

    try:
        asyncio.run(run())
    finally:
        loop.close()


def test_a_start_with_a_clock_behind_the_newest_record_is_refused(tmp_path: Path) -> None:
    made_ms = now_ms() + 2 * YEAR_MS  # in a later calendar year on any day
    with closing(DataFolder(tmp_path / "data")) as folder:
        (log := FolderLog(folder, SURVEY, lambda: made_ms)).log_id()
        with folder.write() as db:
            log.append(db, [b"x"], b"")
        for clock_ms, accepted in ((made_ms + 1, True), (made_ms - 500, True), (made_ms - 1001, False), (0, False)):
            keeper = FolderKeeper(folder, SurveyFolder([SAMPLE], now_ms), lambda clock_ms=clock_ms: clock_ms)  # type: ignore[misc]  # an untyped default
            if accepted:
                keeper.check(SURVEY)
            else:
                with pytest.raises(ClockBehind):
                    keeper.check(SURVEY)
    command = [sys.executable, "-m", "ldpstream", "serve", str(SAMPLE), "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    found = re.search(rf"survey {SURVEY.name}: this machine's clock shows (\d{{4}})-.* newest record is from (\d{{4}})-", line)
    assert found is not None
    assert int(found[1]) < int(found[2])
