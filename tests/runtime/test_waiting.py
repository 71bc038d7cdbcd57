"""Waiting for a service that is away: told at once, told seldom, ended on request, and never for a refusal."""

from collections.abc import Callable

import pytest

from runtime.waiting import TELL_EVERY, Away, Stopped, wait_for

AT = "Kafka at here:1"


def asked(*answers: Exception | str) -> Callable[[], str]:
    """A question with these answers, one after the other."""
    left = iter(answers)

    def ask() -> str:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_a_service_that_answers_is_not_waited_for() -> None:
    told: list[str] = []
    assert wait_for(AT, asked("yes"), lambda _: pytest.fail("waited"), told.append) == "yes"
    assert told == []


def test_a_new_reason_is_told_and_an_old_one_seldom() -> None:
    told: list[str] = []
    many = [Away(f"{AT} cannot be reached: refused")] * (TELL_EVERY + 1)
    assert wait_for(AT, asked(*many, Away("no answer"), Away("no answer"), "yes"), lambda _: False, told.append) == "yes"
    refused, silent = f"waiting for {AT}: cannot be reached: refused", f"waiting for {AT}: no answer"
    assert told == [refused, refused, silent, f"{AT} answers"]


def test_a_refusal_is_raised_at_once() -> None:
    with pytest.raises(ValueError, match="wrong password"):
        wait_for(AT, asked(Away("away"), ValueError("wrong password")), lambda _: False, lambda _: None)


def test_waiting_ends_when_it_is_told_to() -> None:
    with pytest.raises(Stopped):
        wait_for(AT, asked(Away("away"), "too late"), lambda _: True, lambda _: None)
