"""Explain what grows in native memory: what the leaks take, what nothing explains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leaklab.check.findings import Finding, Survey
from leaklab.check.judging import GrownRegistry, Judgement
from leaklab.decide.growth import ACCELERATOR_FLOOR_BYTES, NATIVE_FLOOR_BYTES, SURE_RUNS, Growth
from leaklab.explain.cycles.cycles import UNSEEN_ROOT
from leaklab.explain.idioms import find_cause
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.groups import Group
from leaklab.explain.leaks.sizes import GroupSizer, has_opaque
from leaklab.heap.paths import fingerprint
from leaklab.heap.view import HeapView
from leaklab.measure.measurement import Measurement
from leaklab.model import Leak, Outcome, RootPath
from leaklab.model.check import MemoryShare, NativeParts
from leaklab.text import format_bytes

CPP_DOUBT = 0.4
"""The C++ objects of one operation cost up to so much more or less than `GroupSizer.native_parts` estimates."""

DATA_DOUBT = 0.05
"""malloc rounds a block up: by 16 bytes, by 64 for the alignment of a storage, a large one to pages of 4 KiB. Of blocks
of more than 128 KiB, which get pages of their own, that is 3 %; smaller ones of tensors are part of the C++ figures."""

POOLED_DOUBT = 0.1
"""The array of an instance's attributes is in no figure of a type, and a large one comes from malloc, unlike the
object: for the figures of matplotlib 3.11, 157 KB of small objects, malloc gave 16 KB more than their sizes."""

THREAD_DOUBT_BYTES = 1024 * 1024
"""What C code keeps for a living thread: 5 KiB for one that only waits, 32 KiB after torch added two tensors in it, 216
KiB after a product of two 64 x 64 matrices, 0.8 MiB after one of 300 x 300 (measured; the workspace of MKL)."""

FEW_RUNS_DOUBT = 2.0
"""What tables gain at their next size, and allocators at their next arena, is no rate yet: for eight figures of
matplotlib malloc gave 24 KB more than their sizes, each."""

DEVICE_DOUBT = 1.0
"""torch counts an accelerator's blocks as it cut them: up to 1 MiB that is left over stays part of its block."""

LEAST_SHARE = 0.9
"""So much of the floor is enough: where the level is noisy, a leak of exactly the floor is read a little smaller."""


@dataclass(frozen=True, slots=True)
class NativeRest:
    """Growth of native memory that the leaks found do not explain.

    Attributes:
        bytes_per_run: The growth without what is explained.
        explained_bytes: What is explained, per run.
        doubt_bytes: By so much the explained part may be wrong.
        floor_bytes: The growth per run that can be distinguished from what caches and allocators do.
    """

    bytes_per_run: float
    explained_bytes: float
    doubt_bytes: float
    floor_bytes: int

    @property
    def is_small(self) -> bool:
        """Whether it cannot be distinguished from what caches and allocators do."""
        return self.bytes_per_run < LEAST_SHARE * self.floor_bytes

    @property
    def is_leak(self) -> bool:
        """Whether it is a leak of its own: not small, and more than the explained part can be wrong by."""
        return not self.is_small and self.bytes_per_run > self.doubt_bytes


def malloc_rest(
    growth: Growth | None,
    explained: NativeParts,
    floor_bytes: int,
    leaked_bytes: float = 0.0,
    n_runs: int = SURE_RUNS,
) -> NativeRest | None:
    """Return what remains of the growth of malloc's heap; None if the heap does not leak.

    Args:
        growth: The judgement on the heap.
        explained: What the leaks found take of it, per run.
        floor_bytes: Less than this per run cannot be distinguished from caches.
        leaked_bytes: Bytes per run of the leaks found, with what Python's own allocator has of them.
        n_runs: So many runs were measured.
    """
    doubt_bytes = (1.0 if n_runs >= SURE_RUNS else FEW_RUNS_DOUBT) * (
        CPP_DOUBT * explained.cpp_bytes
        + DATA_DOUBT * explained.data_bytes
        + POOLED_DOUBT * max(0.0, leaked_bytes - explained.malloc_bytes)
        + THREAD_DOUBT_BYTES * explained.n_threads
    )
    return _rest(growth, explained.malloc_bytes, doubt_bytes, floor_bytes)


