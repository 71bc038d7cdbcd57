"""Tests of the overview: its numbers are those of the other answers, and its sentences claim no more than the numbers."""

import csv
import io
import re
from contextlib import closing
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import binom

from ldpstream import read
from ldpstream.estimators.differences import beyond_chance, chances
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.answers import sentences
from ldpstream.publishing.answers.overview import Changes, cards_of, chance_of_leader
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import Diagnostics, Publication
from ldpstream.publishing.page.server import PageServer
from tests.small_survey import small_survey

from .cohort_rig import ATTRIBUTES, COHORT, ONCE, SURVEY, client, client_of, demo, demo_of

NUMBER, SVG = r"([+−]?[0-9.]+)", "{http://www.w3.org/2000/svg}"
SHARE = re.compile(rf"v([0-9]+) \({NUMBER} %, {NUMBER} to {NUMBER}\)")
DIFFERENCE = re.compile(rf"a v([0-9]+), {NUMBER} points \({NUMBER} to {NUMBER}\)")


def said(pattern: re.Pattern[str], text: str, *numbers: FloatArray) -> list[int]:
    """Returns the values that a sentence names, after a check of the numbers that it says about them."""
    found = []
    for value, *told in pattern.findall(text):
        found.append(int(value))
        for one, exact in zip(told, numbers, strict=True):
            digits = len(one.partition(".")[2])
            assert abs(float(one.replace("−", "-")) - 100 * exact[int(value)]) <= 0.5001 * 10**-digits, text
    return found


def true_of_shares(text: str, shares: FloatArray, low: FloatArray, high: FloatArray) -> bool:
    """Checks what a sentence claims about the most frequent value."""
    named, others = said(SHARE, text, shares, low, high), np.ones(shares.size, bool)
    close = int((high >= low[shares.argmax()]).sum())
    if claim := re.match(r"([0-9]+) of ([0-9]+) values of a are too close to call", text):
        return (int(claim[1]), int(claim[2])) == (close, shares.size) and (high[named] >= low[shares.argmax()]).all()
    assert "the most frequent value of a" in text
    others[named] = False
    return bool((high[others] < low[named].max()).all()) and text.endswith(": too close to call") == (len(named) > 1)


def true_of_differences(text: str, differences: FloatArray, low: FloatArray, high: FloatArray, p: FloatArray) -> bool:
    """Checks what a sentence claims about differences, by Holm's thresholds."""
    named, order = said(DIFFERENCE, text, differences, low, high), np.sort(p)
    clear = next((i for i, one in enumerate(order) if one > 0.05 / (p.size - i)), p.size)
    if text.startswith(f"no change is beyond chance. The largest of {p.size} is "):
        return clear == 0 and [abs(differences[v]) for v in named] == [np.abs(differences).max()]
    more, count = re.search(r"; ([0-9]+) more\.$", text), re.match(r"([0-9]+) changes? (?:is|are) beyond chance: ", text)
    assert count, text
    signs = all(float(a.replace("−", "-")) * float(b.replace("−", "-")) > 0 for _, _, a, b in DIFFERENCE.findall(text))
    counted = len(named) + int(more[1] if more else 0) == int(count[1]) == clear
    return signs and counted and bool((p[named] < (0.05 if clear else 0)).all())


def test_a_sentence_claims_no_more_than_ten_thousand_random_estimates() -> None:
    """Controls: a sentence that leaves out what is too close to call, one from each difference by itself, and one that calls
    every difference chance."""
    rng, wrong = np.random.default_rng(20261129), np.zeros(3, int)
    for _ in range(10_000):
        k = int(rng.integers(2, 30))
        shares, errors = rng.dirichlet(np.full(k, rng.choice([0.1, 1, 30]))), rng.uniform(0.1, 2, k) * 10 ** rng.uniform(-4, -1)
        low, high = np.maximum(shares - 2 * errors, 0), np.minimum(shares + 2 * errors, 1)
        text = sentences.most_frequent("a", "v{}".format, shares, low, high)
        assert true_of_shares(text, shares, low, high), text
        bolder = re.sub(r" or .*\) is", " is", text).replace(": too close to call", "")
        wrong[0] += bolder != text and not true_of_shares(bolder, shares, low, high)
        differences = errors * rng.normal(0, rng.choice([1.0, 4.0]), k)
        p, ends = chances(differences, errors), (differences - 1.96 * errors, differences + 1.96 * errors)
        for i, clear in enumerate((beyond_chance(p), p < 0.05, np.zeros(k, bool))):
            order = np.argsort(p).tolist()
            text = sentences.change("a v{}".format, differences, *ends, clear, order, "change")
            true = true_of_differences(text, differences, *ends, p)
            assert true or i, text
            wrong[i] += i and not true
    assert wrong.min() > 1000


