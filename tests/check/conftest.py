"""What tests of whole checks share: a clock that can be moved."""

from __future__ import annotations

import time

import pytest


@pytest.fixture
def slow(monkeypatch):
    """Return what makes a function take so many seconds of a clock on which nothing waits, and counts its calls."""
    passed, calls, real = [0.0], [0], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + passed[0])

    def slowed(function, seconds=4.0):
        def run():
            function()
            passed[0] += seconds
            calls[0] += 1

        run.calls = calls
        return run

    return slowed
