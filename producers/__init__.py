"""Producers: simulated populations, where their true values come from, and where their reports go.

No true value leaves this room: envelopes carry randomized reports only. `device/` is one person's client, `gateway/` the HTTP
gateway that accepts envelopes and answers 202 after Kafka has them.
"""
