"""Kafka and Redis on this machine, without containers: `python -m deploy.local`."""
