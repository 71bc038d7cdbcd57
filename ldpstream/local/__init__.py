"""Kafka, Redis and the processes of the service on this machine, without containers."""
