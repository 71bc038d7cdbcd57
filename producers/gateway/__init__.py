"""The HTTP gateway: admits requests, checks envelopes, and answers 202 only after Kafka has acknowledged the envelopes."""
