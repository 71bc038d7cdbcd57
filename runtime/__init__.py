"""Common parts of all processes: settings, logs, health checks, clocks, errors, child processes."""
