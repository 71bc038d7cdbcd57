"""The gateway's Prometheus metrics. No metric identifies a client. The counters start at zero when the process starts."""

from prometheus_client import Counter, Gauge, Histogram

from producers.gateway.problems import STATUS

requests = Counter("ldpstream_gateway_requests", "Requests with reports, by outcome", ["outcome"])
# the counters start at zero: a rate needs a sample before the first request
_by_outcome = {outcome: requests.labels(outcome) for outcome in ("accepted", *STATUS)}
envelopes = Counter("ldpstream_gateway_envelopes", "Envelopes that the log has acknowledged")
reports = Counter("ldpstream_gateway_reports", "Reports that the log has acknowledged")
request_seconds = Histogram("ldpstream_gateway_request_seconds", "Seconds from a request's head to its answer")
waiting_bytes = Gauge("ldpstream_gateway_waiting_bytes", "Bytes of request bodies being read or not yet acknowledged")
log_available = Gauge("ldpstream_gateway_log_available", "1 while the log answers, else 0")
connections_refused = Counter("ldpstream_gateway_connections_refused", "Connections closed at once: too many from one address")


def outcome(name: str, seconds: float) -> None:
    """Counts a request: its outcome, and the time from its head to its answer."""
    _by_outcome[name].inc()
    request_seconds.observe(seconds)
