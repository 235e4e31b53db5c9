"""Watch which way the branches of the user's code go, by instruction.

A condition and what it decides often share a line, so lines are not enough: ``sys.settrace`` is asked for every
instruction (``f_trace_opcodes``) of the user's functions, up to a number of them for each function and run.
"""

from __future__ import annotations

import dis
import inspect
import operator
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from types import CodeType, FrameType
from typing import Any

from leaklab.lines.change import Whose

_MOST_EVENTS = 20_000
"""So many instructions of one function are watched in one run; one that runs on is watched no more in that run."""
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
    """

    anywhere: frozenset[str]
    variables: frozenset[str] = frozenset()
    free: Mapping[CodeType, frozenset[str]] = field(default_factory=dict)
    address: int = 0
    owners: frozenset[int] = frozenset()

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
    """

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        # For each code object and whom it ran for a byte per instruction. Bytes: the collector does not see them.
        self._seen: dict[CodeType, dict[For, bytearray]] = {}
        self._next: dict[CodeType, dict[int, int]] = {}
        self._left: dict[CodeType, list[int]] = {}
        self._users: dict[str, bool] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch this thread inside, unless somebody else traces it."""
        if not HAS_POSITIONS or sys.gettrace() is not None:
            yield
            return
        for left in self._left.values():
            left[0] = _MOST_EVENTS
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            trace: Any = sys.gettrace()
            if getattr(trace, "__self__", None) is self:
                sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        filename = code.co_filename
        is_users = self._users.get(filename)
        if is_users is None:
            is_users = self._users[filename] = bool(self._whose(filename))
        if not is_users:
            return None
        if code not in self._seen:
            if len(self._seen) >= _MOST_FUNCTIONS:
                return None
            self._seen[code], self._next[code], self._left[code] = {}, _branches_of(code), [_MOST_EVENTS]
        if self._left[code][0] <= 0:
            return None
        each = self._seen[code]
        whom = _whom(frame) if len(each) < _MOST_APART else ()
        if whom not in each:
            each[whom] = bytearray(len(code.co_code) // 2 + 1)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return _FrameWatch(each[whom], self._next[code], self._left[code])

    def codes(self, names: Names) -> Iterator[tuple[CodeType, bytes]]:
        """Yield every function of the user's that ran, with what was seen of its instructions.

        A function that runs for several objects is told as it ran for those that *names* leads to, where it did.
        """
        for code, each in self._seen.items():
            own = [seen for whom, seen in each.items() if names.is_meant(code, whom)] or list(each.values())
            yield code, bytes(reduce(operator.or_, column) for column in zip(*own, strict=True))


class _FrameWatch:
    """The trace function of one running function."""

    __slots__ = ("_last", "_left", "_next", "_seen")

    def __init__(self, seen: bytearray, after: dict[int, int], left: list[int]) -> None:
        self._seen, self._next, self._last, self._left = seen, after, -1, left

    def __call__(self, frame: FrameType, event: str, _arg: object) -> _FrameWatch | None:
        if event != "opcode":
            if event != "return":
                return self
            frame.f_trace = None  # an exception may keep the frame
            return None
        at, last = frame.f_lasti, self._last
        self._seen[at >> 1] |= RAN
        if last >= 0:
            self._seen[last >> 1] |= FELL_THROUGH if at == self._next[last] else JUMPED
        self._last = at if at in self._next else -1
        self._left[0] -= 1
        if self._left[0] < 0:
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


def _branches_of(code: CodeType) -> dict[int, int]:
    """Return for the offset of each conditional jump of *code* the offset of the instruction behind it."""
    instructions = list(dis.get_instructions(code))
    jumps = {}
    for one, after in zip(instructions, instructions[1:]):  # noqa: B905, RUF007 - the last has none behind it
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        if is_jump and ("_IF_" in one.opname or one.opname == "FOR_ITER"):
            jumps[one.offset] = after.offset
    return jumps
