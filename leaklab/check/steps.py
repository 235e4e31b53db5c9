"""The check as a generator: it asks for runs of the user's code, is told how they went, and returns the record."""

from __future__ import annotations

from collections.abc import Generator

from leaklab.model import Check
from leaklab.runtime.runs import Ran, RunRequest

__all__ = ["Ran", "RunRequest", "Steps"]

Steps = Generator[int | RunRequest, Ran, Check]
"""Yields the number of the run to make (0 for a warm-up) or a request for several, is sent how it went, returns the
record. A single run is asked for by a bare number: a request, being an object, would count as born in the run."""
