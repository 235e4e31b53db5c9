"""Read memory snapshots of torch safely, and compare them by call stack."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "phases": "Span phases_of spans_of",
        "reading": "audit memory_ceiling read_pickle",
        "schema": "memory_of",
        "stacks": "StackTable base_name is_project label_of",
        "map_of_blocks": "block_map",
        "free_memory": "FreePieces free_pieces",
        "moments": "stacks_after",
        "timeline": "timeline_of",
        "trace": "events_of histories",
    },
)
