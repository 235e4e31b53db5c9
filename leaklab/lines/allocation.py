"""Find the line of the user's code that made an object or a storage, or had it copied.

A class that makes its own copies, by ``__deepcopy__`` or ``__reduce__``, makes them in a line of its constructor.
That line made the original too, once; what makes an object in every run is the line that asked for the copy.

tracemalloc knows the Python object of a tensor, not its storage, and most tensors that an autograd graph saves have
no Python object. A dispatch mode sees every operation with its results, on every device. Per operation it costs 36 us
where the stack of anomaly mode costs 72 us, with 9 us for the operation itself.
"""

from __future__ import annotations

import copy
import functools
import itertools
import sys
import threading
import tracemalloc
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from leaklab.lines.arrival import Line
from leaklab.lines.change import Whose, line_in_code, line_of_frame
from leaklab.measure.measurement import Measurement
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.autograd_graph import GraphWalk
from leaklab.runtime.objects import is_exactly, is_tensor, loaded_type, loaded_variables
from leaklab.runtime.python_traces import N_FRAMES, Places, stack_of
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import shallow_bytes, storages_of

_COPIERS = frozenset({copy.deepcopy.__code__.co_filename})
"""Files whose functions copy what they are given, and call the user's methods to do it."""


Place = TypeVar("Place")


def innermost_and_asking(
    stack: Iterable[tuple[str, Place]], whose: Callable[[str], bool | None]
) -> tuple[Place | None, Place | None]:
    """Return the innermost place of the user's on a stack, and the one that asked for the outermost copy under way.

    Args:
        stack: File names with what shall be returned for them, innermost first; what lies outside of leaklab's own
            files is not looked at.
        whose: Tells whose code a file is.

    Returns:
        The second is None where nothing is being copied, or where no line of the user's asked for it.
    """
    innermost = asking = None
    is_below_copy = False
    for filename, place in stack:
        if filename in _COPIERS:
            is_below_copy = True
            continue
        is_users = whose(filename)
        if is_users is None:
            break
        if is_users:
            if innermost is None:
                innermost = place
            if is_below_copy:
                asking, is_below_copy = place, False
    return innermost, asking


