"""Read the loops whose figures are told; hold none of their monitors."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from leaklab.model.loop import LoopState, MonitorStatus
from leaklab.runtime.objects import loaded_variables
from leaklab.text import shorten, well_formed

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
    find = loaded_variables("leaklab.loop.monitor").get("running_monitors")
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
