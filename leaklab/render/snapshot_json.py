"""Write snapshots and their comparison as JSON for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from leaklab.model.snapshots import SnapshotFacts, SnapshotSeries
from leaklab.render.json import one_line

FORMAT_FACTS = "leaklab snapshot"
FORMAT_SERIES = "leaklab snapshot series"
SCHEMA_VERSION = 1


def facts_json(facts: SnapshotFacts) -> str:
    """Return *facts* as one line of JSON."""
    return _encoded(FORMAT_FACTS, facts)


def series_json(series: SnapshotSeries) -> str:
    """Return *series* as one line of JSON, the growth of each stack and of all beside the levels."""
    record = _record(series)
    record["growth_bytes"] = series.growth_bytes
    for entry, stack in zip(record["stacks"], series.stacks, strict=True):
        entry["growth_bytes"] = stack.growth_bytes
    return _line(FORMAT_SERIES, record)


def _encoded(kind: str, record: SnapshotFacts) -> str:
    return _line(kind, _record(record))


def _record(record: SnapshotFacts | SnapshotSeries) -> dict[str, Any]:
    """Return the fields of *record*; the tree is left out, the stacks say the same."""
    whole = asdict(record)
    return {field.name: whole[field.name] for field in fields(record) if field.name != "tree"}


def _line(kind: str, record: Mapping[str, Any]) -> str:
    return one_line({"format": kind, "schema": SCHEMA_VERSION, **record}, "snapshot")
