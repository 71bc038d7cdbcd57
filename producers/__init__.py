"""Producers: simulated populations, sources of their true values, and sinks for their reports.

Envelopes carry randomized reports only: no true value is sent. `device/` is one person's client. `gateway/` is the HTTP
gateway, which accepts envelopes and answers 202 once the log has stored the envelopes. `relay/` is Oblivious HTTP.
"""
