"""What starts the service: images, Kubernetes, alerts, dashboards; `local/`: Kafka and Redis of a checkout."""
