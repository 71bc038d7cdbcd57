"""The HTTP gateway: admits requests, checks envelopes, and answers 202 only after the log has stored the envelopes."""
