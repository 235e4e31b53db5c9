"""STAGE 1: what is alive, born and kept after each run. Touches live objects."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "allocation_lines": "Makers StorageLines innermost_and_asking line_that_made",
        "census": "Census DisturbedError FrozenCensus RefreezingCensus ScanCensus sorted_census",
        "change_lines": "LineWatch watchpoint",
        "checkpoint": "Lengths container_lengths follow heap_objects take_checkpoint",
        "cycle_lines": "ClosingWatch CycleShape CycleStep is_closed",
        "gauges": "MemoryLimit accelerator_bytes accelerator_levels free_accelerator_bytes free_host_bytes memory_limit"
        " native_heap_bytes peak_accelerator_bytes rss_bytes",
        "heap_snapshot": "notebook_context",
        "level_history": "N_KEPT LevelHistory",
        "measurement": "Cohorts Measurement choose_baseline thawed",
        "meters": "Meters native_caches_off",
        "native_lines": "NativeTraces require_memray",
        "object_traces": "N_FRAMES python_traces",
        "slots": "GrownSlot find_slots grown_slots",
        "snapshot_sizes": "take_totals",
    },
)
