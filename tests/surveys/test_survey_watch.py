"""The watch counts the broken files."""

from pathlib import Path

from ldpstream.surveys.life.watch import SurveyWatch, survey_files

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"


def counted(state: str) -> float:
    (metric,) = survey_files.collect()  # not the whole registry: other metrics may call objects of other tests
    (value,) = [float(sample.value) for sample in metric.samples if sample.labels == {"state": state}]
    return value


def test_the_metric_counts_broken_files(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_bytes(SAMPLE.read_bytes())
    watch = SurveyWatch([tmp_path])
    assert (counted("served"), counted("broken")) == (1, 0)
    for text, states in (("name = [", (1, 1)), (SAMPLE.read_text().replace('name = "demo"', 'name = "other"'), (2, 0))):
        (tmp_path / "other.toml").write_text(text)
        for _ in range(3):
            watch.look()
        assert (counted("served"), counted("broken")) == states
