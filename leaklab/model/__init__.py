"""Frozen records: what one part of leaklab hands to another, and what is saved.

Everything here is made of numbers, words and tuples of them: picklable, comparable, able to make the round trip
through JSON, and without one reference to an object of the user. A record may therefore be kept, saved and drawn
long after the objects it tells of are gone.
"""

from __future__ import annotations

from leaklab.model.check import (
    MIN_RUNS,
    SCHEMA_VERSION,
    Check,
    ContainerGrowth,
    Leak,
    ObjectGrowth,
    Outcome,
    Run,
    Settings,
    StatementGrowth,
    TensorGrowth,
    Verdict,
)
from leaklab.model.paths import RootPath, Status, Step

__all__ = [
    "MIN_RUNS",
    "SCHEMA_VERSION",
    "Check",
    "ContainerGrowth",
    "Leak",
    "ObjectGrowth",
    "Outcome",
    "RootPath",
    "Run",
    "Settings",
    "StatementGrowth",
    "Status",
    "Step",
    "TensorGrowth",
    "Verdict",
]
