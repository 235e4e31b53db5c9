"""The steps of a check that join the stages: the pipeline calls them."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "explained": "Explained",
        "explaining": "explain_growth",
        "extra_runs": "find_lines whose",
        "growing_places": "grown_graph grown_places",
        "judging": "GrownContainer Judgement judge",
        "memory_shares": "explained_shares with_replaced with_rests",
        "native": "DEVICE_MEMORY NATIVE_MEMORY NativeShares device_rest explain_native malloc_rest native_leak remark",
        "pipeline": "check_steps",
        "runner": "Cell",
        "ranking": "apart_from_logs counts_by_bytes drop_covered_bounds drop_noise is_bookkeeping is_worth_showing"
        " library_note ranked",
    },
)
