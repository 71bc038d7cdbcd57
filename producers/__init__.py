"""Participants: the device, simulated populations of devices, the sinks for their reports, and the HTTP gateway."""
