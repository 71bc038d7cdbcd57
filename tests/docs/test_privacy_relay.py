"""Compares what docs/explained/privacy.md says about the second promise with the code and its tests."""

import pytest

from lab.bench.shuffled_attack import DELTA as ATTACKED
from lab.bench.shuffled_attack import SETTINGS
from ldpstream.mechanisms.claims.guessing import Chance, percent, percent_up
from ldpstream.mechanisms.wording import up
from ldpstream.promises.crowds import DELTA
from ldpstream.promises.second_promise import loss_up, second_promise
from tests.docs.test_privacy import COMMUTE, DISTANCE, MODE, PLAIN, ROOT, TEXT, cells

SECTION = TEXT[TEXT.index("\n## The second promise\n") :]
CONDITIONS = {  # of the second promise that our code meets -> the tests of each
    "The bounds hold for all answers of all people, and for reports linked by their memo.": [
        "mechanisms/test_shuffled.py::test_no_table_of_a_few_reports_exceeds_the_bound",
        "mechanisms/test_shuffled.py::test_no_tables_together_exceed_the_bound",
        "mechanisms/test_shuffled.py::test_linked_reports_of_unchanged_memos_lose_no_more_than_the_memos",
    ],
    "A report has the distribution that ε assumes, and fresh reports are independent.": [
        "lab/test_audit.py::test_no_bound_is_above_its_claim"
    ],
    "A device sends through the relay or not at all. The gateway refuses a plain request.": [
        "devices/python/test_sender_relay.py::test_nothing_leaves_but_to_the_relay",
        "devices/python/test_sender_relay.py::test_a_sender_without_the_relay_is_refused",
        "gateway/test_gateway_oblivious.py::test_a_plain_request_for_a_survey_that_requires_a_relay_is_refused",
    ],
    "A report leaves alone, at a uniformly random moment, also after a fault. All requests of a survey have one size.": [
        "devices/python/test_sender_relay.py::test_the_moment_is_uniform_over_the_step_after_the_report",
        "devices/python/test_sender_relay.py::test_reports_that_are_overdue_do_not_leave_together",
        "devices/python/test_sender_relay.py::test_all_requests_of_a_survey_have_the_size_of_its_largest_report",
    ],
    "Nothing that reaches the gateway links two requests of a device: no key, connection or header. Each report has a random "
    "key of its own.": [
        "devices/python/test_relay_linking.py::test_two_reports_of_a_device_cannot_be_linked",
        "devices/python/test_device.py::test_a_report_keeps_one_key_until_it_is_settled",
    ],
    "Devices in Python and TypeScript encrypt the same requests.": [
        "devices/test_vectors.py::test_the_vectors_are_the_codes",
        "devices/test_typescript_relay.py::test_reports_of_the_typescript_device_count_behind_a_relay",
    ],
    "The relay cannot read or change a request, nor answer in place of the gateway. A repeated request adds no report.": [
        "devices/python/test_capsules.py::test_no_damaged_capsule_is_opened",
        "devices/python/test_sender_relay.py::test_an_answer_of_the_relay_itself_settles_nothing",
        "devices/python/test_sender_relay.py::test_a_relay_that_repeats_makes_no_report_count_twice",
    ],
    "The service counts each step's reports and says where they are fewer than the crowd.": [
        "publishing/test_crowd.py::test_the_crowd_of_a_step_is_the_number_of_its_reports",
        "publishing/test_crowd.py::test_api_and_metrics_say_that_the_crowd_is_too_small",
    ],
    "The log shows no order of arrival, and no time finer than half a second. The service's own log names no request.": [
        "gateway/test_shuffle.py::test_the_order_in_the_log_is_independent_of_the_order_of_arrival",
        "gateway/test_shuffle.py::test_the_times_in_the_log_tell_the_batch_and_nothing_finer",
        "gateway/test_gateway_oblivious.py::test_no_log_tells_of_a_request_through_a_relay",
    ],
}


@pytest.mark.parametrize(
    ("label", "people", "colluding"),
    [
        ("20,000 people", 20_000, 0), ("20,000 people, 10,000 of them collude", 20_000, 10_000), ("100,000 people", 100_000, 0),
        ("1,000,000 people", 1_000_000, 0),
    ],
)  # fmt: skip
def test_both_promises_of_the_commute_survey(label: str, people: int, colluding: int) -> None:
    rows = [row for row in second_promise(COMMUTE, people, colluding) if row.span != "window"]
    first, second = list[str](), list[str]()
    for row in rows:
        first += [f"{row.eps_everybody:.4g}", str(Chance(row.guess_everybody, exact=row.guess_everybody_exact))]
        second += [f"≤ {loss_up(row.eps_in_crowd)}", f"≤ {percent_up(row.guess_in_crowd)}"]
    assert cells(SECTION, "first: against everybody") == first
    assert cells(SECTION, f"second: {label}") == second
    assert cells(SECTION, "without a report") == [x for m in (DISTANCE, DISTANCE, MODE, MODE) for x in ("0", percent(1 / m.k))]
    assert f"plus δ = {DELTA:.9f}" in SECTION
    if people == 20_000 and not colluding:
        distance, mode = rows[0].crowd, rows[-1].crowd
        assert (
            f"at least {mode:,} hide one another at a step of `mode`, and at least {distance:,} at a step of `distance_km`"
            in PLAIN
        )


def test_small_crowds() -> None:
    crowds = [
        int(cell.replace(",", "")) for cell in cells(SECTION.replace("\n  |", "\n|"), "honest reports of `mode` at each step")
    ]
    found = [MODE.claims.shuffled(8, n, DELTA) for n in crowds]
    assert cells(SECTION.replace("\n  |", "\n|"), "loss, at most") == [loss_up(loss.eps(DELTA)) for loss in found]
    chances = [percent_up(min(loss.guess(MODE.k), MODE.guess(8))) for loss in found]
    assert cells(SECTION.replace("\n  |", "\n|"), "right guess, at most") == chances


def test_the_attacks_stay_below_the_bounds() -> None:
    """The losses that attacks reach are those of one run; the bounds are the code's."""
    for name, m, n, steps in SETTINGS:
        shown, reached, bound, distance = cells(SECTION, name)
        eps = m.claims.shuffled(steps, n, ATTACKED).eps(ATTACKED)
        assert (shown, bound) == (f"{n:,}", up(eps))
        assert float(reached) < eps
        assert float(distance.removesuffix(" %")) == pytest.approx(100 * (eps / float(reached) - 1), abs=0.15)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_that_our_code_meets_has_tests(condition: str) -> None:
    assert f"- {condition} " in f"{PLAIN} "
    for file, name in (test.split("::") for test in CONDITIONS[condition]):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def test_every_condition_that_our_code_meets_is_listed() -> None:
    met = SECTION[SECTION.index("Our code meets these") : SECTION.index("People must meet these")]
    assert met.count("\n- ") == len(CONDITIONS)
