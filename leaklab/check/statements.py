"""Split a cell into the statements that are run and counted one by one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """Statements at the top level of a cell that share a line, most often one.

    Attributes:
        nodes: What is compiled together.
        line: First line, 1 for the first of the text; decorators belong to what they decorate.
        end_line: Last line.
        source: Its text as it was written.
    """

    nodes: tuple[ast.stmt, ...]
    line: int
    end_line: int
    source: str


def split_statements(tree: ast.Module, text: str, written: str) -> tuple[Statement, ...]:
    """Return the top-level statements of *tree*; a compound one (``for``, ``with``, ``def``) is one with its body.

    Args:
        tree: Of the cell.
        text: What was parsed.
        written: What the user wrote, with magics as they are; shown where its lines are those of *text*.
    """
    lines = written.splitlines()
    if len(lines) != len(text.splitlines()):
        lines = text.splitlines()
    groups: list[list[ast.stmt]] = []
    for node in tree.body:
        if groups and _first_line(node) <= _last_line(groups[-1]):
            groups[-1].append(node)
        else:
            groups.append([node])
    return tuple(_statement(nodes, lines) for nodes in groups)


def _statement(nodes: Sequence[ast.stmt], lines: Sequence[str]) -> Statement:
    first, last = _first_line(nodes[0]), _last_line(nodes)
    return Statement(tuple(nodes), first, last, "\n".join(lines[first - 1 : last]))


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(nodes: Sequence[ast.stmt]) -> int:
    return max(node.end_lineno or node.lineno for node in nodes)
