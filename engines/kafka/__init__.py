"""The engine of many machines: Kafka has the log, and Redis the counts and results."""