def device_rest(growth: Growth | None, explained: NativeParts, floor_bytes: int) -> NativeRest | None:
    """Return what remains of the growth of accelerator memory; None if that does not leak."""
    return _rest(growth, explained.device_bytes, DEVICE_DOUBT * explained.device_bytes, floor_bytes)


def _rest(growth: Growth | None, explained_bytes: float, doubt_bytes: float, floor_bytes: int) -> NativeRest | None:
    if growth is None or growth.outcome is not Outcome.LEAK:
        return None
    return NativeRest(_rate(growth) - explained_bytes, explained_bytes, doubt_bytes, floor_bytes)


NO_PARTS = NativeParts()
NATIVE_MEMORY = "native memory (malloc)"
DEVICE_MEMORY = "accelerator memory (torch's allocator)"
_GRAPH_CAUSES = {"graph-kept", "immortal-cycle"}


def keeps_graphs(leak: Leak) -> bool:
    """Return whether *leak* is known to keep autograd graphs, whatever keeps it."""
    return not _GRAPH_CAUSES.isdisjoint((leak.cause, *leak.also_causes))


def is_native_memory(leak: Leak) -> bool:
    """Return whether *leak* is what nothing in Python explains of the native heap."""
    return leak.what == NATIVE_MEMORY and not leak.path.steps


def is_unheld_memory(leak: Leak) -> bool:
    """Return whether *leak* is what nothing in Python explains of the native heap or of accelerators."""
    return leak.what in {NATIVE_MEMORY, DEVICE_MEMORY} and not leak.path.steps


def taken_by(findings: Sequence[Finding], sizer: GroupSizer, measurement: Measurement) -> NativeParts:
    """Add up what *findings* take of native memory, per run.

    What grows in place may lie in native memory or in that of Python's own allocator: all of it is taken off, and so is
    what fills its limits. What an undecided place takes is not held by nothing: whether memory leaks there is that
    place's question.
    """
    survivors = {finding.leak.fingerprint: finding for finding in findings if finding.group is not None}
    leaks = [finding.leak for finding in findings if finding.is_leak]
    elsewhere = sum(finding.limited_bytes for finding in findings)
    undecided = sum(one.leak.bytes_per_run for one in findings if one.growth.outcome is Outcome.INCONCLUSIVE)
    elsewhere += undecided * measurement.n_runs / max(1, measurement.n_runs - 1)  # the last run's is in use, and taken
    elsewhere += sum(leak.bytes_per_run for leak in leaks if leak.fingerprint not in survivors)
    first, last = measurement.checkpoints[0], measurement.checkpoints[-1]
    n_threads = max(0, last.n_threads - first.n_threads) / max(1, measurement.n_runs)
    total = NativeParts(elsewhere, device_bytes=elsewhere, n_threads=n_threads, unplaced_bytes=elsewhere)
    for leak in leaks:
        finding = survivors.get(leak.fingerprint)
        if finding is not None and finding.group is not None:
            parts = sizer.native_parts(finding.group.members, finding.group.entries)
            total += parts.scaled(finding.share)
    return total


def swelling(view: HeapView, sizer: GroupSizer, group: Group) -> float:
    """Return by how many bytes per run a place that is full grows all the same: its newest entries are larger.

    A cache of the last 32 results grows for ever if each result is larger than the one before.
    """
    by_run: dict[int, list[int]] = defaultdict(list)
    for member in group.members:
        by_run[int(view.blamed_run[member])].append(member)
    if len(by_run) < _LEAST_WINDOW:
        return 0.0
    return max(0.0, float(sizer.bytes_of(by_run[max(by_run)]) - sizer.bytes_of(by_run[min(by_run)])))


