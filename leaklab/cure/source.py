"""A proposed change of a program; single expressions and statements change, every other character stays as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaklab.lines.syntax import parents_in
from leaklab.model.cure import Change


@dataclass(frozen=True, slots=True)
class Program:
    """The user's program, as far as a change to it can be thought out.

    Attributes:
        namespace: The global variables of the code that is checked; read, never changed.
        source: Returns the text behind the file name of a code object; None where there is none to be had.
        place: Returns how a reader knows a line of such a file: ``this cell, line 3``.
        checked: The file name of the code that runs again and again: the cell's, or that of the checked function.
        function: The name of the checked function; empty for a cell, all of which runs again and again.
    """

    namespace: Mapping[str, Any]
    source: Callable[[str], str | None]
    place: Callable[[str, int], str]
    checked: str
    function: str = ""

    def named(self, filename: str) -> str:
        """Return what a reader calls a file or a cell: ``this cell``, ``Cell In[2]``, ``train.py``."""
        return re.sub(r"(, line |:)1\Z", "", self.place(filename, 1))


@dataclass(frozen=True, slots=True)
class Remade:
    """A container that lives as long as the program, and is to be of another kind from the start.

    Attributes:
        place: Python for it, in the program's variables.
        make: Makes the other one of what is in the container.
        lines: File names and lines of the changes that ran once: where it is made, and what that imports.
    """

    place: str
    make: Callable[[Any], Any]
    lines: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change worth trying, or a cure that can be said in words only.

    Attributes:
        words: What to do, one sentence in the user's own names.
        changes: All of them together are tried; empty for a cure in words only.
        not_tried: Why the change must not be tried, one clause; empty if it may.
        emptied: Expressions, in the program's variables, of the containers (list, dict, set, deque, and subclasses of
            these) out of which the change takes entries, and of variables and attributes that it binds to less: where a
            trial in this process could not put these back, it is not made.
        drops: What of that may still be in use, one clause; empty if nothing: such a change cures nothing.
        again: File names of cells that ran once, before what is checked, and are run again: changed before a trial of
            the change, and unchanged before the runs that it is compared with.
        begun: Expressions of tensors and functions that begin without what earlier runs have added to them, a graph or
            layers, where the change is tried: as they do in a program that has the change from the start.
        cuts_history: Whether the change means to cut a graph that goes on from run to run: gradients are others then.
        full_after: So many runs it takes until what the change leaves in place has all that it will have.
        remade: The containers that the change makes otherwise, where they are made: that ran once, so the trial puts
            others in their places.
    """

    words: str
    changes: tuple[Change, ...] = ()
    not_tried: str = ""
    emptied: tuple[str, ...] = ()
    drops: str = ""
    again: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    cuts_history: bool = False
    full_after: int = 0
    remade: tuple[Remade, ...] = ()


