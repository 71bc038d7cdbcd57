"""The wait for an unreachable service is logged at once, then rarely. A stop request or a refusal ends the wait."""

from collections.abc import Callable

import pytest

from ldpstream.runtime.errors import TELL_EVERY, Stopped, wait_for
from ldpstream.surveys.errors import Unreachable

AT = "Kafka at here:1"


def asked(*answers: Exception | str) -> Callable[[], str]:
    """A function that returns or raises these answers, one after the other."""
    left = iter(answers)

    def ask() -> str:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_an_available_service_causes_no_wait() -> None:
    told: list[str] = []
    assert wait_for(AT, asked("yes"), lambda _: pytest.fail("waited"), told.append) == "yes"
    assert told == []


def test_new_reasons_are_logged_at_once_old_reasons_rarely() -> None:
    told: list[str] = []
    many = [Unreachable(f"{AT} cannot be reached: refused")] * (TELL_EVERY + 1)
    silence = [Unreachable("no answer")] * 2
    assert wait_for(AT, asked(*many, *silence, "yes"), lambda _: False, told.append) == "yes"
    refused, silent = f"waiting for {AT}: cannot be reached: refused", f"waiting for {AT}: no answer"
    assert told == [refused, refused, silent, f"{AT} answers"]


def test_a_refusal_is_raised_immediately() -> None:
    with pytest.raises(ValueError, match="wrong password"):
        wait_for(AT, asked(Unreachable("away"), ValueError("wrong password")), lambda _: False, lambda _: None)


def test_a_stop_request_ends_the_wait() -> None:
    with pytest.raises(Stopped):
        wait_for(AT, asked(Unreachable("away"), "too late"), lambda _: True, lambda _: None)
