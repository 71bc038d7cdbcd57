"""`ldpstream try`: the service on this machine, and simulated devices that report to it."""
