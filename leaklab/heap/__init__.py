"""The heap as a graph: every object and every reference, also what the collector does not report."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "backwards": "on_best_paths",
        "borrow": "borrow_heap heap_view view_for_path",
        "carried_graphs": "carried_tensors",
        "dominators": "immediate_dominators",
        "find": "find_in is_named",
        "hidden_references": "ArraySearch hidden_edges",
        "index": "HeapIndex ReferencePass build_index own_dicts",
        "known_holders": "KNOWN_HOLDERS NATIVE_CACHES known_holder remark_on with_known_holders",
        "live_nodes": "LiveNodes",
        "nodes": "ArrayTraits TraitsTable NodeType StorageUse",
        "nodes_file": "MAGIC load_heap packed_heap save_heap",
        "names.reference": "c_descriptor",
        "paths": "Described describe_path fingerprint stable_text summary_of",
        "roles": "Role roles_by_name roles_of_object",
        "roots": "Root find_roots find_starts local_variables running_frames",
        "saved_nodes": "HeapArrays SavedNodes",
        "shortest_paths": "ROOT UNREACHED levels path_to reach search",
        "source_lines": "LineWriter Origin SourceLine cell_name find_line origin_of running_cell_name short_path",
        "start_paths": "Start",
        "taking": "take_heap",
        "view": "BASELINE Births HeapView NO_BIRTHS",
    },
)
