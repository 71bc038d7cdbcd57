"""The gateway's Prometheus metrics. No metric identifies a client. The counters start at zero when the process starts."""

from prometheus_client import Counter, Gauge, Histogram

from producers.gateway.problems import STATUS

requests = Counter("ldpstream_gateway_requests", "Requests with reports, by outcome", ["outcome"])
for _outcome in ("accepted", *STATUS):
    requests.labels(_outcome)  # starts at zero: a rate needs a sample before the first request
envelopes = Counter("ldpstream_gateway_envelopes", "Envelopes that the log has acknowledged")
reports = Counter("ldpstream_gateway_reports", "Reports that the log has acknowledged")
request_seconds = Histogram("ldpstream_gateway_request_seconds", "Seconds from a request's head to its answer")
waiting_bytes = Gauge("ldpstream_gateway_waiting_bytes", "Bytes of request bodies being read or not yet acknowledged")
log_available = Gauge("ldpstream_gateway_log_available", "1 while the log answers, else 0")
keys_forgotten = Counter("ldpstream_gateway_keys_forgotten", "Idempotency keys dropped early because of too many requests")
connections_refused = Counter("ldpstream_gateway_connections_refused", "Connections closed at once: too many from one address")
