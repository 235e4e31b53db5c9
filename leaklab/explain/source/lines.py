"""Write a line of the user's code as people look for it: ``train.py:41 in step: history.append(loss)``."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

CellNames = Callable[[str], str]
"""Returns what a notebook calls the cell that a file name stands for, ``Cell In[7]``; empty for a real file."""

_MAX_SOURCE = 100
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class LineWriter:
    """Writes lines, with the function they are in and their source.

    Args:
        cell_name: What the notebook calls its cells.
    """

    def __init__(self, cell_name: CellNames) -> None:
        self._cell_name = cell_name
        self._trees: dict[str, ast.Module | None] = {}

    def statement(self, filename: str, number: int) -> tuple[str, int]:
        """Return the file and the first line of the statement that line *number* belongs to."""
        found = self._innermost(filename, number)
        return filename, number if found is None or _is_compound(found) else found.lineno

    def write(self, filename: str, number: int, function: str = "") -> str:
        """Return place, function and source of a line.

        Args:
            filename: As Python's code objects have it.
            number: Line number.
            function: What to call the function where the source does not tell.
        """
        cell = self._cell_name(filename)
        place = f"{cell}, line {number}" if cell else f"{short_path(filename)}:{number}"
        function = self._function(filename, number) if self._tree(filename) else function.replace("<locals>.", "")
        inside = f" in {function}" if function and function != "<module>" else ""
        source = self._source(filename, number)
        return f"{place}{inside}: {source}" if source else f"{place}{inside}"

    def _source(self, filename: str, number: int) -> str:
        found = self._innermost(filename, number)
        last = number if found is None or _is_compound(found) else found.end_lineno or number
        lines = (linecache.getline(filename, line).strip() for line in range(number, last + 1))
        source = " ".join(filter(None, lines))
        return source if len(source) <= _MAX_SOURCE else f"{source[: _MAX_SOURCE - 1]}…"

    def _innermost(self, filename: str, number: int) -> ast.stmt | None:
        tree = self._tree(filename)
        if tree is None:
            return None
        around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _covers(node, number)]
        return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)

    def _function(self, filename: str, number: int) -> str:
        tree = self._tree(filename)
        around = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []
        around = sorted((node for node in around if _covers(node, number)), key=lambda node: node.lineno)
        # The line of a class or a decorator is outside of what it begins.
        return ".".join(node.name for node in around if number >= node.body[0].lineno)

    def _tree(self, filename: str) -> ast.Module | None:
        if filename not in self._trees:
            try:
                self._trees[filename] = _parse("".join(linecache.getlines(filename)), filename)
            except (SyntaxError, ValueError, RecursionError):
                self._trees[filename] = None
        return self._trees[filename]


def cell_name(shell: Any, filename: str) -> str:
    """Return ``Cell In[7]`` for the name under which *shell* has compiled its cell 7; empty for a real file."""
    name_code = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 8 and later
    named = name_code(filename) if name_code is not None else None
    if named:
        return " ".join(named)
    numbered = re.match(r"<ipython-input-(\d+)-", filename)
    return f"Cell In[{numbered[1]}]" if numbered else ""


def running_cell_name(filename: str) -> str:
    """Return what the running notebook, if any, calls the cell that *filename* stands for; empty for a real file.

    IPython is looked up, never imported. A kernel calls its cells by temporary files, and knows their numbers.
    """
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return cell_name(None if find_shell is None else find_shell(), filename)


def _parse(source: str, filename: str) -> ast.Module | None:
    if not source:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's code: said when it was compiled
        tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return tree if isinstance(tree, ast.Module) else None


def _covers(node: ast.stmt, number: int) -> bool:
    return node.lineno <= number <= (node.end_lineno or node.lineno)


def _is_compound(node: ast.stmt) -> bool:
    return hasattr(node, "body") or hasattr(node, "cases")


def short_path(filename: str) -> str:
    """Return *filename* from the working directory on if it lies below it, else its last two parts."""
    try:
        below = os.path.relpath(filename)
    except ValueError:  # another drive
        below = os.pardir
    if not below.startswith(os.pardir):
        return below
    return str(PurePath(*PurePath(filename).parts[-2:]))
