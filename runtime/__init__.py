"""Common parts of all processes: settings, logs, health checks, clients of Kafka, topics, child processes."""
