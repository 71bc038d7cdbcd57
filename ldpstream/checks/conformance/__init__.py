"""The conformance check of a foreign device: its file of calls, its rows' distribution, its requests to the gateway."""
