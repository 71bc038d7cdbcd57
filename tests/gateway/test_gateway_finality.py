"""For every answer of the gateway: does a device forget the report, and why. All clients agree with this table."""

from typing import Final

import pytest

from ldpstream.device.routes import Direct
from ldpstream.gateway.http.app import openapi
from ldpstream.gateway.http.bodies import BATCH, ENVELOPES, KEY
from ldpstream.gateway.http.problems import FINAL, MAX_ELEMENTS, MAX_RETRY_S, MEND_FIRST, RETRY_S, STATUS, Cause, Problem, urn
from ldpstream.gateway.intake import Intake
from ldpstream.producers.gateway_sink import GatewaySink
from ldpstream.producers.sinks import SinkError, TooLateError
from ldpstream.surveys import REASONS

from .gateway_rig import MakeServed, envelopes

FORGETS: Final = "the body itself never counts"
HEAD, GATEWAY, NOW, LOG = (
    "the head, token or URL is wrong",
    "depends on the gateway",
    "depends on the time",
    "the log may have it",
)
WHY: Final[dict[Cause, str]] = {
    "malformed request": HEAD,  # or the body was lost on its way
    "malformed idempotency key": HEAD,
    "unauthorized": HEAD,  # also while tokens are changed
    "relay required": HEAD,  # the same body counts through a relay
    "collector required": HEAD,  # the same body counts with a collector's token
    "not found": HEAD,  # a proxy may have changed the path
    "method not allowed": HEAD,
    "unsupported content type": HEAD,
    "unsupported transfer coding": HEAD,
    "unknown key configuration": HEAD,  # the application must give the device the present key
    "unknown version": GATEWAY,  # a gateway of a later version counts it
    "wrong survey": GATEWAY,  # another gateway has the survey, or this one once its file arrives
    "survey unavailable": GATEWAY,
    "internal error": LOG,
    "outcome unknown": LOG,
    "too slow": NOW,
    "step in the future": NOW,
    "too many requests": NOW,
    "share used": NOW,
    "busy": NOW,
    "keys full": NOW,
    "log unavailable": NOW,
    "stopping": NOW,
    "undecodable": FORGETS,
    "too large": FORGETS,
    "several surveys": FORGETS,
    "unknown attribute or level": FORGETS,  # the fingerprint in the body fixes attributes, levels, cohorts and the end
    "unknown cohort": FORGETS,
    "wrong length": FORGETS,
    "symbol out of range": FORGETS,
    "padding bits set": FORGETS,
    "survey ended": FORGETS,
    "step too old": FORGETS,  # the append times that agents use never decrease
}


@pytest.mark.parametrize("cause", STATUS)
def test_a_refusal_is_final_only_if_the_body_never_counts(cause: Cause) -> None:
    assert (STATUS[cause] == FINAL) == (WHY[cause] == FORGETS)
    assert (STATUS[cause] in MEND_FIRST) == (WHY[cause] == HEAD)
    assert (cause in RETRY_S) == (WHY[cause] in (GATEWAY, NOW) or cause == "outcome unknown")
    assert RETRY_S.get(cause, 1) <= MAX_RETRY_S


@pytest.mark.parametrize("cause", STATUS)
def test_the_sink_posts_again_unless_that_cannot_help(
    cause: Cause, served: MakeServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A final problem, or one that somebody must mend first, ends the sink at once. The sink retries after every other
    problem."""
    answers, attempts, time_ms = [cause], list[str](), Intake.time_ms

    def refuse(self: Intake) -> int:
        attempts.append("made")
        if answers:
            raise Problem(answers.pop(), "refused")
        return time_ms(self)

    monkeypatch.setattr(Intake, "time_ms", refuse)
    one, (envelope,) = served(), envelopes(1)
    sink = GatewaySink(Direct(one.url, None), "gateway", patience_s=1e6)
    monkeypatch.setattr(sink._closed, "wait", lambda _: False)
    sink.send(envelope)
    if WHY[cause] in (FORGETS, HEAD):
        with pytest.raises(TooLateError if cause == "step too old" else SinkError, match=cause):
            sink.flush()
        assert (len(attempts), one.rig.log.appended) == (1, [])
    else:
        sink.flush()
        assert (len(attempts), one.rig.log.appended) == (2, [[envelope]])
    sink.close()


def test_the_openapi_document_states_what_the_code_does() -> None:
    document = openapi(False)
    problems = {int(name.removeprefix("Problem")): of for name, of in document["components"]["responses"].items()}
    for status, answer in problems.items():
        schema = answer["content"]["application/problem+json"]["schema"]["properties"]
        causes = [cause for cause, of in STATUS.items() if of == status and cause != "unknown key configuration"]  # of a relay
        assert (schema["title"]["enum"], schema["status"]["const"]) == (causes, status)
        assert schema["type"]["enum"] == [urn(cause) for cause in causes]
        assert ("Retry-After" in answer.get("headers", {})) == any(cause in RETRY_S for cause in causes)
        assert ("elements" in schema) == (status in (409, 422))
    others = {STATUS["method not allowed"]}  # the answer to a request that is not in the document
    assert problems.keys() == set(STATUS.values()) - others
    post = document["paths"]["/v1/reports"]["post"]
    assert {int(status) for status in post["responses"]} == problems.keys() - {404} | {202}
    assert list(post["requestBody"]["content"]) == [*ENVELOPES, BATCH]
    assert post["parameters"][0]["schema"]["pattern"] == f"^{KEY}$"
    element = document["components"]["schemas"]["RefusedElement"]["properties"]
    assert (element["reason"]["enum"], element["retry_after"]["maximum"]) == (list(REASONS), MAX_RETRY_S)
    refused = problems[422]["content"]["application/problem+json"]["schema"]["properties"]["elements"]
    assert refused["maxItems"] == MAX_ELEMENTS
