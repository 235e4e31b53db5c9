"""The records of a watch over a loop that runs once: its levels, its states, what each of its checks found."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from leaklab.model.check import Check, Leak
from leaklab.model.sentences import quoted

MONITOR_SCHEMA = 1
"""Raised whenever the record changes so that older files cannot be read any more."""


class LoopState(str, enum.Enum):
    """What is known of the loop now. Only ``leak`` is a verdict; the others may be left again."""

    WARMING_UP = "warming up"
    STEADY = "steady"
    GROWING = "growing"
    STOPPED = "stopped"
    LEAK = "leak"


@dataclass(frozen=True, slots=True)
class StateChange:
    """The loop, or one place in it, came into another state.

    Attributes:
        step: The step at which that was seen.
        state: The new state.
        words: One sentence for people, with place, rate, line and consequence where these are known.
        since_step: The step at which the growth was first seen; for ``stopped`` the one from which nothing grows.
        fingerprint: Of the leak this is about; empty where only a level rises.
        bytes_per_step: Growth; 0.0 where nothing grows.
        full_at_step: The step at which the free memory of host or card is used up at that rate; None if it never is,
            or later than the loop ends.
        is_alarm: Whether the growth matters: the memory it would take until the loop ends is a share of what is free
            that somebody has to know of.
    """

    step: int
    state: LoopState
    words: str
    since_step: int
    fingerprint: str = ""
    bytes_per_step: float = 0.0
    full_at_step: int | None = None
    is_alarm: bool = False


HOST, ACCELERATOR = MEMORIES = "host", "accelerator"
LEVEL_WORDS = {HOST: "the native heap", ACCELERATOR: "the accelerator's memory"}
LEVEL = "level:"
"""What the fingerprint of a level that rises begins with, by no place that was found."""


@dataclass(frozen=True, slots=True)
class GrowingPlace:
    """One place of a loop that grows, or did.

    Attributes:
        fingerprint: Of the leak, or `LEVEL` with the name of the memory.
        state: ``growing``, ``leak`` or ``stopped``.
        since_step: The step from which on it grows; for ``stopped`` the one from which on it does not.
        seen_at: The step at which it was first seen to.
        bytes_per_step: At the last look.
        memory: `HOST` or `ACCELERATOR`.
        leak: What the last check said, its rates per step; None for a level.
        is_alarm: Whether it was told that this matters.
    """

    fingerprint: str
    state: LoopState
    since_step: int
    seen_at: int
    bytes_per_step: float
    memory: str = HOST
    leak: Leak | None = None
    is_alarm: bool = False

    @property
    def stands(self) -> bool:
        """Whether it grows, as far as is known."""
        return self.state in (LoopState.GROWING, LoopState.LEAK)

    @property
    def name(self) -> str:
        """What people call it: its holder, or what grows."""
        if self.leak is None:
            return LEVEL_WORDS[self.memory]
        is_of_memory = self.leak.unit == "bytes" and not self.leak.path.steps  # held by nothing that has a name
        return quoted(self.leak.holder) if self.leak.holder and not is_of_memory else self.leak.what


@dataclass(frozen=True, slots=True)
class Levels:
    """Memory over the steps; all tuples have one length. What the system does not tell is -1.

    Attributes:
        steps: The steps after which the levels were read, ascending.
        seconds: Seconds since the loop began.
        heap_bytes: Handed out by malloc.
        rss_bytes: Resident set of the process.
        accelerator_bytes: Allocated on all accelerators.
        reserved_bytes: Reserved by torch's allocator on all accelerators.
    """

    steps: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    heap_bytes: tuple[int, ...] = ()
    rss_bytes: tuple[int, ...] = ()
    accelerator_bytes: tuple[int, ...] = ()
    reserved_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MonitorStatus:
    """What is known of the loop at one moment, as plain numbers: cheap to read at any time, from any thread.

    Attributes:
        name: What the user calls the loop.
        step: Steps made so far.
        seconds: Seconds since the loop began.
        state: The worst of the states of all places: ``leak`` before ``growing`` before the others.
        is_alarm: Whether an alarm stands.
        n_checks: Checks of a stretch of the loop that have ended.
        is_checking: Whether a stretch is being checked.
        bytes_per_step: What all that grows takes per step; 0.0 where nothing does.
        kept_bytes: What the growing places took since they were first seen.
        n_survivors: Objects that the runs of the last check left behind.
        n_tensors: Tensors alive at the last look at the heap; None before the first.
        full_at_step: The step at which memory is used up; None if it is not before the loop ends.
        total_steps: Steps of the whole loop; None if not given.
        heap_bytes: Handed out by malloc; None where the system does not tell.
        rss_bytes: Resident set of the process.
        accelerator_bytes: Allocated on all accelerators; None without one.
        own_seconds: What watching took so far.
        longest_seconds: The longest single pause of the loop by it.
        holder: Expression for the holder of the largest growth; empty where none is known.
    """

    name: str = ""
    step: int = 0
    seconds: float = 0.0
    state: LoopState = LoopState.WARMING_UP
    is_alarm: bool = False
    n_checks: int = 0
    is_checking: bool = False
    bytes_per_step: float = 0.0
    kept_bytes: float = 0.0
    n_survivors: int = 0
    n_tensors: int | None = None
    full_at_step: int | None = None
    total_steps: int | None = None
    heap_bytes: int | None = None
    rss_bytes: int = 0
    accelerator_bytes: int | None = None
    own_seconds: float = 0.0
    longest_seconds: float = 0.0
    holder: str = ""


@dataclass(frozen=True, slots=True)
class StretchCheck:
    """One check of a stretch of the loop.

    Attributes:
        first_step: The step before its first run.
        last_step: The step after its last run.
        steps_per_run: So many steps are one of its runs.
        check: Its record.
    """

    first_step: int
    last_step: int
    steps_per_run: int
    check: Check


@dataclass(frozen=True, slots=True)
class MonitorRecord:
    """Everything that is known of a loop.

    Attributes:
        status: How things stood at the end, or when the record was made.
        levels: Memory over the steps.
        changes: The states that were come to, in the order of their steps; of many, the first and the latest.
        places: What grows, leaks first, the largest rate first.
        stretches: The checks, oldest first; of many, the first and the latest.
        notes: Caveats and observations, one sentence each.
        failure: Name of what the loop raised; empty if it ended by itself, or goes on.
    """

    status: MonitorStatus
    levels: Levels
    changes: tuple[StateChange, ...] = ()
    places: tuple[GrowingPlace, ...] = ()
    stretches: tuple[StretchCheck, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    schema: int = MONITOR_SCHEMA
