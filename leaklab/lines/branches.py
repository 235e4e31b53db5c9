"""Watch which way the branches of the user's code go, by instruction; say on its syntax tree what ran.

A condition and what it decides often share a line, so lines are not enough: ``sys.settrace`` is asked for every
instruction (``f_trace_opcodes``) of the user's functions, up to a number of them for each function and run.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import operator
import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from leaklab.lines.change import Whose
from leaklab.lines.syntax import FUNCTION_NODES, is_compiled_from, last_name, own_nodes

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
    """Notes of each of the user's functions which instructions ran, and which way each branch went."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        # Numbers, bytes and code only, which the collector does not follow: all else would be left by the first run.
        self._seen: dict[bytes, bytearray] = {}  # by number of the function and whom it ran for, a byte an instruction
        self._numbers: dict[CodeType, int] = {}
        self._next: dict[CodeType, bytes] = {}
        self._left: dict[CodeType, int] = {}
        self._n_apart: dict[CodeType, int] = {}
        self._users: dict[str, bool] = {}

    def watch_too(self, filenames: Collection[str]) -> None:
        """Watch the functions of *filenames* from now on, although they are a library's."""
        self._users.update(dict.fromkeys(filenames, True))

    # A context manager itself: one that is made for each run gives its memory back in that run, which is counted.
    def __enter__(self) -> None:
        """Watch this thread from here on, unless somebody else traces it."""
        if not HAS_POSITIONS or sys.gettrace() is not None:
            return
        self._left.update(dict.fromkeys(self._left, _MOST_EVENTS))
        sys.settrace(self._on_call)

    def __exit__(self, *_error: object) -> None:
        trace: Any = sys.gettrace()
        if getattr(trace, "__self__", None) is self:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        filename = code.co_filename
        is_users = self._users.get(filename)
        if is_users is None:
            is_users = self._users[filename] = bool(self._whose(filename))
        if not is_users or len(code.co_code) > _LONGEST:
            return None
        number = self._numbers.get(code)
        if number is None:
            number = len(self._numbers)
            if number >= _MOST_FUNCTIONS:
                return None
            self._numbers[code], self._n_apart[code] = number, 0
            self._next[code], self._left[code] = _branches_of(code), _MOST_EVENTS
        if self._left[code] <= 0:
            return None
        key = array("q", (number, *_whom(frame))).tobytes()
        if key not in self._seen:
            self._n_apart[code] += 1
            if self._n_apart[code] > _MOST_APART:
                key = array("q", (number,)).tobytes()
            self._seen.setdefault(key, bytearray(len(self._next[code]) // 2))
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return _FrameWatch(self._seen[key], self._next[code], self._left)

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

    __slots__ = ("_last", "_left", "_next", "_seen")

    def __init__(self, seen: bytearray, after: bytes, left: dict[CodeType, int]) -> None:
        self._seen, self._next, self._last, self._left = seen, after, -1, left

    def __call__(self, frame: FrameType, event: str, _arg: object) -> _FrameWatch | None:
        if event != "opcode":
            if event != "return":
                return self
            frame.f_trace = None  # an exception may keep the frame
            return None
        at, last, after = frame.f_lasti >> 1, self._last, self._next
        self._seen[at] |= RAN
        if last >= 0:
            self._seen[last] |= FELL_THROUGH if at == after[2 * last] | after[2 * last + 1] << 8 else JUMPED
        self._last = at if after[2 * at] | after[2 * at + 1] else -1
        self._left[frame.f_code] -= 1
        if self._left[frame.f_code] < 0:
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


Span = tuple[int, int, int, int]
"""First line, first column, last line, last column."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedFile:
    """The syntax tree of a file, the node above each of its nodes, and what code may be compiled from."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    compiled: list[ast.AST]

    @classmethod
    def of(cls, filename: str) -> ParsedFile | None:
        """Return the source of *filename*; None where there is none, or it is no Python."""
        try:
            tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError):
            return None
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        return cls(tree, parents, [tree, *(node for node in parents if isinstance(node, FUNCTION_NODES))])


class RanFile:
    """The functions of one file that ran."""

    def __init__(self, source: ParsedFile, filename: str) -> None:
        self._tree, self._parents, self._filename = source.tree, source.parents, filename
        self._compiled = source.compiled
        self._codes: dict[ast.AST, CodeType] = {}
        self._ran: list[Span] = []
        # Of a condition, of what it led to, and whether that is code of its own.
        self._edges: list[tuple[Span, Span | None, bool]] = []

    def add(self, code: CodeType, seen: bytes) -> None:
        """Take in one function that ran."""
        self._codes |= {node: code for node in self._compiled if is_compiled_from(node, code)}
        instructions = {one.offset: one for one in dis.get_instructions(code)}
        spans = {offset: _span(one) for offset, one in instructions.items()}
        for offset, one in instructions.items():
            if seen[offset >> 1] & RAN and (span := spans[offset]) is not None:
                self._ran.append(span)
            if not seen[offset >> 1] & (FELL_THROUGH | JUMPED) or (span := spans[offset]) is None:
                continue
            after = [offset + 2 + 2 * _n_caches(one), one.argval]
            for way, target in zip((FELL_THROUGH, JUMPED), after, strict=True):
                if seen[offset >> 1] & way:
                    led_to = instructions.get(target)
                    is_code = led_to is not None and not led_to.opname.startswith(("LOAD_CONST", "RETURN", "JUMP"))
                    self._edges.append((span, spans.get(target), is_code))

    def own_calls(self) -> Iterator[ast.Call]:
        """Yield the calls that stand in functions of this file that ran."""
        for function in self._codes:
            yield from (node for node in own_nodes(function) if isinstance(node, ast.Call))

    def _function_name(self, node: ast.AST) -> str:
        function = self._function_of(node)
        return function.name if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        while (node := self._parents.get(node)) is not None:  # type: ignore[assignment]
            if isinstance(node, FUNCTION_NODES):
                return node
        return None

    def _calls(self, functions: Collection[str]) -> Iterator[ast.AST]:
        for function in self._codes:
            for node in own_nodes(function):
                if isinstance(node, ast.Call) and last_name(node.func) in functions:
                    yield node

    def _is_reached(self, node: ast.AST) -> bool:
        """Return whether the function in which *node* stands has run."""
        return (self._function_of(node) or self._tree) in self._codes

    def _has_run(self, node: ast.AST) -> bool:
        span = _span_of(node)
        return any(_is_inside(one, span) for one in self._ran)

    def _went(self, branch: ast.If | ast.IfExp, *, into: bool) -> bool:
        """Return whether *branch* ever went into its body (*into*), or past it."""
        bodies = branch.body if isinstance(branch.body, list) else [branch.body]
        others = branch.orelse if isinstance(branch.orelse, list) else [branch.orelse]
        if into:
            return any(map(self._has_run, bodies)) or self._edge_to(branch, bodies)
        return any(map(self._has_run, others)) if others else self._edge_past(branch, bodies)

    def _edge_to(self, branch: ast.If | ast.IfExp, bodies: Sequence[ast.AST]) -> bool:
        test = _span_of(branch.test)
        inside = [_span_of(body) for body in bodies]
        return any(
            _is_inside(span, test) and target is not None and any(_is_inside(target, one) for one in inside)
            for span, target, _is_code in self._edges
        )

    def _edge_past(self, branch: ast.If | ast.IfExp, bodies: Sequence[ast.AST]) -> bool:
        test = _span_of(branch.test)
        inside = [_span_of(body) for body in bodies]
        for span, target, is_code in self._edges:
            if not _is_inside(span, test):
                continue
            if target is None or not is_code:
                if not (target is not None and any(_is_inside(target, one) for one in inside)):
                    return True
            elif not _is_inside(target, test) and not any(_is_inside(target, one) for one in inside):
                return True
        return False


def _n_caches(one: dis.Instruction) -> int:
    caches = getattr(dis, "_inline_cache_entries", None)
    if caches is None:
        return 0
    return int(caches.get(one.opname, 0) if isinstance(caches, dict) else caches[one.opcode])


def _span(one: dis.Instruction) -> Span | None:
    positions = one.positions
    if positions is None or None in positions:
        return None
    return positions.lineno, positions.col_offset, positions.end_lineno, positions.end_col_offset  # type: ignore[return-value]


def _span_of(node: Any) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _is_inside(one: Span, other: Span) -> bool:
    return one[:2] >= other[:2] and one[2:] <= other[2:]
