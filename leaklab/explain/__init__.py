"""STAGE 3: who holds it, through which references, what cures it. Touches live objects."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "all_holders": "RetainedBytes hold_of",
        "autograd_retention": "graph_size largest_graph",
        "copies": "is_copy original_of",
        "icicle": "icicle_of icicles_of",
        "saved_heap": "shape_of",
        "cycles": "CYCLE_ROOT Orphans UNSEEN_ROOT group_orphans",
        "evidence": "Evidence Facts facts_of with_reasons",
        "group_sizes": "GRADIENT_BYTES TENSOR_BYTES GroupSizer content_of has_optimizer native_parts",
        "groups": "group_survivors",
        "largest_tensors": "buffers_by_size held_by storages_by_path storages_by_size",
        "limits": "FAR Limit known_limit",
        "live_graph": "overview",
        "owners": "Owner",
        "plain_data": "gains_log_entries",
        "retained": "freed_with retained_sizes size_of_freed",
        "smallest_cut": "backward freed_without independent_paths",
        "unreachable": "Region",
    },
)
