"""Images, Kubernetes, alerts and dashboards of the service; `local/`: Kafka and Redis of a checkout."""
