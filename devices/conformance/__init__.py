"""The conformance check of a foreign device: its file of calls, its reports' distribution, its requests to the gateway."""
