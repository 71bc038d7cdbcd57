"""The watch logs each change once and counts the broken files."""

from pathlib import Path

import structlog

from ldpstream.surveys.life.watch import SurveyWatch, survey_files

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"


def counted(state: str) -> float:
    (metric,) = survey_files.collect()  # not the whole registry: other metrics may call objects of other tests
    (value,) = [float(sample.value) for sample in metric.samples if sample.labels == {"state": state}]
    return value


def test_log_and_metric(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_bytes(SAMPLE.read_bytes())
    with structlog.testing.capture_logs() as lines:
        watch = SurveyWatch([tmp_path])
        assert (counted("served"), counted("broken")) == (1, 0)
        (tmp_path / "other.toml").write_text("name = [")
        for _ in range(3):
            watch.look()
        assert (counted("served"), counted("broken")) == (1, 1)
        (tmp_path / "other.toml").write_text(SAMPLE.read_text().replace('name = "demo"', 'name = "other"'))
        for _ in range(3):
            watch.look()
        assert (counted("served"), counted("broken")) == (2, 0)
        (tmp_path / "demo.toml").unlink()
        for _ in range(3):
            watch.look()
        assert (counted("served"), counted("broken")) == (1, 0)
    assert [line["event"] for line in lines] == [
        "survey file broken", "survey file no longer broken", "survey added", "survey removed"
    ]  # fmt: skip
    assert lines[0]["file"] == str(tmp_path / "other.toml")
