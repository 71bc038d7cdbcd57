"""Producers: simulated populations, sources of their true values, and sinks for their reports.

No true value leaves this room: envelopes carry randomized reports only. `device/` is one person's client, `gateway/` the HTTP
gateway that accepts envelopes and answers 202 after Kafka has acknowledged them.
"""
