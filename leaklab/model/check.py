"""The records of a check: its settings, its verdict, what grows, and the leaks."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from leaklab.model.cure import Cure
from leaklab.model.paths import RootPath
from leaklab.model.stacks import NO_STACKS, AllocationStacks
from leaklab.text import visible

SCHEMA_VERSION = 1
"""Raised whenever a record changes so that older files cannot be read any more."""


class Outcome(str, enum.Enum):
    """What a check can say. ``bounded`` counts as not leaked."""

    LEAK = "leak"
    CLEAN = "clean"
    BOUNDED = "bounded"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a check is run. Validated by the front ends' parser and again here.

    Attributes:
        max_runs: Upper limit of measured runs (``-n``), at least 5; None lets the cost of a run decide, 40 to 1,000.
        n_warmups: Runs before the baseline (``-w``), at least 0.
        max_seconds: No new run starts after this many seconds of measuring (``-t``); those that a verdict needs, five,
            or eight while a question is open, may take as long again, and the traced ones come after them.
        name: What the user calls this check, shown in titles.
        summaries: Whether short summaries of values (shapes, lengths) may appear in the report.
        sites: Whether to run the code a few more times, traced, to name the lines that leak (``--sites``,
            ``--no-sites``); None: if a leak was found.
        native: Whether to run it under memray to name the C or C++ code that leaks (``--native``).
        cure: Whether to run it a few more times with changes that would end a leak (``--cure``, ``--no-cure``); None:
            if a leak was found, *sites* does not forbid further runs, and a run takes no longer than three seconds or
            can be made in a copy of the process.
        statements: Whether to run a cell a few more times statement by statement, to say which of them make what stays
            (``--statements``).
        min_bytes: What leaks fewer bytes in every run is told in the notes and is no leak of the verdict
            (``--min-bytes``); threads, callbacks, descriptors and child processes that pile up are leaks however small.
    """

    max_runs: int | None = None
    n_warmups: int = 1
    max_seconds: float = 60.0
    name: str = ""
    summaries: bool = True
    sites: bool | None = None
    native: bool = False
    cure: bool | None = None
    statements: bool = False
    min_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse settings under which no verdict is possible."""
        if self.max_runs is not None and self.max_runs < MIN_RUNS:
            msg = f"the number of runs must be at least {MIN_RUNS} to tell a leak from a warm-up, not {self.max_runs}"
            raise ValueError(msg)
        if self.n_warmups < 0:
            msg = f"the number of warm-up runs must be 0 or more, not {self.n_warmups}"
            raise ValueError(msg)
        if not self.max_seconds > 0:
            msg = f"the time limit must be a positive number of seconds, not {self.max_seconds}"
            raise ValueError(msg)
        if self.min_bytes < 0:
            msg = f"the bytes from which a leak counts must be 0 or more, not {self.min_bytes}"
            raise ValueError(msg)


MIN_RUNS = 5

DESCRIPTORS, CHILDREN = "file descriptors", "child processes"
"""Units of leaks that the kernel counts: no object needs to hold them, and they take no memory of this process."""
GRAPH_UNIT = "graph nodes"  # of a leak that is an autograd graph
UNREAD_GRAPH = "an autograd graph (most likely) that is too large to be read"
"""The holder of what hangs on more autograd nodes than can be followed."""
UNFOLLOWED_NODES = "autograd nodes were not followed further"  # in a note, where a graph is too large


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check says, with its reason and its numbers.

    Attributes:
        outcome: One of the four outcomes.
        reason: One sentence, with the figure that decided.
        n_runs: Measured runs, warm-ups not counted.
        bytes_per_run: Bytes that each run leaves behind, 0.0 unless the outcome is a leak.
        full_after_runs: Runs until this machine's free memory is used up at that rate; None if it never is.
    """

    outcome: Outcome
    reason: str
    n_runs: int
    bytes_per_run: float = 0.0
    full_after_runs: int | None = None

    def __str__(self) -> str:
        return visible(f"{self.outcome.value}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run.

    Attributes:
        number: 1 for the first measured run.
        seconds: Wall time of the user's code alone.
        n_born: Objects the run made that were alive at its end.
        n_kept: How many of them were still alive at the end of the check.
        n_tensors_kept: The tensors among those.
        tensor_bytes_kept: Bytes of their storages, each storage counted once.
        heap_bytes: Level of the native heap (malloc) after the run; None where the system cannot tell.
        python_blocks: Blocks that Python's own allocator has handed out; None but for the last run of each phase.
        accelerator_bytes: Level of the accelerator's allocated memory after the run; None without one.
        rss_bytes: Resident set of the process after the run. Shown, never decisive.
    """

    number: int
    seconds: float
    n_born: int
    n_kept: int
    n_tensors_kept: int
    tensor_bytes_kept: int
    heap_bytes: int | None
    python_blocks: int | None
    accelerator_bytes: int | None
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class ObjectGrowth:
    """Objects of one type that the runs left behind.

    Attributes:
        kind: Qualified name of the type, ``torch.Tensor``.
        kept: For each measured run, how many of the objects it made are alive at the end of the check.
        n_before: Objects of this type alive before the first measured run.
        n_after: The same after the last one.
        count_per_run: Objects left behind per run.
        bytes_per_run: Their bytes per run, storages of tensors included and counted once.
        outcome: The verdict on this row alone.
    """

    kind: str
    kept: tuple[int, ...]
    n_before: int
    n_after: int
    count_per_run: float
    bytes_per_run: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TensorGrowth:
    """Tensors of one shape, dtype and device that the runs left behind; fields as in `ObjectGrowth`."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    has_graph: bool
    kept: tuple[int, ...]
    bytes_kept: int
    count_per_run: float
    bytes_per_run: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ContainerGrowth:
    """A container, a buffer or a graph that grew in place.

    Attributes:
        kind: Type of the container, ``list``.
        holder: Python expression for it, or words where there is none.
        unit: What is counted: ``entries``, ``bytes``, ``characters``, ``graph nodes``.
        content: Type of what was added last, ``numpy.ndarray``; empty where it does not apply.
        lengths: Length at each checkpoint.
        at_runs: The measured runs after which those were taken; the first is 0.
        per_run: Growth per run, in *unit*.
        bytes_per_run: Growth per run in bytes, as far as it is known.
        outcome: The verdict on this container alone.
    """

    kind: str
    holder: str
    unit: str
    content: str
    lengths: tuple[int, ...]
    at_runs: tuple[int, ...]
    per_run: float
    bytes_per_run: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Way:
    """The references that lead to objects alike, positions in collections left out.

    Attributes:
        references: In their order: ``[i]``, ``['loss']``; ``...`` stands for those before it, repeated.
        kind: Type of what they lead to; empty where it does not matter.
        count: So many objects, or places, are reached like this.
    """

    references: tuple[str, ...]
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Leak:
    """Objects that grow for one reason, held in one place.

    Attributes:
        what: What grows, e.g. ``torch.Tensor (64, 128) float32 cpu``.
        path: From a root to one of the leaked objects.
        holder: Python expression for the object that should let go; words where Python has no expression.
        cause: Slug of the cause, ``unknown`` if no inspector knows it.
        advice: What to change, in the user's own names.
        bytes_per_run: Bytes left behind per run.
        count_per_run: Objects (or entries, or graph nodes: see *unit*) left behind per run.
        unit: What ``count_per_run`` counts: ``objects``, ``entries``, ``bytes``, ``characters``, ``graph nodes``,
            ``file descriptors``, ``child processes``.
        kept: For each measured run, what it made that is still alive; empty for growth that has no runs of birth.
        fingerprint: Same for the same leak tomorrow: no addresses, no list positions.
        reason: Why this is called a leak, one sentence with its figure.
        sites: Lines that made the leaked objects; empty unless traced.
        retained_bytes: Bytes that come back when all *holders* let go; for a container that grows in place, its buffer
            and the plain data that only it holds. None where it is not known.
        holders: Expressions of all known holders, *holder* first.
        others: What else each run leaves in the same place, as ``(kind, count_per_run)``.
        n_places: So many containers, alike but for a number in their names, grow as *holder* does; rates are of all.
        cures: Changes that would end it, with what came of trying them, best first.
        also_causes: Slugs of what else is so beside *cause*, most often none: ``open-figures``, ``graph-kept``.
        ways: The references by which the holder keeps what runs left, merged; empty where they were not looked at.
    """

    what: str
    path: RootPath
    holder: str
    cause: str
    advice: str
    bytes_per_run: float
    count_per_run: float
    unit: str
    kept: tuple[int, ...]
    fingerprint: str
    reason: str
    sites: tuple[str, ...] = ()
    retained_bytes: int | None = None
    holders: tuple[str, ...] = ()
    others: tuple[tuple[str, float], ...] = ()
    n_places: int = 1
    cures: tuple[Cure, ...] = ()
    also_causes: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """How much of what one kind of memory grows by is explained by what was found; all figures are bytes per run.

    Memory of Python's own allocator is in none of them: it tells no level in bytes.

    Attributes:
        memory: Which memory: ``native memory (malloc)``, ``accelerator memory (torch's allocator)``.
        grown_bytes: What its allocator hands out more after every run: measured.
        known_bytes: What was found takes of it, by its own sizes: storages of tensors, arrays, large objects.
        estimated_bytes: What it takes beside that by estimate: the C++ objects of tensors and graphs.
        possible_bytes: What grows in place: it may lie in Python's own memory as well.
        rest: What is known of the rest, one clause; empty where nothing is.
    """

    memory: str
    grown_bytes: float
    known_bytes: float
    estimated_bytes: float = 0.0
    possible_bytes: float = 0.0
    rest: str = ""

    @property
    def explained_bytes(self) -> float:
        """What is explained, at most all of it; an upper limit where there are *possible_bytes*."""
        return min(self.known_bytes + self.estimated_bytes + self.possible_bytes, self.grown_bytes)

    @property
    def rest_bytes(self) -> float:
        """What is not explained."""
        return self.grown_bytes - self.explained_bytes


@dataclass(frozen=True, slots=True)
class StatementGrowth:
    """What one statement of a cell made that was still alive runs later: births, of which others may be the holders.

    Several statements on one line are one. What such a statement made in place of older objects that it let go is not
    counted.

    Attributes:
        line: First line in the cell, 1 for the line of the magic.
        end_line: Last line.
        source: Its text.
        objects_per_run: Objects that the garbage collector lists: no numbers, no strings, no arrays.
        tensors_per_run: The tensors among those.
        bytes_per_run: Their bytes, with storages of tensors that no older tensor has.
        holders: Expressions for the holders of leaks that get their new entries while it runs.
    """

    line: int
    end_line: int
    source: str
    objects_per_run: float
    tensors_per_run: float
    bytes_per_run: float
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Everything one check found: the record behind a `LeakReport`.

    Attributes:
        verdict: Outcome, reason, numbers.
        leaks: Largest first.
        bounded: Places that grew and stopped, or whose limit is known: same shape as a leak, not counted as one.
        notes: Caveats and observations, one sentence each; what could not be measured is said here.
        failure: Empty, or why the check ended early (``ValueError in run 3``); the tables then hold what was measured.
        environment: Versions, as ``(name, version)``.
        statements: What each statement of the cell left behind, in their order; empty unless asked for.
        shares: How much of the growth of each kind of memory is explained; empty where none grows measurably.
        noted: Places that grow, or may, and are told in the notes only: a library's own tables, logs, what ends with a
            leak, what leaks less than the settings ask for. One that a later check calls a leak is no new leak.
        undecided: Places that grew so far and may leak: same shape as a leak, largest first. Their reasons say what is
            open; an inconclusive verdict is about the first of them.
        stacks: Which call stacks allocated what the leaks leave; empty unless traced.
    """

    settings: Settings
    verdict: Verdict
    leaks: tuple[Leak, ...]
    bounded: tuple[Leak, ...]
    objects: tuple[ObjectGrowth, ...]
    tensors: tuple[TensorGrowth, ...]
    containers: tuple[ContainerGrowth, ...]
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
    failure: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = SCHEMA_VERSION
    statements: tuple[StatementGrowth, ...] = ()
    shares: tuple[MemoryShare, ...] = ()
    noted: tuple[Leak, ...] = ()
    undecided: tuple[Leak, ...] = ()
    stacks: AllocationStacks = NO_STACKS


NOTEBOOK_SCHEMA = 1
"""Raised whenever the record of a collection changes so that older files cannot be read any more."""


@dataclass(frozen=True, slots=True)
class KeptCheck:
    """One check of a notebook.

    Attributes:
        check: Its record.
        place: Where it was made or where it is kept, in words (``In [4]``, ``variable report``); may be empty.
    """

    check: Check
    place: str = ""


@dataclass(frozen=True, slots=True)
class KeptView:
    """Another report that a magic has shown, as it was shown.

    Attributes:
        title: One line that names it.
        place: As in `KeptCheck`.
        text: The report as text.
        markup: The report as HTML that leaklab made and escaped; empty where there is none.
    """

    title: str
    place: str
    text: str
    markup: str = ""


@dataclass(frozen=True, slots=True)
class NotebookChecks:
    """All checks of one notebook, in the order in which they were made.

    Attributes:
        title: What the report is called, usually the name of the notebook; may be empty.
        checks: The checks.
        views: The other reports; they are shown, and not read back.
        notes: What the reader should know about the collection, one sentence each.
        failure: Empty, or why the notebook ended early.
        redacted: Whether summaries, keys and strings of the user's data were blanked.
    """

    title: str
    checks: tuple[KeptCheck, ...]
    views: tuple[KeptView, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    redacted: bool = False
    schema: int = NOTEBOOK_SCHEMA


@dataclass(frozen=True, slots=True)
class NativeParts:
    """What objects take of native memory, by how well it is known.

    Attributes:
        data_bytes: In malloc's heap, known: storages of tensors, and what is too large for Python's own allocator.
        cpp_bytes: In malloc's heap, estimated: the C++ objects behind tensors and autograd nodes.
        device_bytes: On accelerators: storages of tensors.
        n_threads: Threads. What C code keeps in malloc's heap for each of them is unknown.
        unplaced_bytes: What is counted both in *data_bytes* and in *device_bytes*, because in which memory it lies is
            not known: it may be that of Python's own allocator too.
    """

    data_bytes: float = 0.0
    cpp_bytes: float = 0.0
    device_bytes: float = 0.0
    n_threads: float = 0.0
    unplaced_bytes: float = 0.0

    @property
    def malloc_bytes(self) -> float:
        """The best estimate of what malloc has handed out for them."""
        return self.data_bytes + self.cpp_bytes

    def __add__(self, other: NativeParts) -> NativeParts:
        return NativeParts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def scaled(self, factor: float) -> NativeParts:
        """Return so many times as much."""
        return NativeParts(*(getattr(self, each.name) * factor for each in fields(self)))