_BLOCKS = ("body", "orelse", "finalbody")
_STEP = "    "
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class SourceText:
    """The text of one file, with its syntax tree.

    Raises:
        SyntaxError: if it is no Python, a cell with magics for instance.
    """

    def __init__(self, filename: str, text: str) -> None:
        self.filename = filename
        self.text = text
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._parents = parents_in(self.tree)

    @property
    def nodes(self) -> Iterable[ast.AST]:
        """The nodes of the tree, in the order of `ast.walk`, without walking it again for each question."""
        return self._parents.keys()

    def at(self, line: int, column: int) -> int:
        """Return the position in the text of a place as `ast` tells it, whose columns count bytes."""
        encoded = self.lines[line - 1].encode() if line <= len(self.lines) else b""
        return self._starts[line - 1] + len(encoded[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where *node* begins and ends."""
        start = self.at(node.lineno, node.col_offset)
        return start, self.at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Return *node* as it is written."""
        start, end = self.span(node)
        return self.text[start:end]

    def operand(self, node: ast.expr) -> str:
        """Return *node* as it is written, in brackets where an attribute could not follow it."""
        text = self.text_of(node)
        return text if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"

    def indent_of(self, line: int) -> str:
        """Return the blanks that a line begins with."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip())]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return what *node* is a part of."""
        return self._parents.get(node)

    def statement_at(self, line: int) -> ast.stmt | None:
        """Return the innermost statement that *line* belongs to; of a compound one only its head counts."""
        around = [node for node in self._parents if isinstance(node, ast.stmt) and _has_line(node, line)]
        return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0), node.col_offset), default=None)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield all that *node* is a part of, the smallest first."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that *node* is in."""
        return next((one for one in (node, *self.above(node)) if isinstance(one, ast.stmt)), None)

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """Return the function that *node* is in; None at the top."""
        return next((one for one in self.above(node) if isinstance(one, (*FUNCTIONS, ast.Lambda))), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method *function* is; None for any other function."""
        above = self.parent(function)
        return above if isinstance(above, ast.ClassDef) else None

    def loops_around(self, node: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
        """Yield the loops of its function that repeat *node*, the innermost first."""
        below, above = node, self.parent(node)
        while above is not None and not isinstance(above, (*FUNCTIONS, ast.Lambda)):
            if isinstance(above, (ast.For, ast.AsyncFor, ast.While)) and below in above.body:
                yield above
            below, above = above, self.parent(above)

    def siblings(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the block that *statement* is in."""
        above = self.parent(statement)
        blocks = (getattr(above, name, []) for name in (*_BLOCKS, "handlers"))
        return next((block for block in blocks if statement in block), [statement])


def _has_line(node: ast.stmt, line: int) -> bool:
    blocks = [block for name in _BLOCKS if (block := getattr(node, name, None))]
    first = min((block[0].lineno for block in blocks), default=None)
    is_match = isinstance(node, ast.Match)
    last = (
        node.lineno if is_match else (node.end_lineno or node.lineno) if first is None else max(first - 1, node.lineno)
    )
    return node.lineno <= line <= last


@dataclass
class _Edit:
    start: int
    end: int
    new: str
    first_line: int
    last_line: int


@dataclass
class Patch:
    """Changes to one or several files, collected piece by piece.

    Attributes:
        is_possible: Whether every piece could be written so far.
    """

    program: Program
    is_possible: bool = True
    _edits: dict[str, list[_Edit]] = field(default_factory=dict)
    _sources: dict[str, SourceText] = field(default_factory=dict)

    def replace(self, source: SourceText, node: ast.expr | ast.stmt, new: str) -> None:
        """Write *new* where *node* stands."""
        start, end = source.span(node)
        self._add(source, _Edit(start, end, new, node.lineno, node.end_lineno or node.lineno))

    def after(self, source: SourceText, statement: ast.stmt, lines: Sequence[str]) -> None:
        """Write *lines* below *statement*, in its block."""
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        start, end = source.span(statement)
        before = source.text[source.at(first, 0) : start]
        rest = source.lines[last - 1][end - source.at(last, 0) :]
        indent = source.indent_of(first)
        behind = rest.strip()
        if before.strip().endswith(":") and not isinstance(source.parent(statement), ast.Module):
            self._break_head(source, statement, lines, behind)
            return
        if behind and not behind.startswith("#"):
            if not behind.startswith(";") or hasattr(statement, "body"):
                self.is_possible = False
                return
            new = "".join(f"\n{indent}{line}" for line in lines)
            following = behind[1:].strip()
            cut = end + len(rest)
            self._add(source, _Edit(end, cut, f"{new}\n{indent}{following}" if following else new, first, last))
            return
        at = end + len(rest.rstrip())
        new = "".join(f"\n{indent}{line}" for line in lines)
        self._add(source, _Edit(at, at, new, first, last))

    def before(self, source: SourceText, statement: ast.stmt, lines: Sequence[str], *, on_top: bool = False) -> None:
        """Write *lines* above *statement*, in its block; *on_top* of what was written there already, or below it."""
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(one.lineno for one in decorators)])
        start = source.span(statement)[0] if not decorators else source.at(first, 0)
        indent = source.indent_of(first)
        if source.text[source.at(first, 0) : start].strip():
            self.is_possible = False
            return
        at = source.at(first, 0)
        edit = _Edit(at, at, "".join(f"{indent}{line}\n" for line in lines), first, first)
        self._add(source, edit, on_top=on_top)

    def _break_head(self, source: SourceText, statement: ast.stmt, lines: Sequence[str], behind: str) -> None:
        """Give the one statement behind a head (``for x in y: statement``) a block of its own, with *lines* in it."""
        line, (start, end) = statement.lineno, source.span(statement)
        if (statement.end_lineno or line) != line or (behind and not behind.startswith("#")):
            self.is_possible = False
            return
        head = source.text[source.at(line, 0) : start]
        inner = source.indent_of(line) + _STEP
        at = source.at(line, 0) + len(head.rstrip())
        self._add(source, _Edit(at, start, f"\n{inner}", line, line))
        self._add(source, _Edit(end, end, "".join(f"\n{inner}{new}" for new in lines), line, line))

    def remove(self, source: SourceText, statement: ast.stmt) -> None:
        """Take *statement* out, which is not alone in its block: with its lines, or from behind a semicolon."""
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        start, end = source.at(first, 0), source.at(last, 0) + len(source.lines[last - 1])
        block = source.siblings(statement)
        if source.text[start:end].strip() != source.text_of(statement):
            number = block.index(statement)
            before = source.span(block[number - 1])[1] if number else start
            start, end = before, source.span(statement)[1]
            self.is_possible &= source.text[start : source.span(statement)[0]].strip() == ";"
        self.is_possible &= len(block) > 1
        self._add(source, _Edit(start, end, "", first, last))

    def indent(self, source: SourceText, statements: Sequence[ast.stmt], head: str) -> None:
        """Write *head* above *statements*, neighbours with lines of their own, and them as its block."""
        first, last = statements[0].lineno, statements[-1].end_lineno or statements[-1].lineno
        start, end = source.at(first, 0), source.at(last, 0) + len(source.lines[last - 1])
        nodes = (node for one in statements for node in ast.walk(one))
        texts = (ast.Constant, ast.JoinedStr)  # a text of several lines would get the blanks as well
        if any(isinstance(node, texts) and node.end_lineno != node.lineno for node in nodes):
            self.is_possible = False
            return
        before = source.text[start : source.span(statements[0])[0]].strip()
        if before or getattr(statements[0], "decorator_list", []):
            self.is_possible = False
            return
        indent = source.indent_of(first)
        lines = (f"{_STEP}{line}" if line.strip() else line for line in source.lines[first - 1 : last])
        self._add(source, _Edit(start, end, "\n".join((f"{indent}{head}", *lines)), first, last))

    def without_first_parameter(self, source: SourceText, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Take the first parameter of *function* out, with the comma behind it."""
        given = [*function.args.posonlyargs, *function.args.args]
        start = source.at(given[0].lineno, given[0].col_offset)
        rest = [*given[1:], *filter(None, [function.args.vararg]), *function.args.kwonlyargs]
        end = source.at(given[0].end_lineno or given[0].lineno, given[0].end_col_offset or 0)
        if rest and len(given) == 1:
            self.is_possible = False  # a star stands between
            return
        end = source.at(rest[0].lineno, rest[0].col_offset) if rest else end
        self._add(source, _Edit(start, end, "", given[0].lineno, given[0].lineno))

    def without_decorator(self, source: SourceText, decorator: ast.expr) -> None:
        """Take *decorator* out, which has a line of its own."""
        first, last = decorator.lineno, decorator.end_lineno or decorator.lineno
        start, end = source.at(first, 0), source.at(last, 0) + len(source.lines[last - 1])
        if source.text[start:end].strip() != f"@{source.text_of(decorator)}":
            self.is_possible = False
            return
        self._add(source, _Edit(start, end, "", first, last))

    def forget(self, source: SourceText) -> None:
        """Take back what was collected for *source*."""
        self._edits.pop(source.filename, None)
        self._sources.pop(source.filename, None)

    def _add(self, source: SourceText, edit: _Edit, *, on_top: bool = False) -> None:
        self._sources[source.filename] = source
        edits = self._edits.setdefault(source.filename, [])
        if any(edit.start < other.end and other.start < edit.end for other in edits):
            self.is_possible = False
        edits.insert(0 if on_top else len(edits), edit)

    def changes(self) -> tuple[Change, ...]:
        """Return what was collected, by whole lines; nothing if a piece was impossible or the result is no Python."""
        if not self.is_possible:
            return ()
        found: list[Change] = []
        for filename, edits in self._edits.items():
            source = self._sources[filename]
            text = source.text
            for edit in _from_last(edits):
                text = text[: edit.start] + edit.new + text[edit.end :]
            try:
                ast.parse(text)
            except (SyntaxError, ValueError):
                return ()
            found += self._by_lines(source, edits)
        return tuple(found)

    def _by_lines(self, source: SourceText, edits: list[_Edit]) -> Iterator[Change]:
        groups: list[list[_Edit]] = []
        for edit in sorted(edits, key=lambda edit: (edit.first_line, edit.last_line)):
            if groups and edit.first_line <= max(other.last_line for other in groups[-1]):
                groups[-1].append(edit)
            else:
                groups.append([edit])
        for group in groups:
            first, last = group[0].first_line, max(edit.last_line for edit in group)
            start, end = source.at(first, 0), source.at(last, 0) + len(source.lines[last - 1])
            after = source.text[start:end]
            for edit in _from_last(group):
                after = after[: edit.start - start] + edit.new + after[edit.end - start :]
            before = source.text[start:end]
            place = self.program.place(source.filename, first)
            yield Change(place, before, after.rstrip("\n"), source.filename, first)


def _from_last(edits: list[_Edit]) -> list[_Edit]:
    """Return *edits* so that each leaves the places of the next as they are; of two at one place the later is below.

    What stands at a place and is replaced lies below all that is written there.
    """
    numbered = sorted(enumerate(edits), key=lambda item: (item[1].start, item[1].end > item[1].start, item[0]))
    return [edit for _, edit in reversed(numbered)]