_LEAST_WINDOW = 4
"""The remains of fewer runs show no trend in their sizes."""


@dataclass(frozen=True, slots=True)
class NativeMemory:
    """What native memory adds to what was found.

    Attributes:
        leaks: All leaks: those found, and what they do not explain.
        notes: What grows but is no leak of its own.
        charged: The kinds of memory of which the growth that nothing explains was taken for that of a leak found.
        parts: What the leaks found take of native memory, per run; nothing where that does not grow.
        charged_bytes: What malloc hands out beyond that, per run, and was taken for that of a leak found.
    """

    leaks: tuple[Leak, ...]
    notes: tuple[str, ...] = ()
    charged: frozenset[str] = frozenset()
    parts: NativeParts = NO_PARTS
    charged_bytes: float = 0.0

    @property
    def native_bytes(self) -> float:
        """What malloc hands out per run for the leaks that Python explains."""
        return self.parts.malloc_bytes + self.charged_bytes


def explain_memory(survey: Survey, findings: Sequence[Finding]) -> NativeMemory:
    """Add what grows in native memory beyond what *findings* explain to the leaks among these."""
    view, judgement, measurement = survey.view, survey.judgement, survey.measurement
    leaks = [finding.leak for finding in findings if finding.is_leak]
    growths = (judgement.native, judgement.accelerator, judgement.creeping)
    if not any(growth is not None and growth.rate for growth in growths):
        return NativeMemory(tuple(leaks))
    parts = taken_by(findings, survey.sizer, measurement)
    levels = measurement.meters.heap(survey.n_runs)
    opaque = frozenset(
        finding.leak.fingerprint
        for finding in findings
        if keeps_step(finding.leak, levels) and (finding.is_opaque or has_opaque(finding.newest(view)))
    )
    return explain_native(judgement, leaks, parts, n_unwalked=view.n_unwalked, opaque=opaque, n_runs=survey.n_runs)


def explain_native(
    judgement: Judgement,
    leaks: Sequence[Leak],
    explained: NativeParts,
    *,
    n_unwalked: int = 0,
    opaque: Collection[str] = (),
    n_runs: int = SURE_RUNS,
) -> NativeMemory:
    """Add what grows in native memory beyond what *leaks* explain.

    Args:
        judgement: What the rules say of malloc's heap and of accelerators.
        leaks: What was found in Python.
        explained: What they take of native memory, per run.
        n_unwalked: Autograd nodes whose inputs were not looked at: what they keep is in no other figure.
        opaque: Fingerprints of leaks of objects that C code of an extension made: what these allocate is not known.
        n_runs: So many runs were measured.
    """
    leaked_bytes = sum(leak.bytes_per_run for leak in leaks)
    native = malloc_rest(judgement.native, explained, NATIVE_FLOOR_BYTES, leaked_bytes, n_runs)
    rests = (
        (native, NATIVE_MEMORY, judgement.native),
        (device_rest(judgement.accelerator, explained, ACCELERATOR_FLOOR_BYTES), DEVICE_MEMORY, judgement.accelerator),
    )
    found, notes, charged = list(leaks), [], set()
    for rest, memory, growth in rests:
        if rest is None or growth is None:
            continue
        if not rest.is_leak:
            notes += [] if (words := remark(rest, memory)) is None else [words]
        elif n_unwalked and (graphs := [leak for leak in found if keeps_graphs(leak)]):
            found = _charged(found, graphs, rest, memory, "the graphs are too large to be counted")
            charged.add(memory)
        elif unseen := [leak for leak in found if leak.fingerprint in opaque]:
            found = _charged(found, unseen, rest, memory, "Python does not show what its objects allocate in C code")
            charged.add(memory)
        else:
            found.append(native_leak(rest, memory, growth.reason, judgement.suspect()))
    charged_bytes = native.bytes_per_run if native is not None and NATIVE_MEMORY in charged else 0.0
    return NativeMemory(tuple(found), tuple(notes), frozenset(charged), explained, charged_bytes)


