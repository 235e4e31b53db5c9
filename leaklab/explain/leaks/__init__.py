"""Survivors put together into leaks, with the evidence for their cause."""
