"""The steps of a check that join the stages: the pipeline calls them."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "findings": "Explained Finding FoundLines",
        "explaining": "explain_growth",
        "line_search": "find_lines whose",
        "growing_places": "grown_graph grown_places",
        "judging": "Grown Judgement judge",
        "memory": "DEVICE_MEMORY NATIVE_MEMORY device_rest explain_native explained_shares malloc_rest"
        " native_leak remark taken_by with_replaced with_rests",
        "pipeline": "check_steps",
        "session": "CheckSession",
        "ranking": "apart_from_logs counts_by_bytes drop_covered_bounds drop_noise is_bookkeeping is_worth_showing"
        " library_note ranked",
    },
)
