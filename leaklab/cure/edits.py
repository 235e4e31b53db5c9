"""Make changes in the text of a program, and find the code objects that they concern.

The lines of what is not changed stay as they are, also below a change that has more lines than it replaces: so a code
object that differs is one that the change concerns.
"""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from types import CodeType

from leaklab.cure.source import FUNCTIONS
from leaklab.model.cure import Change, Cure, CureOutcome


class NotTriedError(Exception):
    """A change cannot be tried; the message is the reason, one clause."""


Path = tuple[tuple[str, int], ...]
"""The way from a module to a code object in it: names, each with its number among its equals of one code object."""


def lines_of(text: str) -> list[str]:
    """Return the lines of *text* as Python counts them, without their ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def edited(text: str, changes: Sequence[Change]) -> str:
    """Return *text* with all *changes* made.

    Raises:
        NotTriedError: if a line is not where the change has it, or if two changes concern one line.
    """
    lines = lines_of(text)
    in_order = sorted(changes, key=lambda change: change.line)
    for change, following in zip(in_order, (*in_order[1:], None), strict=True):
        before = lines_of(change.before)
        first, end = change.line - 1, change.line - 1 + len(before)
        if first < 0 or lines[first:end] != before:
            msg = "the code that runs does not match its source"
            raise NotTriedError(msg)
        if following is not None and end >= following.line:
            msg = "two changes concern one line"
            raise NotTriedError(msg)
    for change in reversed(in_order):
        first = change.line - 1
        lines[first : first + len(lines_of(change.before))] = lines_of(change.after) if change.after else []
    return "\n".join(lines)


def merged(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return *changes* with those of one place as one.

    Raises:
        NotTriedError: if two of them write different things there.
    """
    found = _by_place(changes)
    in_order = sorted(found, key=lambda change: (change.filename, change.line))
    if any(one.filename == other.filename and _end(one) > other.line for one, other in pairwise(in_order)):
        found = _by_place([part for change in changes for part in _anchored(change)])
    return found


def _end(change: Change) -> int:
    return change.line + len(lines_of(change.before))


def _anchored(change: Change) -> Iterator[Change]:
    """Yield what *change* writes above a block and below it, each beside one line of it; else the change as it is."""
    around, lines = _around(change), lines_of(change.before)
    if around is None or len(lines) == 1:
        yield change
        return
    above, below = around
    if above:
        yield replace(change, before=lines[0], after="\n".join([*above, lines[0]]))
    if below:
        last = change.line + len(lines) - 1
        where = re.sub(r"\d+\Z", str(last), change.where)
        yield replace(change, where=where, before=lines[-1], after="\n".join([lines[-1], *below]), line=last)


def _by_place(changes: Sequence[Change]) -> tuple[Change, ...]:
    found: dict[tuple[str, int, str], Change] = {}
    for change in changes:
        place = change.filename, change.line, change.before
        found[place] = _both(found[place], change) if place in found else change
    return tuple(found.values())


def _both(first: Change, second: Change) -> Change:
    """Return two changes of one text as one: what one writes around it, and each its own part of it."""
    if first.after == second.after:
        return first
    around = [_around(first), _around(second)]
    if around[0] is not None and around[1] is not None:
        parts = [*filter(None, around)]
        above = sorted((one for one, _ in parts), key=_depth)
        below = sorted((one for _, one in parts), key=_depth, reverse=True)  # an inner block ends first
        lines = [*above[0], *above[1], first.before, *below[0], *below[1]]
        return replace(first, after="\n".join(lines))
    written = next((one for one in around if one is not None), None)
    if written is not None:
        inner = second.after if around[0] is not None else first.after
        return replace(first, after="\n".join([*written[0], inner, *written[1]]))
    text = first.before
    (start, end, new), (other_start, other_end, other) = sorted([_part(text, first.after), _part(text, second.after)])
    if end >= other_start:
        msg = "two changes concern one line"
        raise NotTriedError(msg)
    return replace(first, after=text[:start] + new + text[end:other_start] + other + text[other_end:])