def test_equal_shares_rarely_make_a_sentence_about_a_change() -> None:
    """50 attributes of 100 surveys. If 5 of 100 surveys have a false sentence, more than 12 do with a probability of 0.2 %.

    Control: an attribute's own 4 values are not all values, so most surveys have a clear one.
    """
    level = ({"name": "standard", "mechanism": "GRR", "eps": 1.0},)
    survey = small_survey(*({"name": f"a{i}", "size": 4, "level": level} for i in range(50)))
    (m,), rng, found = survey.mechanisms[0], np.random.default_rng(5), np.zeros(2, int)
    for _ in range(100):
        made: tuple[list[Publication], ...] = ([], [])
        for a in survey.attributes:
            for step in (0, 1):
                table = m.tabulate(m.simulate(rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05]), rng))
                result = Frequencies.of(matrix_inversion(m, table))
                made[step].append(
                    Publication(
                        survey=survey.name, fingerprint="", attribute=a.name, step=step, span="step", panes=1, reports=300,
                        complete=True, estimators={"eb": result, "mi": result}, privacy={},
                        diagnostics=Diagnostics(mass_below_zero=None, fit_z={}),
                    )
                )  # fmt: skip
        cards = cards_of(survey, list(zip(survey.attributes, made[1], made[0], strict=True)), apart=False)
        text = Changes(cards).text("change")
        assert text.startswith("no change") != any(card.clear.any() for card in cards)
        found += [not text.startswith("no change"), any(beyond_chance(card.of.p).any() for card in cards)]
    assert binom.sf(12, 100, 0.05) < 0.002
    assert found[0] <= 12 < found[1]


def test_equal_shares_rarely_have_a_leader() -> None:
    """100 surveys of 50 questions with two equal shares. More than 12 have a false leader with a probability of at most 0.2 %.

    Control: an interval above the other one, which is too weak a sign among 50 questions.
    """
    rng, found = np.random.default_rng(8), np.zeros(2, int)
    for _ in range(100):
        shares = 0.5 + np.outer(rng.normal(0, 0.1, 50), (1, -1))
        found[0] += beyond_chance(np.array([chance_of_leader(both, np.full(2, 0.1)) for both in shares])).any()
        found[1] += (np.abs(shares[:, 0] - 0.5) > 1.96 * 0.1).any()
    assert found[0] <= 12 < found[1]


@pytest.mark.parametrize(
    "query",
    [{}, {"span": "step"}, {"span": "step", "before": "0"}, {"span": "filtered"}, {"cohort": COHORT.values[1]},
     {"cohort": COHORT.values[1], "against": COHORT.values[0]}, {"cohort": COHORT.values[1], "against": ""},
     {"cohort": COHORT.values[0], "against": COHORT.values[3], "span": "step"}],
)  # fmt: skip
def test_the_numbers_are_those_of_the_histogram_and_the_comparison(query: dict[str, str]) -> None:
    found = client().get("/api/v1/overview", params=query | {"top": 3}).json()
    rows = list(csv.DictReader(io.StringIO(client().get("/api/v1/overview.csv", params=query | {"top": 3}).text)))
    assert ([one["attribute"] for one in found["attributes"]], len(found["sentences"])) == (ATTRIBUTES, 2)
    changes = list(csv.DictReader(io.StringIO(client().get("/api/v1/changes.csv", params=query | {"top": 3}).text)))
    assert [row["label"] for row in changes] == [change["label"] for change in found["changes"]]
    for one in found["attributes"]:
        h, c = (
            client().get(f"/api/v1/attributes/{one['attribute']}/{what}", params=of).json()
            for what, of in (("histogram", {k: v for k, v in query.items() if k in ("span", "cohort")}), ("comparison", query))
        )
        for name, other in (("frequencies", h["frequencies"]), ("low", h["low"]), ("differences", c["differences"]),
                            ("difference_low", c["low"]), ("difference_high", c["high"]), ("labels", h["labels"])):  # fmt: skip
            assert one[name] == [other[v] for v in one["values"]], name
        assert (one["numbers"], one["number_differences"]) == (h["numbers"], c["numbers"])
        largest = sorted(h["values"], key=lambda v: -(h["frequencies"][v] or 0))[:3]
        assert one["values"] == (sorted(largest) if one["attribute"] == "latency_ms" else largest)
        told = [row for row in rows if row["attribute"] == one["attribute"]]
        assert [row["difference"] for row in told] == ["" if x is None else str(x) for x in one["differences"]]


