"""What of a file ran, on its syntax tree: which statements, and which way the conditions went."""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from leaklab.lines.branches import FELL_THROUGH, JUMPED, RAN
from leaklab.lines.syntax import FUNCTION_NODES, is_compiled_from, last_name, own_nodes

Span = tuple[int, int, int, int]
"""First line, first column, last line, last column."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedFile:
    """The syntax tree of a file, and the node above each of its nodes."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]

    @classmethod
    def of(cls, filename: str) -> ParsedFile | None:
        """Return the source of *filename*; None where there is none, or it is no Python."""
        try:
            tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError):
            return None
        return cls(tree, {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)})


class RanFile:
    """The functions of one file that ran.

    Args:
        source: The file.
        filename: Its name.
    """

    def __init__(self, source: ParsedFile, filename: str) -> None:
        self._tree, self._parents, self._filename = source.tree, source.parents, filename
        self._codes: dict[ast.AST, CodeType] = {}
        self._ran: list[Span] = []
        # Of a condition, of what it led to, and whether that is code of its own.
        self._edges: list[tuple[Span, Span | None, bool]] = []

    def add(self, code: CodeType, seen: bytes) -> None:
        """Take in one function that ran."""
        self._codes |= {node: code for node in (self._tree, *self._parents) if is_compiled_from(node, code)}
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