def frames_from(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    """Yield the running functions from *frame* outward, with their files."""
    while frame is not None:
        yield frame.f_code.co_filename, frame
        frame = frame.f_back


def line_of(frame: FrameType | None) -> Line | None:
    """Return the line that *frame* is at; None without a frame."""
    return None if frame is None else line_of_frame(frame)


def asking_line(depth: int, whose: Callable[[str], bool | None]) -> Line | None:
    """Return the line of the user's that asked for the copy under way; None if nothing is being copied.

    Args:
        depth: How many functions stand between this one and the first frame to look at.
        whose: Tells whose code a file is.
    """
    return line_of(innermost_and_asking(frames_from(sys._getframe(depth + 1)), whose)[1])  # noqa: SLF001


_OWN_STORAGE = frozenset({
    "aten.lift_fresh.default", "aten.set_.source_Storage", "aten.set_.source_Storage_storage_offset",
})  # fmt: skip
"""Say that their result is an argument, of which the storage however was made a moment ago where no mode can see it: of
a literal, or copied or loaded from a file. What was noted for a storage at this address is that of another one."""


Stack = tuple[Line, ...]
"""The lines of the calls, innermost first, up to leaklab's own; the function of a line is empty if it is not known."""

_Calls = tuple[Sequence[types.CodeType], Sequence[int]]
"""The same as it is noted: code objects, and the positions of their instructions."""


class StorageLines:
    """The line that made each storage, and the calls that led to that line, as far as they were noted."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._known: dict[str, bool | None] = {}
        self._lines: dict[int, Line] = {}
        self._calls: dict[int, _Calls] = {}
        self._known_calls: dict[tuple[int, ...], _Calls] = {}
        self._fresh: dict[Any, bool] = {}

    @contextmanager
    def noted(self) -> Iterator[bool]:
        """Note what is made inside; the value is False where torch.compile was used, which a mode would disturb."""
        mode = None if loaded_type("torch", "Tensor") is None or _has_compiled() else self._mode()
        with mode if mode is not None else nullcontext():
            yield not _has_compiled()

    def line_of(self, tensor: object) -> Line | None:
        """Return the line that made the (first) storage of *tensor*, None if it was not noted."""
        for key, _n_bytes in storages_of(tensor) or ():
            if key in self._lines:
                return self._lines[key]
        return self._line_on_device(tensor)

    def stack_of(self, key: int) -> Stack:
        """Return the calls that made the storage with *key*; empty if it is older, or that was not noted."""
        return tuple(map(_line_at, *self._calls.get(key, ((), ()))))

    def _mode(self) -> AbstractContextManager[Any]:
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - torch is loaded, or not wanted

        note, thread = self._note, threading.get_ident()

        def dispatched(_self: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            caller = sys._getframe().f_back  # noqa: SLF001
            if caller is None:  # a thread of autograd's, as each card has one: the code waits in its call of backward()
                caller = sys._current_frames().get(thread)  # noqa: SLF001
            note(func, result, caller)
            return result

        # Given to the class after its making: torch wraps what it finds before, and the wrapper imports torch._dynamo
        # at the first operation, 820 modules in 0.9 s.
        noting = type("Noting", (TorchDispatchMode,), {})
        noting.__torch_dispatch__ = dispatched  # type: ignore[attr-defined]
        mode: AbstractContextManager[Any] = noting()
        return mode

    def _note(self, func: Any, result: Any, frame: FrameType | None) -> None:
        results = result if is_exactly(result, (tuple, list)) else (result,)
        tensors = [thing for thing in results if is_tensor(thing)]
        if not tensors:
            return
        frames = self._frames_from(frame)
        innermost, asking = innermost_and_asking(frames, self._known.__getitem__)
        line = line_of(asking or innermost)
        if line is None:
            return
        is_fresh = self._fresh.get(func)
        if is_fresh is None:
            is_fresh = self._fresh[func] = _makes_storages(func)
        # Calls are noted for every operation: made of what is there already, each only once; lines are looked up later.
        noted = [each for _, each in frames[:N_FRAMES]] if is_fresh else []
        codes, positions = [each.f_code for each in noted], [each.f_lasti for each in noted]
        key = (*map(id, codes), *positions)  # a code's own hash is that of all its constants
        calls = self._known_calls.get(key) or self._known_calls.setdefault(key, (codes, positions))
        for tensor in tensors:
            for storage, _n_bytes in storages_of(tensor) or ():
                if is_fresh:
                    self._lines[storage], self._calls[storage] = line, calls
                else:
                    self._lines.setdefault(storage, line)

    def _frames_from(self, frame: FrameType | None) -> list[tuple[str, FrameType]]:
        """Return the running functions from *frame* outward up to leaklab's own; written for speed."""
        known, frames = self._known, []
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename not in known:
                known[filename] = self._whose(filename)
            if known[filename] is None:
                break
            frames.append((filename, frame))
            frame = frame.f_back
        return frames

    def _line_on_device(self, tensor: object) -> Line | None:
        """Ask torch's own history of device memory, where the user has switched it on."""
        traceback_of = loaded_variables("torch.cuda.memory").get("_allocation_traceback")
        base: Any = loaded_type("torch", "Tensor")
        if traceback_of is None or base is None or not base.is_cuda.__get__(tensor):
            return None
        try:
            frames = traceback_of(base.untyped_storage(tensor).data_ptr()) or ()
        except (RuntimeError, AttributeError):  # a build or a moment without history
            return None
        stack = ((frame["filename"], (frame["filename"], int(frame["line"]), "")) for frame in frames)
        innermost, asking = innermost_and_asking(stack, self._whose)
        return asking or innermost


def _line_at(code: types.CodeType, position: int) -> Line:
    """Return the line of *code* that an instruction belongs to."""
    lines = (line for start, end, line in code.co_lines() if start <= position < end and line is not None)
    return line_in_code(code, next(lines, code.co_firstlineno))


def _makes_storages(func: Any) -> bool:
    """Return whether the results of an operation have storages of their own: its schema knows who aliases whom."""
    if str(func) in _OWN_STORAGE:
        return True
    schema = getattr(func, "_schema", None)
    return schema is not None and all(result.alias_info is None for result in schema.returns)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything: under a mode it would compile all of it anew."""
    return bool(loaded_variables("torch._dynamo.convert_frame").get("FRAME_COUNTER"))


_DEPTH = 4
"""From a function over its closure and a cell of it to a tensor's tuple."""
_MAX_LOOKED_AT = 200
_MAX_DEPTH, _MAX_BELOW = 40, 20_000
"""A model within a model has its tensors ten references down; so many things are looked at in 0.1 s."""
_CONTAINERS = (list, tuple, dict, types.CellType, types.MethodType)
_MAX_SURVIVORS = 20_000
"""So many survivors of the traced runs are asked for their line: 1 s."""


def line_that_made(thing: object, whose: Whose) -> Line | None:
    """Return the line of the user's code that made *thing*, or had it copied; None if that was not recorded."""
    innermost, asking = _lines_in(whose, stack_of(thing))
    return asking or innermost


def _lines_in(whose: Whose, stack: Places) -> tuple[Line | None, Line | None]:
    return innermost_and_asking(((filename, (filename, number, "")) for filename, number in stack), whose)


def _calls_in(whose: Whose, stack: Places) -> Stack:
    """Return what of *stack* lies outside of leaklab; nothing if none of the user's code does."""
    own = tuple(
        (filename, number, "")
        for filename, number in itertools.takewhile(lambda each: whose(each[0]) is not None, stack)
    )
    return own if any(whose(filename) for filename, *_ in own) else ()


class Made(NamedTuple):
    """Where an object was made.

    Attributes:
        line: The line that made it, or had it copied.
        born_at: File and line of the innermost line of the user's that ran then.
        is_elsewhere: Whether another thread made it than the one that runs the code.
        parts: What was allocated for it, with the calls that led there.
    """

    line: Line
    born_at: tuple[str, int]
    is_elsewhere: bool = False
    parts: tuple[tuple[Stack, int], ...] = ()


class Makers:
    """Finds the lines that made objects: tensors by their storage, everything else by tracemalloc."""

    def __init__(self, whose: Whose, storages: StorageLines) -> None:
        self._whose = functools.cache(whose)  # of every frame of every stack
        self._lines_in = functools.cache(functools.partial(_lines_in, self._whose))  # a stack makes many objects
        self._calls_in = functools.cache(functools.partial(_calls_in, self._whose))
        self.storages = storages

    def made_of(self, entries: list[object]) -> list[Made]:
        """Return where the tensors in *entries* were made, or *entries* themselves where there are none."""
        tensors = list(filter(is_tensor, _things_in(entries)))
        return [made for thing in tensors or entries if (made := self._made(thing)) is not None]

    def allocated_below(self, entries: list[object]) -> Counter[Stack]:
        """Return by call stack how many bytes were allocated for *entries*: what they keep, and their graphs.

        Each storage is counted once. What is older than the traced runs is left out.
        """
        things = list(itertools.islice(_things_in(entries, _MAX_DEPTH, _MAX_BELOW), _MAX_BELOW))
        graphs = GraphWalk((), 0)
        graphs.from_tensors(filter(is_tensor, things))
        saved = (held for _holder, held, _reference in graphs.edges if is_tensor(held))
        sizes: Counter[Stack] = Counter()
        seen: set[int] = set()
        for thing in {id(thing): thing for thing in (*things, *saved)}.values():
            for stack, n_bytes in self._parts(thing, seen):
                sizes[stack] += n_bytes
        return sizes

    def made_by_survivor(self, measurement: Measurement, n_before: int) -> dict[int, Made]:
        """Return where each object was made that a run after the first *n_before* left; a phase is open.

        Objects are known by their addresses; one whose line was not recorded is left out.
        """
        addresses, _kinds, runs = measurement.cohorts.members()
        with measurement.young() as objects:
            new = np.flatnonzero(np.isin(addresses_of(objects), addresses[runs >= n_before]))
            seen: set[int] = set()
            found = ((id(thing), self._made(thing), thing) for thing in (objects[row] for row in new[:_MAX_SURVIVORS]))
            return {
                address: made._replace(parts=tuple(self._parts(thing, seen)))
                for address, made, thing in found
                if made is not None
            }

    def _parts(self, thing: object, seen: set[int]) -> Iterator[tuple[Stack, int]]:
        """Yield the calls that allocated *thing*, or those of its storages that are not *seen*, with their bytes."""
        if is_tensor(thing):
            for key, n_bytes in storages_of(thing) or ():
                if key not in seen and (calls := self.storages.stack_of(key)):
                    seen.add(key)
                    yield calls, n_bytes
            return
        if own := self._calls_in(stack_of(thing)):
            yield own, shallow_bytes(thing)

    def _made(self, thing: object) -> Made | None:
        stack = stack_of(thing)
        innermost, asking = self._lines_in(stack)
        line = (self.storages.line_of(thing) if is_tensor(thing) else None) or asking or innermost
        return None if line is None else Made(line, (innermost or line)[:2], self._is_elsewhere(stack))

    def _is_elsewhere(self, stack: Sequence[tuple[str, int]]) -> bool:
        """Return whether *stack* is known to its end, begins where a thread does, and did not come by leaklab."""
        is_whole = 0 < len(stack) < tracemalloc.get_traceback_limit()
        is_threads = is_whole and stack[-1][0] == threading.__file__
        return is_threads and all(self._whose(filename) is not None for filename, _number in stack)


def _things_in(entries: list[object], n_levels: int = _DEPTH, limit: int = _MAX_LOOKED_AT) -> Iterator[object]:
    """Yield *entries* and what they are made of, at most *limit* things of each level; of a tensor nothing."""
    seen: set[int] = set()
    level = entries
    for _ in range(n_levels + 1):
        new = [thing for thing in level if id(thing) not in seen]
        seen.update(map(id, new))
        yield from new
        level = [inner for thing in new if not is_tensor(thing) for inner in _content_of(thing)][:limit]
        if not level:
            return


def _content_of(thing: object) -> list[object]:
    """Return what *thing*, made a moment ago, is made of: not what it shares with the rest of the program."""
    kind = type(thing)
    if kind is types.FunctionType:  # nor its global variables
        parts = (thing.__closure__, thing.__defaults__)  # type: ignore[attr-defined]  # a function
        return [part for part in parts if part is not None]
    # Short containers are made in memory of old ones, of which tracemalloc says nothing.
    if is_exactly(thing, _CONTAINERS) or stack_of(thing):
        return get_referents(thing)[:_MAX_LOOKED_AT]
    return []
