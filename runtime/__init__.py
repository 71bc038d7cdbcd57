"""Common parts of all processes: settings, logs, health checks, clients of Kafka and Redis, topics, child processes.

Secrets come from the environment or from files, and never reach a log or an error. Every wait ends at SIGTERM.
"""
