"""What every process needs: settings, logs, health checks, clients of Kafka and Redis, topics, errors."""
