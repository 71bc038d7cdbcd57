"""Which candidates people have: `ldpstream found`, its power and its false alarms. All seeds are fixed."""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import ndtri
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.estimators import matrix_inversion
from ldpstream.estimators.estimate import Estimate
from ldpstream.mechanisms import mechanism
from ldpstream.output.outputs import OutputError
from ldpstream.planning.candidates import FALSE_ALARM, CandidatesError, least_found
from ldpstream.planning.found_values import HistogramFile, found_values, read_shares
from ldpstream.surveys import parse_survey

from .test_candidates import LABELS, PAIR, SURVEY, made


def histogram(
    labels: Sequence[str], *columns: Sequence[float | None], attribute: str = "mode", reports: int = 9
) -> HistogramFile:
    """A histogram of survey travel-2; `columns` are the shares, their errors, and the ends of their intervals."""
    shares, errors, low, high = map(list, columns)
    return HistogramFile(
        survey="travel-2", attribute=attribute, step=0, span="step", cohort=None, complete=True, estimator="mi", post="none",
        confidence=0.95, reports=reports, labels=list(labels), frequencies=shares, standard_errors=errors, low=low, high=high,
    )  # fmt: skip


def shares_of(estimate: Estimate) -> HistogramFile:
    columns = (estimate.frequencies, estimate.standard_errors, *estimate.interval())
    labels = ["car", "other", *LABELS, *(f"{i}" for i in range(20))]
    return histogram(labels, *(column.tolist() for column in columns), reports=estimate.n)


def test_the_least_share_is_found_and_others_are_not() -> None:
    """300 runs of 30 candidates, five standard errors of a share. Control: half of the least share is found less often."""
    runs, people, k = 300, 4000, 32
    m = mechanism("OLH", k, eps=2.0)
    labels = [*LABELS, *(f"{i}" for i in range(20))]
    old = parse_survey(tomllib.loads(SURVEY.replace('"bus", "bicycle", ', "")))
    one = made(SURVEY.replace('"bus", "bicycle", ', ""), labels)
    least = least_found(m, 1, people, len(labels))
    assert least is not None
    rng, seen = np.random.default_rng(33), {}
    for share in (0.0, least / 2, least):
        shares = np.zeros(k)
        shares[:3] = 0.7, 0.3 - share, share
        hits = alarms = 0
        for _ in range(runs):
            values = np.repeat(np.arange(k), rng.multinomial(people, shares))
            found, tested = found_values(old, one.survey, shares_of(matrix_inversion(m, m.tabulate(m.report(values, rng)))))
            names = {value.label for value in found}
            assert tested == len(labels)
            hits += LABELS[0] in names
            alarms += bool(names - {LABELS[0]})
        seen[share] = hits / runs, alarms / runs

    def near(rate: float, chance: float) -> bool:
        return abs(rate - chance) < 5 * math.sqrt(chance * (1 - chance) / runs)

    assert seen[least][0] > 0.9 - 5 * math.sqrt(0.09 / runs)
    assert not near(seen[least / 2][0], 0.9)
    assert seen[0.0][1] < FALSE_ALARM + 5 * math.sqrt(FALSE_ALARM / runs)
    assert seen[least][1] < 2 * FALSE_ALARM + 5 * math.sqrt(FALSE_ALARM / runs)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"survey": "travel"}, "is of survey travel, expected travel-2"),
        ({"estimator": "eb"}, "has estimator=eb and post=none; ask for the histogram with estimator=mi"),
        ({"post": "norm-sub"}, "has estimator=mi and post=norm-sub"),
        ({"standard_errors": [None] * 14}, "step 0 has no shares with intervals"),
        ({"low": []}, "has 14 labels, and not as many of all numbers"),
        ({"labels": 5}, "not a histogram of the API as JSON"),
    ],
)
def test_a_wrong_histogram_is_refused_in_one_line(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    right = histogram(["x"] * 14, *[[0.1] * 14] * 4)
    survey, path = made().survey, tmp_path / "found.json"
    path.write_bytes(msgspec.json.encode(right))
    assert read_shares(path, survey) == right
    path.write_bytes(msgspec.json.encode(msgspec.to_builtins(right) | changed))
    with pytest.raises(CandidatesError) as refused:
        read_shares(path, survey)
    assert str(refused.value).startswith(str(path))
    assert told in str(refused.value)


@pytest.mark.parametrize("raw", [b'{"survey": "\xff"}', b'{"x": ' + b"[" * 100_000], ids=["not UTF-8", "nested"])
def test_a_file_that_is_no_json_is_refused_in_one_line(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_bytes(raw)
    with pytest.raises(CandidatesError, match="not a histogram of the API as JSON"):
        read_shares(path, made().survey)


def test_the_threshold_counts_all_new_values() -> None:
    z = float(-ndtri(0.05 / 10))
    old = parse_survey(tomllib.loads(SURVEY))
    one = made()
    labels = one.survey.attributes[0].labels
    share = [0.0] * len(labels)
    share[3] = 1.01 * z
    shares = histogram(labels, share, [1.0] * 14, share, share)
    assert [one.label for one in found_values(old, one.survey, shares)[0]] == ["candidate 0"]
    less = [0.99 * x for x in share]
    assert found_values(old, one.survey, histogram(labels, less, [1.0] * 14, less, less)) == ([], 10)
    renamed = parse_survey(
        tomllib.loads(one.text.replace('"bus"', '"coach"').replace("[[attribute.", 'aliases = { bus = "coach" }\n[[attribute.'))
    )
    assert found_values(old, renamed, shares)[1] == 10
    with pytest.raises(CandidatesError, match="has no value that survey travel-2 does not list"):
        found_values(one.survey, one.survey, shares)
    with pytest.raises(CandidatesError, match="has 0 of 10 candidates; ask for it without top"):
        found_values(old, one.survey, msgspec.structs.replace(shares, labels=["car"] * 14))


def test_found_does_not_overwrite_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("travel.toml").write_text(SURVEY)
    Path("travel-2.toml").write_text(made().text)
    for read in ("travel.toml", "travel-2.toml"):
        refused = CliRunner().invoke(app, ["found", "travel.toml", "travel-2.toml", "found.json", "--out", f"./{read}"])
        assert isinstance(refused.exception, OutputError)
        assert str(refused.exception) == f"--out {read}: the command reads this file; give another one"


def test_cells_of_a_pair_are_no_candidates() -> None:
    one = made(SURVEY + PAIR)
    shares = histogram(["x"], *[[0.1]] * 4, attribute="both")
    with pytest.raises(CandidatesError, match="both is a pair; ask for the histogram of the attribute with the candidates"):
        found_values(parse_survey(tomllib.loads(SURVEY + PAIR)), one.survey, shares)
