"""Figures of running loops for programs that watch them: Prometheus, OpenTelemetry, and trackers of experiments.

Nothing listens, sends or is written before a function here is called, and each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaklab.lazy import lazy_names

if TYPE_CHECKING:
    from leaklab.metrics.otel import Observation, observe
    from leaklab.metrics.prometheus import (
        Collector,
        MetricsServer,
        Push,
        alert_rules,
        dashboard,
        push,
        serve,
        write_textfile,
    )
    from leaklab.metrics.trackers import TrackerLog, log_to

__all__ = [
    "Collector",
    "MetricsServer",
    "Observation",
    "Push",
    "TrackerLog",
    "alert_rules",
    "dashboard",
    "log_to",
    "observe",
    "push",
    "serve",
    "write_textfile",
]
__getattr__ = lazy_names(
    __name__,
    {
        "prometheus": "Push push MetricsServer serve Collector write_textfile alert_rules dashboard",
        "otel": "Observation observe",
        "trackers": "TrackerLog log_to",
    },
)
