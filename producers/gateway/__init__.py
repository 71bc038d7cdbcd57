"""The HTTP gateway: admits requests, checks their envelopes, and answers 202 only after Kafka has acknowledged them."""
