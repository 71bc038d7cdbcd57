"""Common parts of all processes: settings, logs, health checks, clients of Kafka, topics, child processes.

Secrets come from the environment or from files. No log line and no error message contains a secret.
"""
