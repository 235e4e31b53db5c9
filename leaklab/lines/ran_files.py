"""Say on the syntax tree of a file what ran, and which way each branch went: what `leaklab.lines.branches` noted."""

from __future__ import annotations

import ast
import dis
import linecache
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from types import CodeType
from typing import Any

from leaklab.lines.branches import FELL_THROUGH, JUMPED, RAN
from leaklab.lines.syntax import FUNCTION_NODES, compiled_as, last_name, own_nodes, parents_in

Span = tuple[int, int, int, int]
"""First line, first column, last line, last column."""
Edge = tuple[Span, Span | None, bool]
"""Of a condition, of what it led to, and whether that is code of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedFile:
    """The syntax tree of a file, the node above each of its nodes, and what code may be compiled from.

    Attributes:
        compiled: The file itself and its functions, by the line and the name that their code has.
    """

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    compiled: dict[tuple[int, str], list[ast.AST]]

    @classmethod
    def of(cls, filename: str) -> ParsedFile | None:
        """Return the source of *filename*; None where there is none, or it is no Python."""
        try:
            tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError):
            return None
        parents = parents_in(tree)
        compiled: dict[tuple[int, str], list[ast.AST]] = defaultdict(list)
        for function in filter(lambda node: isinstance(node, FUNCTION_NODES), parents):
            compiled[compiled_as(function)].append(function)
        return cls(tree, parents, compiled)

    def sources_of(self, code: CodeType) -> list[ast.AST]:
        """Return what *code* may be compiled from."""
        if code.co_name == "<module>":
            return [self.tree]
        return self.compiled.get((code.co_firstlineno, code.co_name), [])


class RanFile:
    """The functions of one file that ran."""

    def __init__(self, source: ParsedFile, filename: str) -> None:
        self._tree, self._parents, self._filename = source.tree, source.parents, filename
        self._source = source
        self._codes: dict[ast.AST, CodeType] = {}
        self._seen: dict[CodeType, bytes] = {}
        self._decoded: dict[CodeType, _Decoded] = {}
        self._ran: list[Span] = []
        self._edges: list[Edge] = []
        self._at: dict[ast.AST, int] = {}  # of functions that run, and are not called again, the line they were at

    def add(self, code: CodeType) -> None:
        """Take in one function that ran."""
        self._codes |= dict.fromkeys(self._source.sources_of(code), code)

    def see(self, code: CodeType, seen: bytes) -> bool:
        """Take in what was seen of a function; return whether that is something else than before."""
        is_other = self._seen.get(code) != seen
        self._seen[code] = seen
        return is_other

    def look(self) -> None:
        """Say of the file what was seen of its functions."""
        self._ran, self._edges = [], []
        for code, seen in self._seen.items():
            if code not in self._decoded:
                self._decoded[code] = _Decoded.of(code)
            ran, edges = self._decoded[code].read(seen)
            self._ran += ran
            self._edges += edges

    def note_running(self, code: CodeType, line: int) -> bool:
        """Take in that *code* runs already, and is at *line*; return whether that is in a loop of its own."""
        functions = self._source.sources_of(code)
        self._at |= dict.fromkeys(functions, line)
        return any(_is_loop_around(node, line) for function in functions for node in own_nodes(function))

    def _is_over(self, node: ast.AST) -> bool:
        """Return whether *node* stands before the line that its function is at, in no loop that would come to it.

        Of that line the calls are over: it waits for one of them, and makes them before it gives anything a name.
        """
        at = self._at.get(self._function_of(node) or self._tree)
        if at is None or getattr(node, "lineno", at) + (not isinstance(node, ast.Call)) > at:
            return False
        above = self._parents.get(node)
        while above is not None and not isinstance(above, FUNCTION_NODES):
            if _is_loop_around(above, at):
                return False
            above = self._parents.get(above)
        return True

    def own_calls(self) -> Iterator[ast.Call]:
        """Return the calls that stand in functions of this file that ran."""
        return (node for function in self._codes for node in own_nodes(function) if isinstance(node, ast.Call))

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

    def _is_left(self, loop: ast.While) -> bool:
        """Return whether *loop* was seen to end by its condition."""
        return self._edge_past(loop, loop.body)

    def _edge_to(self, branch: ast.If | ast.IfExp, bodies: Sequence[ast.AST]) -> bool:
        inside = [_span_of(body) for body in bodies]
        return any(
            target is not None and any(_is_inside(target, one) for one in inside)
            for _span, target, _is_code in self._edges_of(branch)
        )

    def _edges_of(self, branch: ast.If | ast.IfExp | ast.While) -> Iterator[Edge]:
        """Yield the ways that the conditions of *branch* went; in CPython 3.11 a plain name stands for all of it."""
        test, whole = _span_of(branch.test), _span_of(branch)
        return (edge for edge in self._edges if edge[0] == whole or _is_inside(edge[0], test))

    def _edge_past(self, branch: ast.If | ast.IfExp | ast.While, bodies: Sequence[ast.AST]) -> bool:
        test = _span_of(branch.test)
        inside = [_span_of(body) for body in bodies]
        for _span, target, is_code in self._edges_of(branch):
            if target is None or not is_code:
                if not (target is not None and any(_is_inside(target, one) for one in inside)):
                    return True
            elif not _is_inside(target, test) and not any(_is_inside(target, one) for one in inside):
                return True
        return False


def note_running(files: Mapping[str, RanFile], running: Sequence[tuple[CodeType, int] | None]) -> None:
    """Note in *files* where the functions are that run already, the innermost first: `BranchWatch.running`.

    Of a function that is called in a loop, or by a library, all runs again.
    """
    for place in dropwhile(lambda place: place is None, reversed(running)):
        if place is None or place[0].co_filename not in files or files[place[0].co_filename].note_running(*place):
            return


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The instructions of a function, with the places of their source; decoded once for many questions."""

    instructions: dict[int, dis.Instruction]
    spans: dict[int, Span | None]

    @classmethod
    def of(cls, code: CodeType) -> _Decoded:
        instructions = {one.offset: one for one in dis.get_instructions(code)}
        return cls(instructions, {offset: _span(one) for offset, one in instructions.items()})

    def read(self, seen: bytes) -> tuple[list[Span], list[Edge]]:
        """Return the places of what ran, and which way each condition went."""
        ran: list[Span] = []
        edges: list[Edge] = []
        for offset, one in self.instructions.items():
            noted, span = seen[offset >> 1], self.spans[offset]
            if not noted or span is None:
                continue
            if noted & RAN:
                ran.append(span)
            if not noted & (FELL_THROUGH | JUMPED):
                continue
            after = [offset + 2 + 2 * _n_caches(one), one.argval]
            for way, target in zip((FELL_THROUGH, JUMPED), after, strict=True):
                if noted & way:
                    led_to = self.instructions.get(target)
                    is_code = led_to is not None and not led_to.opname.startswith(("LOAD_CONST", "RETURN", "JUMP"))
                    edges.append((span, self.spans.get(target), is_code))
        return ran, edges


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


def _is_loop_around(node: ast.AST, line: int) -> bool:
    return isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno <= line <= (node.end_lineno or line)


def _span_of(node: Any) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _is_inside(one: Span, other: Span) -> bool:
    return one[:2] >= other[:2] and one[2:] <= other[2:]
