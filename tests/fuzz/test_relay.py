"""Tests that no damaged request through a relay gets a wrong answer, with controls that must fail."""

from typing import Any

import pytest

from ldpstream.device.relay.capsules import CapsuleError, open_request
from ldpstream.gateway import oblivious

from .run_relay import Wrong, share


def test_damaged_requests_get_the_right_answers() -> None:
    told = share(1, 1200)
    assert set(told) >= {
        "accepted", "in clear: unknown key configuration", "inside: malformed request", "inside: not found",
        "inside: malformed idempotency key", "inside: unsupported content type", "inside: step too old",
        "inside: step in the future",
    }  # fmt: skip
    assert told["accepted"] > 50


@pytest.mark.parametrize("fault", ["opens what is damaged", "accepts and says no", "fails on a capsule"])
def test_a_fault_in_the_gateway_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    response = oblivious._response
    kept = []

    def opens_anything(keys: Any, capsule: Any) -> Any:
        try:
            kept.append(open_request(keys, capsule))
        except CapsuleError:
            if fault == "fails on a capsule":
                raise KeyError("capsule") from None
        return kept[-1]

    if fault == "accepts and says no":
        monkeypatch.setattr(oblivious, "_response", lambda result: response(result)._replace(status=202))
    else:
        monkeypatch.setattr(oblivious, "open_request", opens_anything)
    with pytest.raises((Wrong, CapsuleError)):  # a CapsuleError: the answer is to another request
        share(2, 200)
