"""Name what C code keeps: the store of what no Python object refers to, the function that takes memory.

The code is run a few more times, and a profile function (``sys.setprofile``) is told of every call from Python into C.
Before and after one that fills a registry the references to the young objects are counted: what has more of them
afterwards, and is reached by nothing that Python shows, was given to a store by that call, and by that line. Of any
other function that would not be proof: many return what they are given. Under memray, every function of C or C++ is
known by what it allocates and leaves.
"""

from __future__ import annotations

import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from leaklab.check.findings import Explained, FoundLines, Places
from leaklab.check.line_search import whose
from leaklab.check.session import CheckSession, Ran, RunRequest
from leaklab.check.stacks import named_stacks
from leaklab.explain.cycles.cycles import ENTRY, UNSEEN_ROOT, top_steps, unseen_fingerprint
from leaklab.explain.cycles.region import Region
from leaklab.explain.idioms import find_cause
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.source_lines import LineWriter
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.lines.arrival import Line
from leaklab.lines.asked import frames_from, innermost_and_asking, line_of
from leaklab.lines.change import Whose
from leaklab.lines.native import NativeGrowth, NativeTraces
from leaklab.measure.registries import REGISTRIES, registry_of_call, registry_on
from leaklab.model import Leak, RootPath, Status
from leaklab.runtime.objects import is_kind_of, type_name
from leaklab.runtime.ours import is_own_kind
from leaklab.text import format_bytes

_FEWEST_RUNS, _MOST_RUNS = 2, 16
_MAX_SECONDS = 20.0
"""Runs that take longer together than this are not made for what leaks in some runs only."""