def test_a_search_finds_the_rest_and_changes_no_number() -> None:
    everything, found = (client().get(f"/api/v1/overview?{query}").json() for query in ("top=100", "find=A&top=2"))
    screen = found["attributes"][0]
    assert (screen["found"], screen["labels"]) == (3, ["search", "map"])  # and chat
    assert found["sentences"] == everything["sentences"]
    assert [len(found["changes"]), len(everything["changes"])] == [2, 4 + 4 + 12]
    tag = client().get("/api/v1/overview").headers["etag"]
    assert client().get("/api/v1/overview", headers={"If-None-Match": tag}).status_code == 304


def test_a_card_is_a_picture_for_other_pages() -> None:
    answer = client().get(f"/api/v1/attributes/screen/card.svg?cohort={COHORT.values[0]}&against=&top=2")
    assert (answer.headers["content-type"], answer.headers["cross-origin-resource-policy"]) == ("image/svg+xml", "cross-origin")
    overview = client().get(f"/api/v1/overview?cohort={COHORT.values[0]}&against=&top=2").json()["attributes"][0]
    drawn = [text for _, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", answer.text)]
    assert [text for text in drawn if text in overview["labels"]] == overview["labels"]
    assert f"{100 * overview['frequencies'][0]:.0f} %" in " ".join(drawn)
    few = client().get("/api/v1/attributes/screen/card.svg", params={"cohort": COHORT.values[3]}).text
    assert "Too few reports to tell these values apart." in few
    said = client().get("/api/v1/overview", params={"cohort": COHORT.values[3]}).json()["sentences"]
    assert [one["text"].partition(",")[0] for one in said] == [
        "too few reports to tell the values apart.",
        "there are no intervals",
    ]
    assert sentences.short("א" * 200) == f"\u2068{'א' * sentences.LONGEST}…\u2069"
    assert client().get("/api/v1/attributes/screen/card.svg?find=nobody").status_code == 404


@pytest.mark.parametrize(("span", "step", "before"), [("window", 2, None), ("window", 3, 1), ("step", 1, 0)])
def test_a_default_comparison_has_two_spans_of_one_length(span: str, step: int, before: int | None) -> None:
    found = client().get("/api/v1/overview", params={"span": span, "step": step}).json()
    assert (found["before_step"], len(found["sentences"])) == (before, 1 if before is None else 2)
    chosen = client().get("/api/v1/overview", params={"span": span, "step": step, "before": 0}).json()
    assert chosen["before_step"] == 0  # the first window, which is shorter


def test_a_card_draws_hostile_and_long_texts_as_texts() -> None:
    """Markup and quotes stay texts; marks of a direction do not break the file; a long text does not leave the picture."""
    labels, name, cohort = ["</text><script>1</script>", "\"'&]]>\u200f\u05e9", "l" * 200], "n" * 64, "<i>" + "c" * 197
    asked = {"name": name, "values": labels, "level": [ONCE | {"mechanism": "GRR"}]}
    survey = small_survey(asked, cohort={"name": "version", "values": [cohort, "1"], "least": 2})
    found = client_of(survey, demo_of(survey, 300, 2)).get(f"/api/v1/attributes/{name}/card.svg", params={"cohort": cohort})
    picture = ElementTree.fromstring(found.text)
    drawn = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert {labels[0][:21] + "…", labels[1], "l" * 21 + "…", name} < set(drawn)
    assert max(map(len, drawn)) == 80
    assert not [element for element in picture.iter() if element.tag.removeprefix(SVG) in ("script", "i")]


def test_a_frame_has_typed_columns_and_labels_as_texts() -> None:
    """The cohort without people has no shares: its columns are numbers and texts all the same."""
    api = Served(SURVEY, demo().service.results, dict)
    with closing(PageServer(create_api(api), "127.0.0.1", 0)) as server:
        everything = read(server.url)
        series = read(
            f"{server.url}api/v1/attributes/latency_ms/series.csv?cohort={quote(COHORT.values[3])}&values=0%20to%2010"
        )
        with pytest.raises(OSError, match="404"):
            read(f"{server.url}api/v1/attributes/nobody/series.csv")
    assert everything["attribute"].unique(maintain_order=True).to_list() == ATTRIBUTES
    assert [str(everything[name].dtype)[:8] for name in ("difference", "clear", "start")] == ["Float64", "Boolean", "Datetime"]
    assert series.select("label", "cohort", "frequency").row(0) == ("0 to 10", COHORT.values[3], None)
    with pytest.raises(ValueError, match="url must begin with http"):
        read("survey.toml")
