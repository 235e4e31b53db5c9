"""Figures of running loops for programs that watch them: Prometheus, OpenTelemetry, and trackers of experiments.

Nothing listens, sends or is written before a function here is called, and each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaklab.lazy import lazy_names

if TYPE_CHECKING:
    from leaklab.metrics.otel import Observation, observe
    from leaklab.metrics.prometheus import Collector, write_textfile
    from leaklab.metrics.pushing import Push, push
    from leaklab.metrics.serving import MetricsServer, serve
    from leaklab.metrics.shipped import alert_rules, dashboard
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
        "pushing": "Push push",
        "serving": "MetricsServer serve",
        "loops": "Loops Reading",
        "otel": "Observation observe",
        "prometheus": "Collector write_textfile",
        "shipped": "alert_rules dashboard",
        "table": "METRICS Kind Metric",
        "trackers": "TrackerLog log_to",
    },
)
