"""Producers: simulated populations, sources of their true values, and sinks for their reports.

`device/` is one person's client, `gateway/` the HTTP gateway, and `relay/` Oblivious HTTP.
"""
