"""The records of CUDA memory snapshots: live bytes by call stack, pools, moments, and series of snapshots."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from leaklab.model.check import Outcome, Verdict
from leaklab.model.stacks import FrameNode


class CallFrame(NamedTuple):
    """One line of a call stack, as torch wrote it."""

    name: str
    filename: str
    line: int


BEFORE, NO_STACK, CPP, OTHERS = "(allocated before the trace)", "(no stack)", "(C++ only)", "(other stacks)"
"""What stands in the place of a call stack where a block has none, or none of the program's, or is one of many."""


class StackKey(str, enum.Enum):
    """By what two call stacks are called the same."""

    EXACT = "exact"  # every frame: function, path, line
    PROJECT = "project"  # file name and function of the project's own frames


class StackChange(str, enum.Enum):
    """What became of a call stack from the first snapshot to the last."""

    NEW = "new"
    GROWN = "grown"
    SAME = "same"
    SHRUNK = "shrunk"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LiveStack:
    """The live blocks of one call stack; without frames, the live blocks of one size in one pool.

    Attributes:
        device: ``cuda:0``, or ``pinned host``.
        label: The stack in one line, innermost project frame first.
        frames: Innermost first; empty where nothing was recorded.
        pool: The pool of frameless blocks, empty for others.
        n_blocks: Live blocks.
        active_bytes: Their bytes as the allocator counts them: rounded up.
        requested_bytes: What the program asked for.
        pending_bytes: The part that is freed already and waits for another stream.
    """

    device: str
    label: str
    frames: tuple[CallFrame, ...]
    pool: str
    n_blocks: int
    active_bytes: int
    requested_bytes: int
    pending_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PoolUse:
    """How one pool of the allocator uses its memory.

    Attributes:
        device: As in `LiveStack`.
        pool: In words: ``large``, ``small, private pool 0.1``, ``large, stream 1``; empty for a sum over pools.
        n_segments: Pieces of memory taken from the driver.
        reserved_bytes: Their bytes.
        active_bytes: In live blocks.
        requested_bytes: What the program asked for, of the live blocks.
        pending_bytes: As in `LiveStack`.
        inactive_split_bytes: Free, but beside live blocks: ``torch.cuda.empty_cache()`` cannot give them back.
        releasable_bytes: What it gives back: segments without a live block, free pages of expandable segments.
        largest_free_bytes: The largest free block.
    """

    device: str
    pool: str
    n_segments: int
    reserved_bytes: int
    active_bytes: int
    requested_bytes: int
    pending_bytes: int
    inactive_split_bytes: int
    releasable_bytes: int
    largest_free_bytes: int

    @property
    def fragmentation(self) -> float:
        """The share of the reserved bytes that is free beside live blocks, 0.0 to 1.0."""
        return self.inactive_split_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


