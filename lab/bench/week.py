"""A small server over days: memory and disk of `ldpstream serve`, on a clock that runs faster."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry

import ldpstream.services.process  # noqa: F401  # what `serve` imports takes memory, too
from lab.bench.service_survey import SEED, Asked, random_reports, write_survey
from lab.panels import Curve, Panel, draw_panels
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.publishing.process.survey_estimator import SurveyEstimator
from ldpstream.publishing.schedule import MARGIN_MS
from ldpstream.services.counting import FolderCounting
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys import Survey, seal
from ldpstream.surveys.survey import KEPT_MS

DAY_S, HOUR_MS = 86_400, 3_600_000
ATTRIBUTES: tuple[Asked, ...] = (("mode", 4, "L-GRR"), ("distance", 6, "L-OSUE"), ("app", 100, "L-OLH"))
AT_ONCE = 500  # envelopes in a transaction, as in a group commit of the gateway


@dataclass(slots=True)
class Week:
    devices: int
    reports: int = 0
    memory_mib: list[float] = field(default_factory=list)
    disk_mib: list[float] = field(default_factory=list)
    published: int = 0


def bench(folder: Path, devices: int, days: int, seen: Callable[[str], None] = lambda _: None) -> Week:
    survey = write_survey(folder / "survey.toml", "week", DAY_S, ATTRIBUTES)
    result, now_ms = Week(devices), survey.start_ms
    drawing = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with drawing, closing(DataFolder(folder / "data")) as data:
        log, engine = FolderLog(data, survey, lambda: now_ms), FolderEngine(data, lambda _: None, lambda: now_ms)
        counting = FolderCounting(data, lambda: [survey], True, lambda: now_ms, KEPT_MS)
        estimator = SurveyEstimator(survey, engine, CollectorRegistry(), alone=True)
        log.log_id()

        def clock() -> int:
            return now_ms + MARGIN_MS

        for hour in range(24 * days):
            if hour % 24 == 0:
                seen(f"day {hour // 24 + 1}")
            for attribute in range(len(ATTRIBUTES)):
                seed = (SEED, hour, attribute)
                envelopes = drawing.submit(_envelopes, survey, attribute, hour // 24, devices // 24, seed).result()
                for first in range(0, len(envelopes), AT_ONCE):
                    with data.write() as db:
                        for envelope, key in envelopes[first : first + AT_ONCE]:
                            log.append(db, [envelope], key)
                result.reports += len(envelopes)
            now_ms += HOUR_MS
            for _ in range(3):  # connect, append a marker, publish
                counting.count()
                estimator.turn(clock, 1)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            result.memory_mib.append(pages * 4096 / 2**20)
            result.disk_mib.append(sum(file.stat().st_size for file in data.path.iterdir()) / 2**20)
        progress = estimator.results.progress()
        result.published = 0 if progress is None else progress.next_step - progress.first_step
        estimator.close()
    return result


def _envelopes(survey: Survey, attribute: int, step: int, n: int, seed: tuple[int, ...]) -> list[tuple[bytes, bytes]]:
    rng = np.random.default_rng(seed)
    reports = random_reports(survey, attribute, n, rng)
    return [(seal(survey, attribute, 0, step, one), rng.bytes(16)) for one in np.split(reports, len(reports))]


def draw(result: Week, path: Path) -> None:
    days = [(hour + 1) / 24 for hour in range(len(result.memory_mib))]
    panels = [
        Panel("memory of the process", "days", "MiB", [Curve("resident", days, result.memory_mib)]),
        Panel("size of the data folder", "days", "MiB", [Curve("all files", days, result.disk_mib)]),
    ]
    title = f"`ldpstream serve`, {result.devices:,} devices, one report of {len(ATTRIBUTES)} attributes a day"
    draw_panels(panels, title, path)
