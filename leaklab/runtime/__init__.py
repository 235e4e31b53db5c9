"""Touch live objects: addresses, types, sizes, the collector, forked children; and what is leaklab's own among them."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "addresses": "AddressTable JoinedTable addresses_of distinct kinds_of positions_of types_at",
        "containers": "EMPTY ends_of first_items item_at items_in newest_items newest_pairs",
        "autograd_graph": "GraphWalk MAX_WRAPPED_NODES inputs_of",
        "child": "Child begin_child wait_for why_no_child",
        "gc_control": "GcState collect_quietly gc_paused user_has_frozen",
        "graph_marks": "GraphMarks",
        "kind_table": "KindTable",
        "ours": "is_own_kind own_addresses",
        "values": "value_lines",
        "sizes": "is_leaf node_bytes shallow_bytes_of owned_bytes shallow_bytes storage_bytes storages_of",
    },
)
