"""Pages of other origins may report only if the setting names their origin."""

import httpx2
import pytest

from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.runtime.settings import SettingsError, load_settings

from .gateway_rig import KEYS, MakeServed, envelopes, title

PAGE, OTHER = "https://app.example", "https://other.example"
(GOOD,) = envelopes(1)
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,idempotency-key",
}


def post(url: str, origin: str, body: bytes = GOOD) -> httpx2.Response:
    headers = {"Origin": origin, "Content-Type": ENVELOPE, "Idempotency-Key": KEYS[0]}
    return httpx2.post(f"{url}/v1/reports", content=body, headers=headers, timeout=60)


def preflight(url: str, origin: str, **changes: str) -> httpx2.Response:
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    return httpx2.options(f"{url}/v1/reports", headers={"Origin": origin} | PREFLIGHT | changed, timeout=60)


def permission(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-") or name == "vary"}


def test_by_default_no_other_origin_may_report(served: MakeServed) -> None:
    url = served().url
    answer = preflight(url, PAGE)
    assert (answer.status_code, title(answer), permission(answer)) == (405, "method not allowed", {})
    assert permission(post(url, PAGE)) == {}


@pytest.mark.parametrize(("body", "status"), [(GOOD, 202), (b"?", 422), (b"", 400)])
def test_a_page_of_an_allowed_origin_may_read_every_answer(served: MakeServed, body: bytes, status: int) -> None:
    url = served(origins=[OTHER, PAGE]).url
    answer = post(url, PAGE, body)
    assert answer.status_code == status
    assert permission(answer) == {
        "access-control-allow-origin": PAGE, "access-control-expose-headers": "Retry-After", "vary": "Origin"
    }  # fmt: skip


@pytest.mark.parametrize("origin", [OTHER, "null", PAGE + ".evil.example", PAGE.upper(), "http" + PAGE[5:]])
def test_a_page_of_another_origin_may_not(served: MakeServed, origin: str) -> None:
    url = served(origins=[PAGE]).url
    assert "access-control-allow-origin" not in permission(post(url, origin))
    refused = preflight(url, origin)
    assert refused.status_code == 405
    assert "access-control-allow-origin" not in permission(refused)


def test_a_preflight_permits_what_a_device_sends_and_nothing_else(served: MakeServed) -> None:
    url = served(origins=[PAGE]).url
    answer = preflight(url, PAGE)
    assert answer.status_code == 200
    told = permission(answer)
    assert told["access-control-allow-origin"] == PAGE
    assert told["access-control-allow-methods"] == "GET, POST"
    assert told["access-control-allow-headers"] == "Authorization, Content-Type, Idempotency-Key"
    assert "access-control-allow-credentials" not in told


@pytest.mark.parametrize("value", ["app.example", "https://app.example/", "*", "null", "https://a b", "https://A", ","])
def test_the_setting_takes_origins_only(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDPSTREAM_GATEWAY_ORIGINS", value)
    with pytest.raises(SettingsError, match="LDPSTREAM_GATEWAY_ORIGINS: must be web origins separated by commas"):
        load_settings()
    monkeypatch.setenv("LDPSTREAM_GATEWAY_ORIGINS", "https://app.example,http://localhost:8000")
    assert load_settings().gateway_origins.count(",") == 1
