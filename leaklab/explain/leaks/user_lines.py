"""Find the user's line that puts things into a holder, by reading the source of the user's cells and modules.

Only text is read: the sources that Python keeps for its tracebacks, parsed, never run. A line is named where it is the
only one, or where all candidates read the same.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaklab.explain.source.lines import running_cell_name
from leaklab.explain.source.origins import Origin, origin_of

MAX_SOURCES = 60
"""So many of the newest sources are read: a long notebook has some dozens of cells."""
MAX_CHARACTERS = 100_000
"""A longer source is generated, or data; parsing it would cost more than 0.1 s."""
_ADDING = frozenset({
    "append", "appendleft", "add", "extend", "extendleft", "insert", "update", "setdefault", "put", "put_nowait",
    "write", "writelines", "push", "register", "submit", "register_buffer",
})  # fmt: skip
_KERNEL_FILE = re.compile(r"ipykernel_\d+[\\/]")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A statement of the user's.

    Attributes:
        place: ``Cell In[7], line 3``, or file and line.
        text: The statement on one line.
        added: The expression that is put into the holder; empty if it cannot be told.
    """

    place: str
    text: str
    added: str = ""

    def with_added(self, changed: str) -> str:
        """Return the statement with *changed* in the place of what is added."""
        at = self.text.rfind(self.added) if self.added else -1
        return self.text if at < 0 else self.text[:at] + changed + self.text[at + len(self.added) :]


def find_line(holder: str) -> SourceLine | None:
    """Return the statement of the user that adds to what *holder* (an expression) names; None if that is not clear."""
    name = _last_name(holder)
    if not name:
        return None
    found = [line for filename, text in _sources(name) for line in _lines_in(filename, text, name)]
    texts = {line.text for line in found}
    return found[0] if len(texts) == 1 else None


def _last_name(expression: str) -> str:
    """Return the last attribute or variable that *expression* names: ``history`` of ``runs['a'].history[3]``."""
    names: list[str] = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", expression))
    return names[-1] if names and names[-1] != "globals" else ""


def _sources(name: str) -> Iterator[tuple[str, str]]:
    """Yield the sources of the user that mention *name*, the newest first."""
    newest = list(linecache.cache.items())[::-1]
    n_read = 0
    for filename, entry in newest:
        if n_read >= MAX_SOURCES:
            return
        if type(filename) is not str or type(entry) is not tuple or len(entry) < 3:  # noqa: PLR2004 - one not read yet
            continue
        if origin_of(filename) is not Origin.USER:
            continue
        n_read += 1
        lines: Sequence[str] = entry[2]
        text = "".join(lines)
        if name in text and len(text) <= MAX_CHARACTERS:
            yield filename, text


def _lines_in(filename: str, text: str, name: str) -> Iterator[SourceLine]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell with magics, or no Python at all
        return
    for node in ast.walk(tree):
        added = _added_by(node, name)
        if added is not None:
            words = _one_line(ast.get_source_segment(text, node) or ast.unparse(node))
            value = _one_line(ast.get_source_segment(text, added) or "") if isinstance(added, ast.expr) else ""
            yield SourceLine(_place(filename, node.lineno), words, value)  # type: ignore[attr-defined]  # a statement


def _added_by(node: ast.AST, name: str) -> ast.AST | None:
    """Return what the statement *node* adds to a thing called *name*; the node itself if that is no one expression."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING and _is_called(call.func.value, name):
            return call.args[-1] if call.args else node
    if isinstance(node, ast.AugAssign) and _is_called(node.target, name):
        return node.value
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _is_called(target.value, name):
            return node.value
    return None


def _is_called(node: ast.expr, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _place(filename: str, number: int) -> str:
    if cell := running_cell_name(filename):
        return f"{cell}, line {number}"
    if _KERNEL_FILE.search(filename):
        return f"a cell of this notebook, line {number}"
    return f"{filename}, line {number}"