def _depth(lines: Sequence[str]) -> int:
    return len(lines[0]) - len(lines[0].lstrip()) if lines else 0


def _around(change: Change) -> tuple[list[str], list[str]] | None:
    """Return the lines that *change* writes above and below what stands there; None if it changes that itself."""
    before, after = lines_of(change.before), lines_of(change.after)
    for start in range(len(after) - len(before) + 1):
        if after[start : start + len(before)] == before:
            return after[:start], after[start + len(before) :]
    return None


def _part(before: str, after: str) -> tuple[int, int, str]:
    """Return where *after* differs from *before*, first and end, and what it has there."""
    start = _n_alike(before, after)
    n_same = _n_alike(before[start:][::-1], after[start:][::-1])
    return start, len(before) - n_same, after[start : len(after) - n_same]


def _n_alike(first: str, second: str) -> int:
    """Return how many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def are_apart(first: Sequence[Change], second: Sequence[Change]) -> bool:
    """Return whether a reader can make one after the other: what the second replaces is there after the first."""
    return all(_is_apart(one, other) for one in first for other in second if one.filename == other.filename)


def _is_apart(one: Change, other: Change) -> bool:
    if _end(one) <= other.line or _end(other) <= one.line:
        return True
    written, inner = _around(one), _around(other)
    if (one.line, one.before) != (other.line, other.before) or inner is None:
        return False
    # The second stands next to the line, the first around it: an inner block ends first.
    return written is None or all(map(_is_deeper, inner, written))


def _is_deeper(inner: Sequence[str], outer: Sequence[str]) -> bool:
    return not inner or not outer or _depth(inner) >= _depth(outer)


def parsed(text: str, changes: Sequence[Change] = (), filename: str = "<changed>") -> ast.Module:
    """Parse *text*, in which *changes* have been made; every node has the line where it stood before them.

    Raises:
        NotTriedError: if it is no Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code: said when it was compiled
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree = compile(text, filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        msg = f"the changed code is not valid Python ({type(error).__name__})"
        raise NotTriedError(msg) from None
    assert isinstance(tree, ast.Module)  # noqa: S101 - what PyCF_ONLY_AST returns
    if changes:
        _put_back_lines(tree, _line_before(changes))
    return tree


def _line_before(changes: Sequence[Change]) -> Callable[[int], int]:
    """Return the function from a line of the changed text to the line where that stood, or what it replaces."""
    spans: list[tuple[int, int, int, int]] = []  # first changed line, behind the last, the same lines before
    shift = 0
    for change in sorted(changes, key=lambda change: change.line):
        n_before, n_after = len(lines_of(change.before)), len(lines_of(change.after)) if change.after else 0
        first = change.line + shift
        spans.append((first, first + n_after, change.line, n_before))
        shift += n_after - n_before

    def before(line: int) -> int:
        shift = 0
        for first, end, was, n_before in spans:
            if line < first:
                break
            if line < end:
                return was + min(line - first, n_before - 1)
            shift = was + n_before - end
        return line + shift

    return before


def _put_back_lines(tree: ast.Module, before: Callable[[int], int]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.excepthandler, ast.arg, ast.keyword, ast.alias, ast.pattern)):
            first, last = node.lineno, node.end_lineno or node.lineno
            node.lineno, node.end_lineno = before(first), before(last)
            if node.end_lineno == node.lineno and (node.end_col_offset or 0) < node.col_offset:
                node.end_col_offset = node.col_offset  # of several lines that stand for one


def statements_in(text: str) -> Iterator[ast.Module]:
    """Yield the statements of a part of a program, be its lines indented, or the heads of blocks; nothing of others."""
    lines = textwrap.dedent(text)
    for code in (lines, f"{lines} pass", f"if 1:\n{text}"):
        with contextlib.suppress(SyntaxError, ValueError):
            yield ast.parse(code)
            return
    parts = [line.strip() for line in text.splitlines()]
    for code in parts if len(parts) > 1 else ():
        yield from statements_in(code)


def code_objects(code: CodeType) -> dict[Path, CodeType]:
    """Return *code* and all code objects in it."""
    return dict(_below(code, ()))


