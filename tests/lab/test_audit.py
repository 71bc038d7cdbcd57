"""The audit's bounds are close to a mechanism's loss, never exceed the claim, and expose every broken mechanism.

All seeds are fixed, also those of devices. With another seed, an audit of the correct mechanisms would report a bound above a
claim with probability at most 0.001. This file contains four runs of the audit.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.audit.__main__ import app
from lab.audit.audit import EPS, K, Report, attack, audit, audited_mechanism, supports
from lab.audit.audit_tables import audit_tables, audit_verdict
from lab.audit.clopper_pearson import loss_bound
from lab.audit.events import SetEvents, events
from lab.audit.samplers import CodePath, Sampler, code_paths, one_member, vectorised
from ldpstream.mechanisms import LONGITUDINAL, NAMES, NUMERIC, ONE_TIME
from ldpstream.mechanisms.families.padded_sampling import PaddedSampling
from ldpstream.mechanisms.registry import registered
from ldpstream.mechanisms.sets import set_codes

AUDITED = registered()
MEMOIZED = len(LONGITUDINAL) + 1  # the mechanisms of sets are a one-time and a memoized one


# ---- Clopper-Pearson


def test_a_loss_bound_is_wrong_at_most_as_often_as_alpha() -> None:
    """The test sums exactly over all outcomes of 40 tosses with probability 0.6 and 40 tosses with probability 0.2."""
    n, p, q, alpha = 40, 0.6, 0.2, 0.05
    x = np.arange(n + 1)
    of_p, of_q = (np.array([math.comb(n, i) * r**i * (1 - r) ** (n - i) for i in x]) for r in (p, q))
    bound = loss_bound(x[:, None], x[None, :], n, alpha)
    wrong = (of_p[:, None] * of_q * (bound > math.log(p / q))).sum()
    assert 0 < wrong <= alpha


@pytest.mark.parametrize("name", NAMES)
def test_supports_add_up_to_the_servers_counts(name: str) -> None:
    m = audited_mechanism(name, 1.0)
    reports = vectorised(m, 8, 500, 1, np.random.default_rng(1)).reports[0]
    assert np.array_equal(supports(m, reports).sum(axis=0), m.support(m.tabulate(reports)))


# ---- the audit


@pytest.fixture(scope="module")
def small(seeded_devices: None) -> Report:
    """A small audit of every mechanism on both code paths, and of a spaced level on whole devices."""
    return audit(AUDITED, code_paths(8000, K), 20260601, lambda _: None, devices=500)


def test_no_bound_is_above_its_claim(small: Report) -> None:
    assert [f for f in small.findings if not f.kept] == []
    assert len(small.rows) == len(AUDITED) * len(EPS)
    assert small.n_bounds == len(small.findings) == 2 * 4 * (len(ONE_TIME) + len(NUMERIC) + 1 + 3 * MEMOIZED) + 3


def test_the_bounds_of_a_spaced_level_come_near_the_claims(small: Report) -> None:
    """Each of 500 devices has one of three sequences of values. Controls: `test_every_control_is_caught`."""
    assert [(f.loss, f.claimed, f.n) for f in small.spaced] == [
        ("eps_window", 1.0, 500), ("eps_sequence", 2.0, 500), ("eps_lifetime", 3.0, 500),
    ]  # fmt: skip
    assert all(0.4 * f.claimed < f.bound <= f.claimed for f in small.spaced)


def test_every_control_is_caught(small: Report) -> None:
    assert [c for c in small.controls if not c.caught] == []
    assert {c.mechanism.split("(")[0] for c in small.controls} == set(AUDITED)
    assert {c.fault for c in small.controls} == {
        "last bit never randomized",
        "p and q of 1.5 ε",
        "memo drawn again for each of 10 reports",
        "reports at every step",
        "makes up for a missed report",
        "reports more often than its lifetime allows",
        "the last dummy tells that there are no values",
        "always the second of two values",
    }
    assert small.passed


@pytest.mark.parametrize("size", [0, 2])
def test_sets_of_one_value_would_not_show_what_whole_sets_show(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the audited sets: the same faults pass an audit of the sets of single values."""
    m, rng = audited_mechanism("PS-GRR", 1.0), np.random.default_rng(4)

    def bound(fault: Sampler) -> float:
        counts = {v: supports(m, fault(m, v, 20_000, 1, rng).reports[0]) for v in range(len(events(m).audited()))}
        return attack(counts, 1, 1e-5)[0]

    assert bound(one_member(size)) > m.eps_1
    assert 0.7 < bound(vectorised) <= m.eps_1
    monkeypatch.setattr(SetEvents, "audited", lambda of: [1 << v for v in range(of.m.k - of.m.choices)])
    assert bound(one_member(size)) <= m.eps_1