@dataclass(frozen=True, slots=True)
class TracePoint:
    """What was live at one event of the trace. Bytes are requested bytes: the trace records no rounding.

    Attributes:
        device: As in `LiveStack`.
        kind: ``peak`` or ``oom``.
        event: Position in the trace, from 1; 0 is the state before its first event.
        n_events: Length of the trace.
        time_us: Time of the event, microseconds since 1970; None where it was not recorded.
        live_bytes: Requested bytes of all live blocks.
        wanted_bytes: What could not be allocated (``oom``); None for a peak.
        free_bytes: What the device had left (``oom``); None for a peak.
        request: The stack that asked for it (``oom``), innermost first.
        request_label: That stack in one line, the project's own frames; empty for a peak.
        stacks: What was live, largest first.
        reserved_bytes: What the allocator had taken from the driver; None where the file has no addresses.
        reserved_free_bytes: The part of it in no live block.
        largest_free_bytes: The largest piece of that: nothing larger fits without new memory from the driver.
    """

    device: str
    kind: str
    event: int
    n_events: int
    time_us: int | None
    live_bytes: int
    wanted_bytes: int | None
    free_bytes: int | None
    request: tuple[CallFrame, ...]
    stacks: tuple[LiveStack, ...]
    request_label: str = ""
    reserved_bytes: int | None = None
    reserved_free_bytes: int | None = None
    largest_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The memory of one device along its trace, at the highest event of each stretch. Bytes are requested bytes.

    Attributes:
        device: As in `LiveStack`.
        n_events: Length of the trace.
        seconds: From its first event to its last; None where times were not recorded.
        at_events: Positions of the samples, ascending: the first event with the most live bytes of each stretch, and
            both ends; 0 is the state before the first event.
        live_bytes: At each sample.
        reserved_bytes: At each sample, as far as the trace recorded segments.
        bands: Live bytes of the largest groups of stacks, with their label; they sum up to ``live_bytes``.
        peak_event: Position of the largest ``live_bytes``.
    """

    device: str
    n_events: int
    seconds: float | None
    at_events: tuple[int, ...]
    live_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    bands: tuple[tuple[str, tuple[int, ...]], ...]
    peak_event: int


@dataclass(frozen=True, slots=True)
class TracePhase:
    """What the memory of a device did within the parts of a program that one annotation names.

    Such names come from ``torch.profiler.record_function``, optimizers among others, where the recording was told to
    keep them (``global_record_annotations=True``). Bytes are requested bytes.

    Attributes:
        device: As in `LiveStack`.
        name: The annotation.
        n_times: How often it begins within the trace.
        first_event: Position in the trace at which it first begins.
        start_bytes: Live when it first begins.
        highest_bytes: The most that was live within it.
        end_bytes: Live when it ends for the last time.
    """

    device: str
    name: str
    n_times: int
    first_event: int
    start_bytes: int
    highest_bytes: int
    end_bytes: int


@dataclass(frozen=True, slots=True)
class MapStack:
    """A call stack of blocks on a map: its one line, its group of the timeline, its frames innermost first."""

    label: str
    group: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Where the blocks of one device lay along its trace: rectangles, events across and addresses upwards.

    Columns hold little-endian numbers, one for each rectangle. A rectangle is there from the state after *first* events
    until the one before *last* events, which is ``n_events + 1`` where it is there at the end.

    Attributes:
        device: As in `LiveStack`.
        n_events: Length of the trace.
        height: Bytes of all segments that there ever were, each address once, with the gaps between them.
        n_left_out: Blocks that are not on the map: the smallest of very many, or such as lie in no segment.
        first: Unsigned, 32 bits.
        last: Unsigned, 32 bits.
        bottom: Bytes above the lowest address of the map, 64-bit floats.
        size: Requested bytes, 64-bit floats.
        stack: Positions in *stacks*, unsigned, 32 bits.
        segment_first: As *first*, of reserved memory.
        segment_last: As *last*.
        segment_bottom: As *bottom*.
        segment_size: As *size*.
        stacks: Of the blocks.
        marks: Events to be marked, with their words.
        phases: Annotations: state at which one begins, state behind its last, name; outer ones first.
        peaks: Events with the most live bytes of each stretch of the trace, with those bytes: ``(event, bytes)``.
    """

    device: str
    n_events: int
    height: float
    n_left_out: int
    first: bytes
    last: bytes
    bottom: bytes
    size: bytes
    stack: bytes
    segment_first: bytes
    segment_last: bytes
    segment_bottom: bytes
    segment_size: bytes
    stacks: tuple[MapStack, ...]
    marks: tuple[tuple[int, str], ...]
    phases: tuple[tuple[int, int, str], ...]
    peaks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StackGrowth:
    """One call stack across two or more snapshots.

    Attributes:
        device: As in `LiveStack`.
        label: As in `LiveStack`.
        frames: Of the largest of the stacks that the key puts together.
        change: From the first snapshot to the last.
        n_blocks: In each snapshot.
        live_bytes: Requested bytes of the live blocks, in each snapshot. What the allocator adds by rounding depends on
            which free block it finds, and would look like growth.
        outcome: The verdict on this stack alone.
        bytes_per_step: Growth per step where the outcome is a leak or open, else 0.0.
    """

    device: str
    label: str
    frames: tuple[CallFrame, ...]
    change: StackChange
    n_blocks: tuple[int, ...]
    live_bytes: tuple[int, ...]
    outcome: Outcome
    bytes_per_step: float

    @property
    def growth_bytes(self) -> int:
        """Live bytes in the last snapshot minus those in the first."""
        return self.live_bytes[-1] - self.live_bytes[0]


@dataclass(frozen=True, slots=True)
class SnapshotSeries:
    """Two or more snapshots, compared by call stack.

    Attributes:
        names: Of the snapshots, oldest first.
        at_steps: The step at which each was taken.
        has_steps: Whether those are known; if not, they are numbered from 0.
        key: By which stacks were matched.
        key_reason: Why that key, with the shares that decided.
        stacks: Largest change first.
        tree: Where the growth comes from: frames of the stacks that grew, with the bytes they grew by.
        devices: Each device's use in each snapshot: ``devices[i]`` belongs to ``names[i]``.
        verdict: On the series; two snapshots never make a leak.
        card_bytes: Memory of the card that the projection reaches for; None if unknown.
        full_at_step: The step at which the growth fills the card; None if it does not, or the card is unknown.
        notes: What could not be read or does not add up.
        statements: What becomes of reserved memory, where it grows or is more than the card has.
    """

    names: tuple[str, ...]
    at_steps: tuple[int, ...]
    has_steps: bool
    key: StackKey
    key_reason: str
    stacks: tuple[StackGrowth, ...]
    tree: FrameNode
    devices: tuple[tuple[PoolUse, ...], ...]
    verdict: Verdict
    card_bytes: int | None
    full_at_step: int | None
    notes: tuple[str, ...]
    statements: tuple[str, ...] = ()

    @property
    def growth_bytes(self) -> int:
        """Live bytes of all stacks in the last snapshot minus those in the first."""
        return sum(stack.growth_bytes for stack in self.stacks)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Everything one snapshot tells, worked out.

    Attributes:
        name: Of the file.
        devices: One sum over its pools for each device.
        pools: The pools, device by device.
        stacks: Live bytes by exact call stack, largest first.
        moments: Peaks and out-of-memory events, where there is a trace.
        timelines: One for each device with a trace.
        tree: Frames of all stacks, outermost first.
        notes: What could not be read or does not add up.
        phases: By annotation, in the order in which they first begin.
    """

    name: str
    devices: tuple[PoolUse, ...]
    pools: tuple[PoolUse, ...]
    stacks: tuple[LiveStack, ...]
    moments: tuple[TracePoint, ...]
    timelines: tuple[Timeline, ...]
    tree: FrameNode
    notes: tuple[str, ...]
    phases: tuple[TracePhase, ...] = ()