def name_unseen(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Run the code a few more times, if something leaks that no Python object refers to, and name what keeps it.

    Returns:
        *explained*, with the stores that were found as holders, and the lines that gave something to them.
    """
    wanted = {leak.fingerprint: leak for leak in explained.leaks if _is_unseen(leak)}
    seconds_left, measurement = session.seconds_left, session.measurement
    if session.settings.sites is False or session.failure or not wanted or seconds_left <= 0:
        return explained
    watch = StoreCalls(measurement.young, whose)
    n_runs = max(math.ceil(1 / max(leak.count_per_run, 1 / _MOST_RUNS)) + 1 for leak in wanted.values())
    next_run, spent = session.next_run, 0.0
    measurement.open_phase()
    try:
        for number in range(min(max(n_runs, _FEWEST_RUNS), _MOST_RUNS)):
            if spent >= (seconds_left if number < _FEWEST_RUNS else min(seconds_left, _MAX_SECONDS)):
                break
            with watch.watched() as is_on:
                seconds, failure = (yield next_run + number) if is_on else (0.0, "")
            spent += seconds
            if failure or not is_on:
                break
    finally:
        measurement.abandon()
    if not watch.calls:
        return explained
    with borrow_heap(NO_BIRTHS, session.namespace, (measurement, watch), heap=measurement.heap()) as view:
        stores = _stores(view, watch.calls, wanted)
    leaks = tuple(
        stores[leak.fingerprint].holding(leak) if leak.fingerprint in stores else leak for leak in explained.leaks
    )
    return replace(explained, leaks=leaks, lines=(*explained.lines, _lines(stores, LineWriter(session.cell_name))))


def _is_unseen(leak: Leak) -> bool:
    is_suspected = (registry := registry_on(leak.path)) is not None and leak.path.root == registry.suspicion
    return leak.unit == "objects" and (leak.path.root == UNSEEN_ROOT or is_suspected)


@dataclass(frozen=True, slots=True)
class _StoreInC:
    """What keeps one leak.

    Attributes:
        path: To its newest entry.
        holder: What the report calls it.
        calls: Those that gave it what leaks.
    """

    path: RootPath
    holder: str
    calls: tuple[StoringCall, ...]

    def holding(self, leak: Leak) -> Leak:
        """Return *leak* with this store as its holder."""
        evidence = Evidence(
            self.path, self.holder, "", None, frozenset(), frozenset(), leak.what, leak.unit,
            has_tensors=False, has_graph=False,
        )  # fmt: skip
        cause = find_cause(evidence)
        reason = leak.reason.partition("; the table of ")[0]  # the pace of a table was a guess; this is seen
        seen = f"{reason}; `{self.calls[-1].function}` kept it in a traced run"
        return replace(
            leak, path=self.path, holder=self.holder, holders=(self.holder,), cause=cause.slug, advice=cause.advice,
            also_causes=cause.also, reason=seen,
        )  # fmt: skip


def _stores(view: HeapView, calls: Sequence[StoringCall], wanted: dict[str, Leak]) -> dict[str, _StoreInC]:
    """Return for the fingerprint of each leak the store that keeps it, as far as a call was seen that gave it away."""
    by_vertex: dict[int, list[StoringCall]] = {}
    vertices = view.index.vertices_of(np.array([call.address for call in calls], np.int64))
    for vertex, call in zip(vertices.tolist(), calls, strict=True):
        if vertex >= 0 and view.tree.root_of[vertex] < 0:
            by_vertex.setdefault(vertex, []).append(call)
    if not by_vertex:
        return {}
    region = Region(view.index, view.tree.root_of < 0, np.zeros(len(view.objects), bool))
    kept = np.zeros(len(region.vertices), bool)
    kept[region.places_of(list(by_vertex))] = True
    below: list[int] = region.vertices[region.below(kept)].tolist()
    found: dict[str, _StoreInC] = {}
    # What was given away is at the top, or with others at the top of the same objects.
    for top, members in (*region.hanging_together(list(by_vertex)), *region.hanging_together(below)):
        things = [view.objects[vertex] for vertex in top]
        leak = wanted.get(unseen_fingerprint(things))
        if leak is not None and (store := _store(view, [*top, *members], by_vertex)) is not None:
            found[leak.fingerprint] = store  # the newest comes last
    return found


def _store(view: HeapView, vertices: Sequence[int], calls: dict[int, list[StoringCall]]) -> _StoreInC | None:
    """Return what keeps one of *vertices*; None if no call was seen that gave it away."""
    given = [(vertex, call) for vertex in dict.fromkeys(vertices) for call in calls.get(vertex, ())]
    if not given:
        return None
    commonest = Counter(call.function for _vertex, call in given).most_common(1)[0][0]
    chosen = [(vertex, call) for vertex, call in given if call.function == commonest]
    own = tuple(call for _vertex, call in chosen)
    registry = registry_of_call(commonest)
    if registry is None:
        return None
    steps = top_steps([view.objects[vertex] for vertex, _call in chosen])
    owner = view.index.vertex_of(own[0].owner) if own[0].owner else -1
    if owner >= 0 and view.tree.root_of[owner] >= 0:
        described = view.describe(owner)
        above = tuple(replace(step, status=Status.EXPECTED) for step in described.path.steps)
        path = RootPath(described.path.root, (*above, *(replace(step, reference=registry.words) for step in steps)))
        return _StoreInC(path, described.code or described.name, own)
    path = RootPath(registry.words, tuple(replace(step, reference=ENTRY) for step in steps))
    return _StoreInC(path, registry.words, own)


def _lines(stores: dict[str, _StoreInC], writer: LineWriter) -> FoundLines:
    sites: dict[str, tuple[str, ...]] = {}
    keeping: dict[str, Places] = {}
    for fingerprint, store in stores.items():
        line = Counter(call.line for call in store.calls).most_common(1)[0][0]
        statement = writer.statement(line[0], writer.in_file(*line))
        sites[fingerprint] = (f"{writer.write(*statement, line[2])}  # keeps it",)
        keeping[fingerprint] = (statement,)
    return FoundLines(sites, keeping=keeping)


_N_NATIVE, _N_NATIVE_LINES = 3, 3


def find_native_lines(session: CheckSession, explained: Explained) -> Generator[RunRequest, Ran, Explained]:
    """Run the code again under memray, where the settings want that, and name the functions that leave memory behind.

    Leaks of native memory get their lines; where there is none, what was found is a note.
    """
    if not session.settings.native or session.failure:
        return explained
    if session.seconds_left <= 0:
        return _with_notes(explained, "--native: no time was left (-t) for runs under memray")
    traces = NativeTraces(whose, _N_NATIVE)
    _seconds, failure = yield RunRequest(session.next_run, _N_NATIVE, traces)
    if problem := traces.problem or (failure and f"the code raised {failure}"):
        return _with_notes(explained, f"--native: memray could not track {_N_NATIVE} runs: {problem}")
    writer = LineWriter(session.cell_name)
    words = tuple(_native_words(growth, writer) for growth in traces.growths[:_N_NATIVE_LINES])
    native = [leak.fingerprint for leak in (*explained.leaks, *explained.bounded) if leak.cause == "native"]
    notes = [f"--native: the code was run {_N_NATIVE} more times under memray"]
    if not native or not words:
        found = "; ".join(words) or "nothing that every run leaves was allocated by C or C++ code"
        notes.append(f"--native: {found}")
    stacks = named_stacks(sum((growth.stacks for growth in traces.growths), Counter()), writer)
    lines = FoundLines(dict.fromkeys(native, words) if words else {}, stacks=dict.fromkeys(native, stacks))
    return replace(_with_notes(explained, *notes), lines=(*explained.lines, lines))


def _with_notes(explained: Explained, *notes: str) -> Explained:
    return replace(explained, later_notes=(*explained.later_notes, *notes))


def _native_words(growth: NativeGrowth, writer: LineWriter) -> str:
    place = "outside of your code"
    if growth.line is not None:
        filename, number, function = growth.line
        place = writer.write(*writer.statement(filename, number), function)
    return f"{place}  # {format_bytes(growth.bytes_per_run)} per run by {growth.function or 'an unnamed function'}"


_MOST_CALLS = 500
"""So many calls are counted in a run, 0.1 us for each object that was made since."""


@dataclass(frozen=True, slots=True)
class StoringCall:
    """A call that kept an object.

    Attributes:
        address: Of the object.
        function: The function in C, as `Registry.c_function` has it.
        owner: Address of the object whose method it is; 0 for a function.
        line: The line of the user's that called it, be it through a library.
    """

    address: int
    function: str
    owner: int
    line: Line


class StoreCalls:
    """Notes the calls that keep something.

    Args:
        young: Lends the objects that were made since a phase began.
        whose: Tells whose code a file is.

    Attributes:
        calls: What was noted so far, in the order of the calls.
    """

    def __init__(self, young: Callable[[], AbstractContextManager[list[object]]], whose: Whose) -> None:
        self.calls: list[StoringCall] = []
        self._young, self._whose = young, whose
        self._known: dict[str, bool | None] = {}
        self._open: dict[int, tuple[str, int, Line, list[object], list[int]]] = {}  # by the frame that waits
        self._functions = frozenset(registry.c_function for registry in REGISTRIES)
        self._n_calls = 0

    @contextmanager
    def watched(self) -> Iterator[bool]:
        """Watch the calls of this thread inside; the value is False where a profiler of the user's is left alone."""
        if sys.getprofile() is not None:
            yield False
            return
        self._n_calls = 0
        sys.setprofile(self._on_event)
        try:
            yield True
        finally:
            if sys.getprofile() == self._on_event:  # the code may have set one of its own
                sys.setprofile(None)
            self._open.clear()

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            self._before(frame, function)
        elif self._open and event in ("c_return", "c_exception"):
            self._after(frame)

    def _before(self, frame: FrameType, function: Any) -> None:
        self._open.pop(id(frame), None)
        if not is_kind_of(function, types.BuiltinFunctionType):
            return
        name = _name_of(function)
        if name not in self._functions or self._n_calls >= _MOST_CALLS:
            return
        self._n_calls += 1
        line = line_of(innermost_and_asking(frames_from(frame), self._is_users)[0])
        if line is not None:
            owner = 0 if type(function.__module__) is str else id(function.__self__)
            with self._young() as objects:
                held = [*objects]  # until the call is over: another object would have the address of what is gone
            self._open[id(frame)] = name, owner, line, held, _reference_counts(held)

    def _after(self, frame: FrameType) -> None:
        waiting = self._open.pop(id(frame), None)
        if waiting is None:
            return
        name, owner, line, held, before = waiting
        after = _reference_counts(held)
        kept = [one for one, now, then in zip(held, after, before, strict=True) if now > then and not _is_own(one)]
        self.calls += [StoringCall(id(one), name, owner, line) for one in kept]

    def _is_users(self, filename: str) -> bool | None:
        try:
            return self._known[filename]
        except KeyError:
            return self._known.setdefault(filename, self._whose(filename))


def _name_of(function: Any) -> str:
    module = function.__module__  # a method has none
    return f"{module if type(module) is str else type_name(type(function.__self__))}.{function.__name__}"


def _reference_counts(objects: list[object]) -> list[int]:
    return [*map(sys.getrefcount, objects)]


def _is_own(one: object) -> bool:
    """Return whether *one* is an object of leaklab, or a method of such an object."""
    return is_own_kind(type(one.__self__ if type(one) is types.MethodType else one))
