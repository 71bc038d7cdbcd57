"""Oblivious HTTP: requests that reach the gateway through a relay, which hides who sent them."""