def _below(code: CodeType, path: Path) -> Iterator[tuple[Path, CodeType]]:
    yield path, code
    seen: Counter[str] = Counter()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _below(constant, (*path, (constant.co_name, seen[constant.co_name])))
            seen[constant.co_name] += 1


def changed_code(old: CodeType, new: CodeType) -> set[Path]:
    """Return the paths, of those that *old* and *new* have in common, whose own code differs.

    Raises:
        NotTriedError: if the change adds or takes away functions, so that nobody knows which is which.
    """
    before, after = code_objects(old), code_objects(new)
    moved = before.keys() ^ after.keys()
    if any(name not in _INLINE for *_above, (name, _number) in moved):
        msg = "it would add or remove a function"
        raise NotTriedError(msg)
    return {path for path in before.keys() & after.keys() if _own(before[path]) != _own(after[path])}


_INLINE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Code objects that run where they stand: nobody keeps their functions."""


def _own(code: CodeType) -> tuple[object, ...]:
    """Return what *code* does, without what the code objects in it do."""
    constants = tuple(
        (constant.co_name,) if isinstance(constant, CodeType) else (type(constant), repr(constant))
        for constant in code.co_consts
    )
    return (
        code.co_name, code.co_code, constants, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        getattr(code, "co_exceptiontable", b""),
    )  # fmt: skip


MAGIC_LINE = "# the magic's line\n"
"""Stands where ``%%leakcheck`` stood, so that the lines below it have the numbers that the user sees."""
_MAGIC_CALL = "get_ipython()."
_MOST_CHARACTERS = 20_000


def with_changed_cells(
    cures: Sequence[Cure], cell_name: Callable[[str], str], source: Callable[[str], str | None]
) -> tuple[Cure, ...]:
    """Return *cures*, those that cured with the whole changed cell where all their changes lie in one cell.

    Args:
        cures: What was tried.
        cell_name: What the notebook calls the cell of a file name; empty for a real file.
        source: The text of a file.
    """
    return tuple(replace(cure, changed_cell=_changed_cell(cure, cell_name, source)) for cure in cures)


def _changed_cell(cure: Cure, cell_name: Callable[[str], str], source: Callable[[str], str | None]) -> str:
    names = {change.filename for change in cure.changes}
    if cure.outcome is not CureOutcome.CURED or len(names) != 1 or not cell_name(name := names.pop()):
        return ""
    text = source(name) or ""
    # What the notebook made of lines such as ``%time`` and ``!ls`` is not what the person has written there.
    if not text or _MAGIC_CALL in text or len(text) > _MOST_CHARACTERS:
        return ""
    try:
        return edited(text, cure.changes).removeprefix(MAGIC_LINE).strip("\n")
    except NotTriedError:  # the cell was run anew meanwhile
        return ""


def with_names(text: str, names: dict[str, str]) -> str:
    """Return *text*, statements, with other words for some of their variables."""
    lines = text.split("\n")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(found, key=lambda node: -node.col_offset):
        encoded = lines[node.lineno - 1].encode()
        start, end = encoded[: node.col_offset].decode(), encoded[node.end_col_offset :].decode()
        lines[node.lineno - 1] = f"{start}{names[node.id]}{end}"
    return "\n".join(lines)


def local_names(function: ast.AST | None) -> set[str]:
    """Return the names of a function's own variables, those of the functions in it included."""
    found: set[str] = set()
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, FUNCTIONS) and node is not function:
            found.add(node.name)
    return found


def own_names(function: ast.AST | None) -> set[str]:
    """Return the variables of *function* that end with its call: those of `local_names` that it does not share."""
    nodes = () if function is None else ast.walk(function)
    shared = (node.names for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)))
    return local_names(function).difference(*shared)


def own_nodes(top: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of *top*, a function or a module, that are in none of the functions that it makes."""
    inner = (one for one in ast.walk(top) if isinstance(one, FUNCTIONS) and one is not top)
    inside = {node for one in inner for node in ast.walk(one)}
    return (node for node in ast.walk(top) if node not in inside)