@pytest.mark.parametrize("n", [4, 6])
def test_the_audited_sets_have_the_pair_that_is_easiest_to_tell_apart(n: int) -> None:
    """All pairs of sets, by enumeration: any two sets lose ε, and the total variation is largest for the pair."""
    m = PaddedSampling(n, 1.0, 2)
    channel, codes = m.channel(), set_codes(n, 2).tolist()
    losses = np.abs(np.log(channel[:, None] / channel)).max(axis=2)
    np.testing.assert_allclose(losses[~np.eye(len(codes), dtype=bool)], m.eps_1, rtol=1e-9)
    apart = np.abs(channel[:, None] - channel).sum(axis=2) / 2
    *_, first, last = events(m).audited()
    assert apart[codes.index(first), codes.index(last)] == pytest.approx(apart.max())
    assert {code.bit_count() for code in events(m).audited()} == {0, 1, 2}


@pytest.mark.parametrize("name", ["SUE", "L-OLH"])
def test_with_many_reports_bounds_come_near_the_claim(name: str) -> None:
    result = audit([name], [CodePath("vectorised", vectorised, 60_000, (0, 4, 8))], 20260602, lambda _: None, devices=2)
    found = [f for row in result.rows for f in row.findings if f.claimed <= 4]
    assert all(f.kept for f in found)
    assert all(0.65 * f.claimed < f.bound for f in found if f.claimed >= 1)
    assert all(f.bound > 0 for f in found)


def test_the_attack_counts_only_the_second_half() -> None:
    """If the second half of the reports has no information, the bound is 0 for every first half."""
    counts = {v: np.zeros((2000, 2), np.uint8) for v in (0, 1)}
    for v in (0, 1):
        counts[v][:1000, v] = 1
    bound, _, hits, false_hits = attack(counts, 1, 0.05)
    assert (bound, hits, false_hits) == (0.0, 0, 0)


def test_a_bound_above_its_claim_is_shown_and_fails_the_run(small: Report) -> None:
    row = small.rows[0]
    above = replace(row.findings[0], bound=row.findings[0].claimed + 0.25)
    broken = replace(small, rows=[replace(row, findings=[above, *row.findings[1:]]), *small.rows[1:]])
    assert not broken.passed
    assert audit_verdict(broken).startswith(f"1 of {small.n_bounds} bounds are above their claim")
    assert any("[bold red]0.750" in str(cell) for column in audit_tables(broken)[0].columns for cell in column.cells)


def test_the_audit_command(tmp_path: Path, seeded_devices: None) -> None:
    file = tmp_path / "audit.json"
    command = ["--mechanism", "GRR", "--mechanism", "L-OLH", "--reports", "6000", "--seed", "3", "--json", str(file)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert re.search(r"(\d+) of \1 broken mechanisms caught", " ".join(done.output.split()))
    document = json.loads(file.read_text())
    assert (document["seed"], document["passed"], document["k"]) == (3, True, 9)
    assert {f["path"] for row in document["rows"] for f in row["findings"]} == {"vectorised", "device"}


def test_an_unknown_mechanism_is_refused() -> None:
    done = CliRunner().invoke(app, ["--mechanism", "XRR"])
    assert done.exit_code == 2
    assert "XRR" in done.output