def keeps_step(leak: Leak, levels: Sequence[float] | None) -> bool:
    """Return whether native memory grows no more often than *leak* gains objects, so that it may be theirs.

    Args:
        leak: Of objects whose own memory is not seen.
        levels: The native heap before the first run and after each; None where it is not known.
    """
    if levels is None or len(levels) < 2:  # noqa: PLR2004 - a step is between two
        return True
    lasting = np.minimum.accumulate(np.asarray(levels)[::-1])[::-1]  # what a later run gives back is no step
    steps = np.diff(lasting)
    return bool(np.mean(steps > steps.mean() / 2) <= _AS_OFTEN * leak.count_per_run)


_AS_OFTEN = 2.0
"""Memory of one object may be asked for in two runs: when it is made, and when it is used first."""


def native_leak(rest: NativeRest, memory: str, reason: str, suspect: GrownRegistry | None = None) -> Leak:
    """Return the leak of what nothing in Python explains; *suspect* is the registry that grows meanwhile."""
    path = RootPath(UNSEEN_ROOT if suspect is None else suspect.registry.suspicion, ())
    evidence = Evidence(
        path, "", "", None, frozenset(), frozenset(), memory, "bytes", has_tensors=False, has_graph=False
    )
    cause = find_cause(evidence)
    return Leak(
        what=memory,
        path=path,
        holder="nothing that Python can see" if suspect is None else suspect.registry.suspicion,
        cause=cause.slug,
        advice=cause.advice,
        also_causes=cause.also,
        bytes_per_run=rest.bytes_per_run,
        count_per_run=rest.bytes_per_run,
        unit="bytes",
        kept=(),
        fingerprint=fingerprint([memory]),
        reason=f"{memory}: {reason}; Python's objects explain {format_bytes(rest.explained_bytes)} per "
        f"run{_give_or_take(rest)}. Growth below {format_bytes(rest.floor_bytes)} per run cannot be "
        f"distinguished from caches{'' if suspect is None else f'; {suspect.words}'}",
    )


def remark(rest: NativeRest, memory: str) -> str | None:
    """Say what grows in *memory* although it is no leak of its own; None for what is too little to be worth a word.

    Half of the floor is what the rule for levels calls growth at all. Half of the doubt is more than estimates are
    usually wrong by: in checks of 25 small programs it was 16 % for graphs, 25 % for models without one, or less.
    """
    if rest.bytes_per_run < max(rest.floor_bytes, rest.doubt_bytes) / 2:
        return None
    if rest.bytes_per_run <= rest.doubt_bytes:
        return (
            f"{memory} grows by {format_bytes(rest.bytes_per_run)} per run more than the estimate for the leaks "
            f"({format_bytes(rest.explained_bytes)}, give or take {format_bytes(rest.doubt_bytes)}): too uncertain to "
            "report as a separate leak"
        )
    return without_explanation(rest, memory)


def without_explanation(rest: NativeRest, memory: str) -> str:
    """Say that *memory* grows, that nothing explains it, and why it is no leak of its own."""
    return (
        f"{memory} grows by {format_bytes(rest.bytes_per_run)} per run without an explanation, but growth below "
        f"{format_bytes(rest.floor_bytes)} cannot be distinguished from caches"
    )


def _give_or_take(rest: NativeRest) -> str:
    return f", give or take {format_bytes(rest.doubt_bytes)}" if rest.doubt_bytes >= 1 else ""


def _charged(
    leaks: Sequence[Leak], candidates: Sequence[Leak], rest: NativeRest, memory: str, because: str
) -> list[Leak]:
    """Charge what nothing explains to the largest of *candidates*, whose own size is not known."""
    largest = max(candidates, key=lambda leak: leak.bytes_per_run)
    charged = replace(
        largest,
        bytes_per_run=largest.bytes_per_run + rest.bytes_per_run,
        reason=(
            f"{largest.reason}; {because}, so {format_bytes(rest.bytes_per_run)} per run of {memory} that nothing "
            "else explains are attributed to these objects"
        ),
    )
    return [charged if leak is largest else leak for leak in leaks]


