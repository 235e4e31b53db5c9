"""The metrics, each once: its name, its unit, what it says, how it is read. Every exporter reads this table.

The loops whose figures are told are read without holding any of their monitors.
"""

from __future__ import annotations

import enum
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leaklab.measure.gauges import free_accelerator_bytes, free_host_bytes
from leaklab.model.loop import LoopState, MonitorStatus
from leaklab.runtime.objects import loaded_variables
from leaklab.text import shorten, well_formed
from leaklab.version import __version__

_UNNAMED = "loop"
_NAME_LIMIT = 120
_N_HOLDERS = 10
"""A series begins with every new value of a label, and a database keeps all of them."""
_OTHER_HOLDER = "other"
_SUBSCRIPT = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]'\"])*\]")
"""Strings are matched whole: a key may have brackets in it."""


class Watched(Protocol):
    """A monitor, as far as its figures are told."""

    @property
    def status(self) -> MonitorStatus:
        """How things stand; cheap, from any thread."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One loop at one moment.

    Attributes:
        run: What the user calls the loop; two loops of one name get different ones.
        rank: Of this process among those of a distributed job; ``"0"`` where there is but one.
        status: How things stand.
        holder: Who holds the largest growth, without keys and positions: these may be data, and would make series
            without end. Empty where nothing grows or nobody is known.
    """

    run: str
    rank: str
    status: MonitorStatus
    holder: str


def _running() -> Sequence[Watched]:
    """Return the monitors that run. Where none was made the module of monitors is not loaded, nor is torch with it."""
    find = loaded_variables("leaklab.loop.running").get("running_monitors")
    return () if find is None else tuple(find())


class Loops:
    """The loops to be told of.

    A monitor that is gone, or that has ended where all running ones are told, is told of no more: its series end, as
    those of a process that has ended do, and an alert on it resolves. What was read of it is in the database; last
    figures that stayed would be an alarm for a loop that does not exist.

    Args:
        monitors: What `leaklab.monitor` gave; held weakly. None: those that run at the moment of reading.
        rank: Of this process; None: what ``torch.distributed`` says where it was initialised, else the environment
            (``RANK``, set by torchrun), else 0.

    Raises:
        TypeError: if one of *monitors* is something else.
    """

    def __init__(self, monitors: Sequence[Watched], rank: int | None = None) -> None:
        for monitor in monitors:
            if not isinstance(getattr(monitor, "status", None), MonitorStatus):
                msg = f"a monitor is what leaklab.monitor() gives, not {type(monitor).__name__!r}"
                raise TypeError(msg)
        self._find: Callable[[], Sequence[Watched]] = _given(monitors) if monitors else _running
        self._rank = str(_rank() if rank is None else rank)
        self._runs: weakref.WeakKeyDictionary[Watched, str] = weakref.WeakKeyDictionary()
        self._holders: set[str] = set()
        self._lock = threading.Lock()  # two programs may ask at once

    def read(self) -> list[Reading]:
        """Return one reading of each loop."""
        with self._lock:
            return [self._reading(monitor) for monitor in self._find()]

    def _reading(self, monitor: Watched) -> Reading:
        status = monitor.status
        run = self._runs.get(monitor)
        if run is None:
            run = self._runs[monitor] = _free_name(_label(self._bare(status.name)) or _UNNAMED, self._runs.values())
        return Reading(run, self._rank, status, self._holder(status))

    def _bare(self, name: str) -> str:
        """Return *name* without this rank, which callbacks of frameworks write after it: all ranks are one run."""
        return name.removesuffix(f"rank {self._rank}").rstrip()

    def _holder(self, status: MonitorStatus) -> str:
        if not status.holder or status.state not in {LoopState.GROWING, LoopState.LEAK}:
            return ""
        holder = _label(_SUBSCRIPT.sub("[...]", status.holder))
        if holder not in self._holders and len(self._holders) >= _N_HOLDERS - 1:
            return _OTHER_HOLDER
        self._holders.add(holder)
        return holder


def _given(monitors: Sequence[Watched]) -> Callable[[], list[Watched]]:
    references = [weakref.ref(monitor) for monitor in monitors]
    return lambda: [monitor for reference in references if (monitor := reference()) is not None]


def _rank() -> int:
    group = loaded_variables("torch.distributed")
    if "get_rank" in group and group["is_available"]() and group["is_initialized"]():
        return int(group["get_rank"]())
    given = os.environ.get("RANK", "")
    return int(given) if given.isdecimal() else 0


def _label(text: str) -> str:
    """Return *text* as one short line that can be encoded."""
    return shorten(well_formed(text), _NAME_LIMIT)


def _free_name(name: str, taken: Iterable[str]) -> str:
    used, free, number = set(taken), name, 1
    while free in used:
        number += 1
        free = f"{name} ({number})"
    return free


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
        "1 while an alarm is active: the growth takes memory that the loop needs before it ends.",
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
        "What all growing places take per step; 0 where nothing grows.",
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
