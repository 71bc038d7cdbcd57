"""Producers: simulated populations, sources of their true values, and sinks for their reports.

No true value leaves this folder: envelopes carry randomized reports only. `device/` is one person's client. `gateway/` is the
HTTP gateway, which accepts envelopes and answers 202 after Kafka has acknowledged the envelopes.
"""
