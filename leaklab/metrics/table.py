"""The metrics, each once: its name, its unit, what it says, how it is read. Every exporter reads this table."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leaklab.measure.gauges import free_accelerator_bytes, free_host_bytes
from leaklab.metrics.loops import Reading
from leaklab.model.loop import LoopState, MonitorStatus
from leaklab.version import __version__

Figures = Mapping[str, float]
"""Figures of one metric of one loop, by the value of the metric's own label; that is empty where it has none."""


class Kind(enum.Enum):
    """What a figure may do: a counter never falls while its loop lives."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: By the rules of Prometheus: base units, spelled out at the end; ``_total`` of a counter.
        dotted: By the rules of OpenTelemetry: names within names, no unit.
        unit: As UCUM writes it: ``By``, ``s``, ``{object}``; ``1`` of a number without unit.
        kind: Counter or gauge.
        help: One sentence.
        read: Returns its figures; none of what is not known.
        label: Its own label, beside ``run`` and ``rank``; empty if it has none.
    """

    name: str
    dotted: str
    unit: str
    kind: Kind
    help: str
    read: Callable[[Reading], Figures]
    label: str = ""


def _figure(of: Callable[[MonitorStatus], float | None]) -> Callable[[Reading], Figures]:
    def read(reading: Reading) -> Figures:
        figure = of(reading.status)
        return {} if figure is None else {"": float(figure)}

    return read


def _states(reading: Reading) -> Figures:
    return {outcome_label(state): float(state is reading.status.state) for state in LoopState}


def outcome_label(state: LoopState) -> str:
    """Return *state* as the value of the label ``outcome``."""
    return state.value.replace(" ", "_")


METRICS = (
    Metric(
        "leaklab_info", "leaklab.info", "1", Kind.GAUGE,
        "The version of leaklab that watches the loop; always 1.",
        lambda _: {__version__: 1.0}, label="version",
    ),
    Metric(
        "leaklab_verdict", "leaklab.verdict", "1", Kind.GAUGE,
        "1 for the state that the loop is in, 0 for the others; only leak is proven.",
        _states, label="outcome",
    ),
    Metric(
        "leaklab_alarm", "leaklab.alarm", "1", Kind.GAUGE,
        "1 while an alarm stands: the growth takes memory that the loop needs before it ends.",
        _figure(lambda status: status.is_alarm),
    ),
    Metric(
        "leaklab_leak_info", "leaklab.leak.info", "1", Kind.GAUGE,
        "Who holds the largest growth; always 1, and absent while nothing grows.",
        lambda reading: {reading.holder: 1.0} if reading.holder else {}, label="holder",
    ),
    Metric(
        "leaklab_steps_total", "leaklab.steps", "{step}", Kind.COUNTER,
        "Steps that the loop has made.",
        _figure(lambda status: status.step),
    ),
    Metric(
        "leaklab_planned_steps", "leaklab.steps.planned", "{step}", Kind.GAUGE,
        "Total steps of the loop; absent if total_steps was not given.",
        _figure(lambda status: status.total_steps),
    ),
    Metric(
        "leaklab_full_at_step", "leaklab.full_at", "{step}", Kind.GAUGE,
        "The step at which memory of host or accelerator is used up; absent if it lasts until the loop ends.",
        _figure(lambda status: status.full_at_step),
    ),
    Metric(
        "leaklab_growth_bytes_per_step", "leaklab.growth", "By/{step}", Kind.GAUGE,
        "What all that grows takes per step; 0 where nothing does.",
        _figure(lambda status: status.bytes_per_step),
    ),
    Metric(
        "leaklab_kept_bytes", "leaklab.kept", "By", Kind.GAUGE,
        "What the growing places took since they were first seen.",
        _figure(lambda status: status.kept_bytes),
    ),
    Metric(
        "leaklab_survivors_objects", "leaklab.survivors", "{object}", Kind.GAUGE,
        "Objects that the runs of the last check left behind.",
        _figure(lambda status: status.n_survivors),
    ),
    Metric(
        "leaklab_tensors", "leaklab.tensors", "{tensor}", Kind.GAUGE,
        "Tensors alive at the last look at the heap; absent before the first.",
        _figure(lambda status: status.n_tensors),
    ),
    Metric(
        "leaklab_heap_bytes", "leaklab.heap", "By", Kind.GAUGE,
        "Bytes allocated by malloc; absent where the system does not report them.",
        _figure(lambda status: status.heap_bytes),
    ),
    Metric(
        "leaklab_resident_bytes", "leaklab.resident", "By", Kind.GAUGE,
        "Resident set of the process.",
        _figure(lambda status: status.rss_bytes),
    ),
    Metric(
        "leaklab_accelerator_bytes", "leaklab.accelerator", "By", Kind.GAUGE,
        "Allocated by torch on all accelerators; absent without one.",
        _figure(lambda status: status.accelerator_bytes),
    ),
    Metric(
        "leaklab_host_available_bytes", "leaklab.host.available", "By", Kind.GAUGE,
        "Memory that the process can still have of the host without swapping, or of its container if that has less.",
        _figure(lambda _: free_host_bytes()),
    ),
    Metric(
        "leaklab_accelerator_available_bytes", "leaklab.accelerator.available", "By", Kind.GAUGE,
        "Free on the accelerator that has the least of it; absent without one.",
        _figure(lambda _: free_accelerator_bytes() or None),
    ),
    Metric(
        "leaklab_checks_total", "leaklab.checks", "{check}", Kind.COUNTER,
        "Checks of a stretch of the loop that have ended.",
        _figure(lambda status: status.n_checks),
    ),
    Metric(
        "leaklab_checking", "leaklab.checking", "1", Kind.GAUGE,
        "1 while a stretch of the loop is being checked.",
        _figure(lambda status: status.is_checking),
    ),
    Metric(
        "leaklab_watch_seconds_total", "leaklab.watch", "s", Kind.COUNTER,
        "What watching took of the loop's time.",
        _figure(lambda status: status.own_seconds),
    ),
    Metric(
        "leaklab_longest_pause_seconds", "leaklab.pause.longest", "s", Kind.GAUGE,
        "The longest single pause of the loop that watching made.",
        _figure(lambda status: status.longest_seconds),
    ),
)  # fmt: skip
