"""The load of the benchmark of the service has the counts that it claims."""

from pathlib import Path

import pytest

from lab.bench.service_load import make_load
from lab.bench.service_survey import ATTRIBUTES, write_survey
from ldpstream.agents import Record, tally


@pytest.mark.parametrize("envelope_bytes", [0, 2000])
@pytest.mark.parametrize("attributes", [(0, 1), (2,)])
def test_a_load_has_the_counts_that_it_claims(tmp_path: Path, envelope_bytes: int, attributes: tuple[int, ...]) -> None:
    survey = write_survey(tmp_path / "survey.toml", "load", 86_400, ATTRIBUTES)
    load = make_load(survey, attributes, envelope_bytes, 30_000 if not envelope_bytes else 100)
    log = load.pool * load.rounds
    added = tally(survey, [Record(i, survey.start_ms, envelope) for i, envelope in enumerate(log)])
    assert not added.rejected
    assert (load.counts, load.reports) == (added.counts, added.reports)
    assert (load.records, load.bytes) == (len(log), sum(map(len, log)))
    assert {key.attribute for key in load.counts} == set(attributes)
    assert load.reports / load.records == 1 if not envelope_bytes else load.reports > 10 * load.records