_SMALL_SHARE = 0.01
"""A smaller rest is not spoken of: the rates are no more exact than that."""
_CACHED = "is a cache of a native library, which stops growing"
_LEAK = "has no visible holder, and is reported as a separate leak"
_CHARGED = "is attributed to these leaks, because what they keep in C++ cannot be counted"
_UNKNOWN = "is unexplained: it may lie in allocator caches or C code, or an estimate may be off"


def explained_shares(judgement: Judgement, parts: NativeParts) -> tuple[MemoryShare, ...]:
    """Return the share of each kind of memory that grows by so much that its allocator's own ways do not matter.

    Beside a smaller growth the book-keeping of malloc, and what an estimate is wrong by, would pass for another leak.

    *parts* is what everything found takes of them, per run.
    """
    host = MemoryShare(
        NATIVE_MEMORY,
        _rate(judgement.native),
        parts.data_bytes - parts.unplaced_bytes,
        parts.cpp_bytes,
        parts.unplaced_bytes,
    )
    # What grows in place is taken for the host's alone: no tensor of an accelerator grows without being replaced.
    device = MemoryShare(DEVICE_MEMORY, _rate(judgement.accelerator), parts.device_bytes - parts.unplaced_bytes)
    return tuple(share for share in (host, device) if share.grown_bytes > 0)


def _rate(growth: Growth | None) -> float:
    """Return the bytes per run of what grows for certain, else 0.0.

    What is explained is a mean over all runs: of a leak that gets faster the later runs' rate is larger.
    """
    if growth is None or growth.outcome is not Outcome.LEAK:
        return 0.0
    return growth.rate if growth.mean_rate is None else min(growth.rate, growth.mean_rate)


def with_replaced(shares: Sequence[MemoryShare], n_bytes: Mapping[str, float]) -> tuple[MemoryShare, ...]:
    """Return *shares* with *n_bytes* more per run of each memory known: what is replaced by something larger."""
    return tuple(replace(share, known_bytes=share.known_bytes + n_bytes[share.memory]) for share in shares)


def left_over(unheld: Sequence[Leak], taken: Mapping[str, float]) -> Iterator[Leak]:
    """Yield what is left of *unheld* where *taken* bytes per run of each memory have got a holder."""
    for leak in unheld:
        rest = leak.bytes_per_run - taken[leak.what]
        if rest > max(LEAST_SHARE * _FLOORS[leak.what], _SHARE_LEFT * leak.bytes_per_run):
            yield replace(leak, bytes_per_run=rest, count_per_run=rest)


_FLOORS = {NATIVE_MEMORY: NATIVE_FLOOR_BYTES, DEVICE_MEMORY: ACCELERATOR_FLOOR_BYTES}
_SHARE_LEFT = 0.25
"""What is left of a growth is a leak of its own if it is more than so much of that."""


def with_rests(
    shares: Sequence[MemoryShare], leaks: Sequence[Leak], bounded: Sequence[Leak], charged: Collection[str]
) -> Iterator[MemoryShare]:
    """Yield *shares* with what is known of their rests.

    Args:
        shares: Of each kind of memory.
        leaks: What was found, native memory without a holder included.
        bounded: What stops growing.
        charged: The kinds of memory whose rest was taken for that of a leak found.
    """
    cached, unheld = ({leak.what for leak in found if not leak.path.steps} for found in (bounded, leaks))
    for share in shares:
        rest = ""
        if share.rest_bytes > _SMALL_SHARE * share.grown_bytes:
            known = {_CACHED: cached, _LEAK: unheld, _CHARGED: charged}
            rest = next((words for words, memories in known.items() if share.memory in memories), _UNKNOWN)
        yield replace(share, rest=rest)
