"""Name the line of the user's code during which a reference cycle was closed.

Nothing holds such a cycle from outside, so there is no place to watch before it exists. Its shape is known from those
that earlier runs left. New objects of the first type in it are looked for whenever a line that makes some has run; from
then on each of them is asked, before every line, whether the references from type to type lead on, and back to it.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from leaklab.lines.arrival import Line
from leaklab.lines.asked import asking_line
from leaklab.lines.change import LineWatch, Whose
from leaklab.runtime.containers import values_in
from leaklab.runtime.gc_control import gc_paused
from leaklab.runtime.objects import is_exactly, is_tensor, loaded_type, safe_len, type_name
from leaklab.runtime.referents import get_referents

_ENOUGH = 4
"""So many cycles of one shape are watched to their end in a run: the others are closed by the same lines."""
_MAX_CANDIDATES = 16
_MAX_LISTED = 3_000_000
"""So many objects are gone through in a run to find new ones, 0.1 us each."""
_MAX_ASKED = 20_000
"""So often in a run a new object is asked whether its cycle is closed, 20 us each."""
_MAX_LENGTH = 2_000
"""A longer container is not looked into before every line."""
_MAX_WIDTH = 200
_N_OWN_REFERENCES = 2
"""To something that only `_Held` holds, while they are counted: its attribute, and the argument of the count."""
_WITHOUT_DICT = (dict, list, tuple, set, types.CellType, types.MethodType, types.TracebackType)


class CycleStep(NamedTuple):
    """One object of a cycle, as far as every cycle like it has the same.

    Attributes:
        kind: The name of its type.
        variables: If it is a frame, the names of the variables that refer to the next object. Another one may do so for
            a moment, as ``error`` does in ``except ValueError as error``.
    """

    kind: str
    variables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CycleShape:
    """A kind of cycle, by the types along its references.

    Attributes:
        fingerprint: Of the leak.
        stops: Its objects, in the order of the references. An instance's ``__dict__`` is left out: whether there is one
            depends on who has looked at it.
        is_ring: Whether the last refers to the first. Otherwise the cycle goes on where Python shows no references.
        born_at: File and line of what makes objects of the first type; empty where that is not known.
    """

    fingerprint: str
    stops: tuple[CycleStep, ...]
    is_ring: bool
    born_at: frozenset[tuple[str, int]]


class ClosingWatch(LineWatch):
    """Counts for each shape the lines that closed a cycle of it.

    Attributes:
        asked: For the fingerprint of a shape the lines that asked for the copies within which cycles were closed.
    """

    def __init__(self, shapes: Iterable[CycleShape], whose: Whose) -> None:
        super().__init__([], whose)
        self.asked: dict[str, Counter[Line]] = {}
        self._hunts = [_CycleTracer(shape) for shape in shapes]

    @contextmanager
    def installed(self, *, running_too: bool = False) -> Iterator[None]:
        """Watch inside; nothing of the user's is held afterwards."""
        for hunt in self._hunts:
            hunt.begin(is_everywhere=hunt.shape.fingerprint not in self.lines and hunt.has_run)
        try:
            with super().installed(running_too=running_too):
                yield
        finally:
            for hunt in self._hunts:
                hunt.end()

    def _look(self) -> None:
        line = self._running.get(threading.get_ident())
        if line is None:
            return
        for hunt in self._hunts:
            n_closed = hunt.look(line)
            if n_closed:
                fingerprint = hunt.shape.fingerprint
                self.lines.setdefault(fingerprint, Counter())[line] += n_closed
                asking = asking_line(2, self._is_users)
                if asking is not None:
                    self.asked.setdefault(fingerprint, Counter())[asking] += n_closed


