"""Watch which way the branches of the user's code go, by instruction; `leaklab.lines.ran_files` says what ran.

A condition and what it decides often share a line, so lines are not enough: ``sys.settrace`` is asked for every
instruction (``f_trace_opcodes``) of the user's functions, up to a number of them for each function and run.
"""

from __future__ import annotations

import dis
import inspect
import operator
import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, pairwise
from types import CodeType, FrameType
from typing import Any

from leaklab.lines.change import Whose, forget_variables
from leaklab.runtime.sizes import native_bytes

_MOST_EVENTS = 20_000
"""So many instructions of one function are watched in one run; one that runs on is watched no more in that run."""
_LONGEST = 100_000
"""A longer function, in bytes, is generated."""
_MOST_APART = 64
"""For so many different objects a function is watched apart; for all others together."""
_MOST_FUNCTIONS = 2_000
"""What compiles new functions in every run is watched up to here: the watch keeps the code of each."""
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""What such a function is asked for would stay with it for as long as it is suspended."""
RAN, FELL_THROUGH, JUMPED = 1, 2, 4
"""What is noted of an instruction; the latter two of conditional jumps."""
For = tuple[int, ...]
"""For whom a function runs: addresses of its first argument and of what its free variables refer to."""
HAS_POSITIONS = sys.version_info >= (3, 11)
"""Before, an instruction knows its line only."""


@dataclass(frozen=True, slots=True)
class Names:
    """By which names the code knows a container.

    Attributes:
        anywhere: Of attributes and of keys that are texts.
        variables: Of global variables.
        free: Of variables of enclosing functions, by the code objects that have them.
        address: Of the container; 0 if it does not matter.
        owners: Addresses of the objects that lead to it.
        has_identity_keys: Whether its keys are objects that equal only themselves: no new one is found there.
    """

    anywhere: frozenset[str]
    variables: frozenset[str] = frozenset()
    free: Mapping[CodeType, frozenset[str]] = field(default_factory=dict)
    address: int = 0
    owners: frozenset[int] = frozenset()
    has_identity_keys: bool = False

    def is_meant(self, code: CodeType, whom: For) -> bool:
        """Return whether *code*, when it ran for *whom*, had to do with this container and not another like it."""
        first, free = (whom[:1], whom[1:]) if code.co_argcount else ((), whom)
        of_free = dict(zip(code.co_freevars, free, strict=False))
        return any(of_free.get(name) == self.address for name in self.free.get(code, ())) or not self.owners.isdisjoint(
            (*first, *free)
        )

    def in_code(self, code: CodeType) -> frozenset[str]:
        """Return the names of variables under which *code* knows the container."""
        own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        return (self.variables - own) | self.free.get(code, frozenset())


class BranchWatch:
    """Notes of each of the user's functions which instructions ran, and which way each branch went.

    Args:
        whose: Tells whose code a file is.
        running_too: Whether the functions that run already are watched: a loop that goes on is such a function.

    Attributes:
        running: Those functions, the innermost first, with the line that each was at; None for those of libraries.
    """

    def __init__(self, whose: Whose, *, running_too: bool = False) -> None:
        self._whose = whose
        self._running_too = running_too
        self.running: list[tuple[CodeType, int] | None] = []
        # Numbers, bytes and code only, which the collector does not follow: all else would be left by the first run.
        self._seen: dict[bytes, bytearray] = {}  # by number of the function and whom it ran for, a byte an instruction
        self._numbers: dict[CodeType, int] = {}
        self._known: dict[int, int] = {}  # the numbers by address: a code object is hashed anew each time it is asked
        self._next: dict[int, bytes] = {}  # this and the following by number
        self._left: dict[int, int] = {}
        self._n_apart: dict[int, int] = {}
        self._users: dict[str, bool] = {}

    @property
    def native_bytes(self) -> int:
        """What the notes take in the native heap by now."""
        tables = (self._seen, self._numbers, self._known, self._next, self._left, self._n_apart, self._users)
        return native_bytes(chain(tables, self._seen.values(), self._next.values()))

    def watch_too(self, filenames: Collection[str]) -> None:
        """Watch the functions of *filenames* from now on, although they are a library's."""
        self._users.update(dict.fromkeys(filenames, True))

    # A context manager itself: one that is made for each run gives its memory back in that run, which is counted.
    def __enter__(self) -> None:
        """Watch this thread from here on, unless somebody else traces it."""
        if not HAS_POSITIONS or sys.gettrace() is not None:
            return
        self._left.update(dict.fromkeys(self._left, _MOST_EVENTS))
        if self._running_too:
            self._enter_running_functions(sys._getframe().f_back)  # noqa: SLF001 - the only way to them
        sys.settrace(self._on_call)

    def __exit__(self, *_error: object) -> None:
        trace: Any = sys.gettrace()
        if getattr(trace, "__self__", None) is self:
            sys.settrace(None)
        frame = sys._getframe().f_back if self._running_too else None  # noqa: SLF001 - as above
        while frame is not None:
            if type(frame.f_trace) is _FrameWatch:
                frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = None, False, True
                forget_variables(frame, at_rest=True)
            frame = frame.f_back

    def _enter_running_functions(self, frame: FrameType | None) -> None:
        self.running.clear()
        while frame is not None:
            whose = self._whose(frame.f_code.co_filename)
            if whose is not None:
                self.running.append((frame.f_code, frame.f_lineno) if whose else None)
            if whose and frame.f_trace is None:
                self._on_call(frame, "call", None)
            frame = frame.f_back

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        filename = code.co_filename
        is_users = self._users.get(filename)
        if is_users is None:
            is_users = self._users[filename] = bool(self._whose(filename))
        if not is_users or len(code.co_code) > _LONGEST:
            return None
        number = self._known.get(id(code))
        if number is None:
            number = self._numbers.get(code)  # equal code is compiled anew where a cell defines its functions
        if number is None:
            number = len(self._numbers)
            if number >= _MOST_FUNCTIONS:
                return None
            self._numbers[code] = self._known[id(code)] = number
            self._next[number], self._left[number], self._n_apart[number] = _branches_of(code), _MOST_EVENTS, 0
        if self._left[number] <= 0:
            return None
        key = array("q", (number, *_whom(frame))).tobytes()
        if key not in self._seen:
            self._n_apart[number] += 1
            if self._n_apart[number] > _MOST_APART:
                key = array("q", (number,)).tobytes()
            self._seen.setdefault(key, bytearray(len(self._next[number]) // 2))
        watch = _FrameWatch(self._seen[key], self._next[number], self._left, number)
        # In this order: since Python 3.12 a frame is asked to tell of instructions only once it has a trace function.
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = watch, True, False
        return watch

    def codes(self, names: Names) -> Iterator[tuple[CodeType, bytes]]:
        """Yield every function of the user's that ran, with what was seen of its instructions.

        A function that ran for several objects is given as it ran for those that *names* leads to, where it did.
        """
        by_number: dict[int, list[tuple[For, bytearray]]] = defaultdict(list)
        for key, seen in self._seen.items():
            number, *whom = array("q", key)
            by_number[number].append((tuple(whom), seen))
        for code, number in self._numbers.items():
            each = by_number[number]
            own = [seen for whom, seen in each if names.is_meant(code, whom)] or [seen for _whom, seen in each]
            yield code, bytes(reduce(operator.or_, column) for column in zip(*own, strict=True))


class _FrameWatch:
    """The trace function of one running function."""

    __slots__ = ("_last", "_left", "_next", "_number", "_seen")

    def __init__(self, seen: bytearray, after: bytes, left: dict[int, int], number: int) -> None:
        self._seen, self._next, self._last, self._left, self._number = seen, after, -1, left, number

    def __call__(self, frame: FrameType, event: str, _arg: object) -> _FrameWatch | None:
        if event != "opcode":
            if event != "return":
                return self
            frame.f_trace = None  # an exception may keep the frame
            return None
        at, last, after, seen = frame.f_lasti >> 1, self._last, self._next, self._seen
        seen[at] |= RAN
        if last >= 0:
            seen[last] |= FELL_THROUGH if at == after[2 * last] | after[2 * last + 1] << 8 else JUMPED
        self._last = at if after[2 * at] or after[2 * at + 1] else -1
        self._left[self._number] = left = self._left[self._number] - 1
        if left < 0:
            frame.f_trace_opcodes = False
        return self


def _whom(frame: FrameType) -> For:
    """Return for whom *frame* runs: the addresses of its ``self``, and of what its free variables refer to."""
    code = frame.f_code
    names = [*code.co_varnames[: code.co_argcount][:1], *code.co_freevars]
    if not names or code.co_flags & _SUSPENDED:
        return ()
    found = frame.f_locals
    return tuple([id(found.get(name)) for name in names])


def _branches_of(code: CodeType) -> bytes:
    """Return for each conditional jump of *code* the place of the instruction behind it, else 0: two bytes each."""
    after = bytearray(2 * (len(code.co_code) // 2 + 1))
    for one, following in pairwise(dis.get_instructions(code)):
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        if is_jump and ("_IF_" in one.opname or one.opname == "FOR_ITER"):
            after[one.offset : one.offset + 2] = (following.offset >> 1).to_bytes(2, "little")
    return bytes(after)
