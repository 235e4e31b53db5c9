"""Read memory snapshots of torch safely, and compare them by call stack."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "reading": "audit memory_ceiling read_pickle",
        "schema": "memory_of",
        "stacks": "StackTable base_name is_project label_of",
        "trace": "BEFORE histories stacks_after timeline_of",
    },
)