class _CycleTracer:
    """The search for new objects of one shape, and for the moment when their cycle is closed."""

    def __init__(self, shape: CycleShape) -> None:
        self.shape = shape
        self.has_run = False
        self._is_everywhere = False
        self._known: set[int] = set()
        self._candidates: dict[int, Callable[[], Any]] = {}
        self._n_closed = self._n_listed = self._n_asked = 0

    def begin(self, *, is_everywhere: bool) -> None:
        """Start a run; *is_everywhere* says that new objects are looked for after every line, as far as it goes."""
        self.has_run, self._is_everywhere = True, is_everywhere
        self._n_closed = self._n_listed = self._n_asked = 0
        self._known = {id(thing) for thing in self._listed()}

    def end(self) -> None:
        """Let go of everything."""
        self._known.clear()
        self._candidates.clear()

    def look(self, line: Line) -> int:
        """Return how many cycles were closed since the last look, if *line* has run meanwhile."""
        if self._n_closed >= _ENOUGH:
            return 0
        has_born = line[:2] in self.shape.born_at
        if (has_born or self._is_everywhere or not self.shape.born_at) and self._n_listed < _MAX_LISTED:
            self._find_new()
        n_before = self._n_closed
        for address, candidate in list(self._candidates.items()):
            self._ask(address, candidate)
        if self._n_closed >= _ENOUGH:
            self._candidates.clear()
        return self._n_closed - n_before

    def _find_new(self) -> None:
        for thing in self._listed():
            if id(thing) not in self._known and len(self._candidates) < _MAX_CANDIDATES:
                self._known.add(id(thing))
                self._candidates[id(thing)] = _way_to(thing)

    def _listed(self) -> list[Any]:
        """Return the objects of the first type that the collector lists: where a baseline is frozen, younger ones."""
        kind, is_it = self.shape.stops[0].kind, dict[int, bool]()
        found: list[Any] = []
        with gc_paused():
            objects = gc.get_objects()
            for thing in objects:
                own = type(thing)
                if id(own) not in is_it:
                    is_it[id(own)] = type_name(own) == kind
                if is_it[id(own)] and thing is not objects and thing is not found:
                    found.append(thing)
            self._n_listed += len(objects)
            objects.clear()
        return found

    def _ask(self, address: int, candidate: Callable[[], Any]) -> None:
        thing = candidate()
        is_over = thing is None or self._n_asked >= _MAX_ASKED
        if not is_over:
            self._n_asked += 1
            is_over = is_closed(self.shape, thing)
            self._n_closed += is_over
        if is_over:
            self._candidates.pop(address, None)
        if thing is None:
            self._known.discard(address)  # another object may get its address


def _way_to(thing: Any) -> Callable[[], Any]:
    """Return a function that returns *thing* as long as somebody else holds it, and None after that.

    What takes no weak references is held from one look to the next.
    """
    try:
        return weakref.ref(thing)
    except TypeError:
        return _Held(thing).get


class _Held:
    """Holds an object until nobody else does."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def get(self) -> Any:
        """Return the object; None, and let go of it, if it is held by nothing else."""
        if sys.getrefcount(self._thing) <= _N_OWN_REFERENCES:
            self._thing = None
        return self._thing


def is_closed(shape: CycleShape, first: Any) -> bool:
    """Return whether references lead from *first* through the types of *shape*, and, in a ring, back to it."""
    level = [first]
    for before, stop in pairwise(shape.stops):
        found = {id(thing): thing for holder in level for thing in _referred(holder, before.variables, stop.kind)}
        level = list(found.values())[:_MAX_WIDTH]
        if not level:
            return False
    last, kind = shape.stops[-1], shape.stops[0].kind
    return not shape.is_ring or any(
        thing is first for holder in level for thing in _referred(holder, last.variables, kind)
    )


def _referred(holder: Any, variables: frozenset[str], kind: str) -> Iterator[Any]:
    """Yield what *holder* refers to, itself or by its ``__dict__``, of the type named *kind*.

    A frame only by one of *variables*.
    """
    referents = _referents(holder, variables)
    for thing in referents:
        if type_name(type(thing)) == kind:
            yield thing
    if is_exactly(holder, _WITHOUT_DICT):
        return
    for thing in referents:
        if type(thing) is dict and len(thing) <= _MAX_LENGTH:
            yield from (value for value in values_in(thing) if type_name(type(value)) == kind)


def _referents(thing: Any, variables: frozenset[str]) -> list[Any]:
    kind = type(thing)
    if kind is types.FunctionType:  # not its global variables, where everything is
        return [part for part in (thing.__closure__, thing.__defaults__, thing.__kwdefaults__) if part is not None]
    if kind is types.FrameType:  # while it runs the collector sees nothing of it; a library's is not asked by name
        return [] if thing.f_trace is None else [value for name, value in thing.f_locals.items() if name in variables]
    length = safe_len(thing)
    return [] if length is not None and length > _MAX_LENGTH else shown_referents(thing)


def shown_referents(thing: Any) -> list[Any]:
    """Return what Python shows that *thing* refers to: what the collector reports, and the gradient of a leaf."""
    referents = get_referents(thing)
    if is_tensor(thing):
        base: Any = loaded_type("torch", "Tensor")
        gradient = base.grad.__get__(thing) if base.is_leaf.__get__(thing) else None  # of others the question warns
        if gradient is not None:
            referents.append(gradient)
    return referents
