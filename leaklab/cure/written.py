"""Read a change that somebody has written, a unified diff or new source, as changes of the program's lines.

What is written names its place loosely: a diff has line numbers that were counted without the magic's line, or the name
of a file that is called otherwise here. So a hunk belongs where its lines stand, near to the line that it names.
"""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent, indent

from leaklab.cure.edits import MAGIC_LINE, NotTriedError, edited, lines_of
from leaklab.cure.source import FUNCTIONS, Program
from leaklab.errors import ChangeError
from leaklab.model.cure import Change
from leaklab.text import shorten

_HEAD = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
_MAGIC = re.compile(r"\A([ +-])%%leakcheck\b.*")
_NO_NAME = "/dev/null"
_LINE_LIMIT = 60
_EMPTY = "the change leaves no statement of the code"
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """A part of a diff: the line that it names, and what stands there before and after."""

    head: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenProgram:
    """A program as people write it.

    Attributes:
        program: As it runs.
        files: The file names of its code objects that may be meant, the likeliest first.
        written: What is checked, as it was typed; empty where that is what runs.
        as_run: Returns for the text of a cell what runs of it: magics are calls there.
    """

    program: Program
    files: Sequence[str] = ()
    written: str = ""
    as_run: Callable[[str], str] = str

    def texts(self) -> dict[str, str]:
        """Return the text of each file whose text is known, as it was typed, the likeliest first."""
        program = self.program
        names = dict.fromkeys((program.checked, *self.files))
        texts = {name: text for name in names if (text := program.source(name))}
        return {**texts, program.checked: self.written} if self.written and program.checked in texts else texts


def written_changes(text: str, program: WrittenProgram) -> tuple[Change, ...]:
    """Return the changes that *text* makes.

    Args:
        text: A unified diff; or the new source of the cell that is checked, or of functions and classes that it uses.
        program: The program as it is.

    Raises:
        ChangeError: one sentence, if *text* does not fit the program or changes nothing of it.
    """
    if not text.strip():
        msg = "the change is empty: give a unified diff, or the new source of the cell or of a function"
        raise ChangeError(msg)
    if not (texts := program.texts()):
        msg = "the source of the checked code is not known, so it cannot be changed"
        raise ChangeError(msg)
    changed = _patched(text, program, texts) if _is_diff(text) else _replaced(text, program, texts)
    changes: list[Change] = []
    for name, new in changed.items():
        as_run = program.as_run(new) if name == program.program.checked else new
        changes += _changes(program.program, name, program.program.source(name) or "", as_run)
    if not changes:
        msg = "the change leaves the program as it is"
        raise ChangeError(msg)
    return tuple(changes)


def _is_diff(text: str) -> bool:
    return any(_HEAD.match(line) for line in dedent(text).splitlines())


def _replaced(text: str, program: WrittenProgram, texts: dict[str, str]) -> dict[str, str]:
    """Return the files with their new texts where *text* is new source."""
    checked, function = program.program.checked, program.program.function
    text = text.strip("\n") if function else program.as_run(text.strip("\n"))
    tree = _tree(text)
    if not tree.body:
        raise ChangeError(_EMPTY)
    definitions = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
    if function and len(definitions) != len(tree.body):
        msg = "the new source must be that of a function or a class: a unified diff can change any line"
        raise ChangeError(msg)
    if not function and (len(definitions) != len(tree.body) or _is_whole(tree, program.program.source(checked) or "")):
        return {checked: text}
    changed: dict[str, str] = {}
    for node in definitions:
        name, place = _place_of(node.name, {name: changed.get(name, old) for name, old in texts.items()})
        changed[name] = _with_definition(changed.get(name, texts[name]), place, _segment(text, node))
    return changed


def _is_whole(tree: ast.Module, old: str) -> bool:
    """Return whether new source that is made of definitions stands for a whole cell: one of the same definitions."""
    was = _tree(old).body
    names, old_names = ({getattr(node, "name", "") for node in body} for body in (tree.body, was))
    return "" not in old_names and old_names <= names


def _place_of(name: str, texts: dict[str, str]) -> tuple[str, ast.stmt]:
    """Return the file and the definition called *name*, the likeliest file first.

    Raises:
        ChangeError: if there is none, or one file has several.
    """
    for filename, text in texts.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        found = [node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS) and node.name == name]
        at_top = [node for node in found if node in tree.body] or found
        if len(at_top) > 1:
            msg = f"there are {len(at_top)} definitions called `{name}` in one source: a unified diff can say which"
            raise ChangeError(msg)
        if at_top:
            return filename, at_top[0]
    msg = f"there is no function or class `{name}` in the checked code, nor in the sources that it uses"
    raise ChangeError(msg)


def _segment(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    return "\n".join(lines_of(text)[_first_line(node) - 1 : node.end_lineno])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _with_definition(text: str, node: ast.stmt, new: str) -> str:
    lines = lines_of(text)
    first = _first_line(node) - 1
    blanks = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    lines[first : node.end_lineno] = lines_of(indent(dedent(new), blanks))
    return "\n".join(lines)


def _patched(text: str, program: WrittenProgram, texts: dict[str, str]) -> dict[str, str]:
    """Return the files with their new texts where *text* is a unified diff."""
    changed: dict[str, str] = {}
    for name, hunks in _parts(text):
        now = {**texts, **changed}
        filename = _meant(name, hunks, program.program, now)
        changed[filename] = _applied(hunks, now[filename], program.program.named(filename))
    return changed


def _parts(text: str) -> Iterator[tuple[str, list[_Hunk]]]:
    """Yield the files of a diff, each with its hunks.

    Raises:
        ChangeError: if it is broken.
    """
    name, hunks = "", list[_Hunk]()
    lines = [_MAGIC.sub(rf"\g<1>{MAGIC_LINE.rstrip()}", line) for line in lines_of(dedent(text).strip("\n"))]
    place = 0
    while place < len(lines):
        line, following = lines[place], lines[place + 1] if place + 1 < len(lines) else ""
        if line.startswith("--- ") and following.startswith("+++ "):
            if hunks:
                yield name, hunks
            new = _name_in(following)
            name, hunks = _name_in(line) if new == _NO_NAME else new, []
            place += 2
        elif head := _HEAD.match(line):
            place += 1
            before, after = list[str](), list[str]()
            while place < len(lines) and _is_of_hunk(lines, place):
                sign, rest = lines[place][:1], lines[place][1:]
                if sign not in {"+", "\\"}:
                    before.append(rest)
                if sign not in {"-", "\\"}:
                    after.append(rest)
                place += 1
            hunks.append(_without_blank_ends(_Hunk(head[0], int(head[1]), tuple(before), tuple(after))))
        else:
            place += 1
    if hunks:
        yield name, hunks


def _is_of_hunk(lines: Sequence[str], place: int) -> bool:
    line = lines[place]
    is_head = line.startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ ")
    return not is_head and (not line or line[0] in " +-\\")


def _without_blank_ends(hunk: _Hunk) -> _Hunk:
    """Return *hunk* without blank lines at its ends: a notebook drops those of a cell, and others end a diff."""
    pairs = list(zip(hunk.before, hunk.after, strict=False))
    n_first = next((n for n, pair in enumerate(pairs) if any(map(str.strip, pair))), len(pairs))
    before, after = hunk.before[n_first:], hunk.after[n_first:]
    while before and after and not before[-1].strip() and not after[-1].strip():
        before, after = before[:-1], after[:-1]
    return _Hunk(hunk.head, hunk.line + n_first, before, after)


def _name_in(line: str) -> str:
    """Return the name in a line of a diff such as ``--- a/train.py<tab>2026-01-31``."""
    return line[4:].partition("\t")[0].strip()


def _meant(name: str, hunks: Sequence[_Hunk], program: Program, texts: dict[str, str]) -> str:
    """Return the file that a part of a diff is for: of those with that name, else of all, the first that it fits.

    Where it fits none, it is the one that has most of its lines: that is then said of it.
    """
    asked = [one for one in texts if _is_named(name, one, program.named(one))] or [*texts]
    wanted = {line.strip() for hunk in hunks for line in hunk.before}
    nearest = max(asked, key=lambda one: len(wanted.intersection(map(str.strip, lines_of(texts[one])))))
    return next((one for one in asked if all(_found(hunk, lines_of(texts[one])) for hunk in hunks)), nearest)


def _is_named(name: str, filename: str, shown: str) -> bool:
    wanted = re.sub(r"\A[ab]/", "", name)
    if not wanted or wanted == _NO_NAME:
        return False
    number = re.search(r"\[(\d+)\]", wanted)
    if number is not None and f"[{number[1]}]" in shown:
        return True
    return wanted in (shown, filename) or filename.endswith(f"/{wanted}")


def _applied(hunks: Sequence[_Hunk], text: str, place: str) -> str:
    """Return *text* with all *hunks*.

    Raises:
        ChangeError: if one does not fit.
    """
    lines, shift = lines_of(text), 0
    for hunk in hunks:
        found = _found(hunk, lines, shift)
        if not found:
            standing = [line.strip() for line in lines]
            absent = next((line for line in hunk.before if line.strip() not in standing), "")
            why = f"it has no line `{shorten(absent.strip(), _LINE_LIMIT)}`" if absent else "its lines are not together"
            msg = f"the change does not fit {place}, at {hunk.head}: {why}"
            raise ChangeError(msg)
        start, blanks = found
        lines[start : start + len(hunk.before)] = [f"{blanks}{line}" if line.strip() else line for line in hunk.after]
        shift = start - hunk.line + 1 + len(hunk.after) - len(hunk.before)
    return "\n".join(lines)


def _found(hunk: _Hunk, lines: Sequence[str], shift: int = 0) -> tuple[int, str] | None:
    """Return where the lines of *hunk* stand, the place next to the one that it names, and what indents them more."""
    if not hunk.before:  # lines that are added, and nothing around them: behind the line that is named
        return (min(hunk.line + shift, len(lines)), "") if 0 <= hunk.line + shift <= len(lines) else None
    wanted = [line.rstrip() for line in hunk.before]
    places: list[tuple[int, str]] = []
    for start in range(len(lines) - len(wanted) + 1):
        there = [line.rstrip() for line in lines[start : start + len(wanted)]]
        blanks = _more_indented(there, wanted)
        if blanks is not None:
            places.append((start, blanks))
    return min(places, key=lambda found: (bool(found[1]), abs(found[0] + 1 - hunk.line - shift)), default=None)


def _more_indented(there: Sequence[str], wanted: Sequence[str]) -> str | None:
    """Return the blanks that every line has *there* before the one that is *wanted*; None if the lines differ."""
    pairs = [(one, other) for one, other in zip(there, wanted, strict=True) if one or other]
    if not pairs:
        return None
    one, other = pairs[0]
    blanks = one.removesuffix(other) if one.endswith(other) else "x"
    return blanks if not blanks.strip() and all(one == blanks + other for one, other in pairs) else None


def _tree(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code: said where it is run
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree = compile(text, "<change>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line} of it" if line else "it"
        msg = f"the change is not valid Python: {getattr(error, 'msg', None) or error} in {where}"
    else:
        assert isinstance(tree, ast.Module)  # noqa: S101 - what PyCF_ONLY_AST returns
        return tree
    raise ChangeError(msg)  # out here: inside, it would carry the first error


def _changes(program: Program, filename: str, old: str, new: str) -> Iterator[Change]:
    """Yield what makes *new* of *old*, by whole lines.

    Raises:
        ChangeError: if *new* is no Python, or holds nothing.
    """
    if not _tree(new).body:
        raise ChangeError(_EMPTY)
    if ast.dump(_tree(old)) == ast.dump(_tree(new)):
        return
    before, after = (lines_of(text.rstrip()) for text in (old, new))
    spans: list[tuple[int, int, int, int]] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            continue
        span = start, end, first, last
        if tag != "delete" and (tag == "insert" or after[first:last] == [""]):
            # A line beside it stays, so that the change has something to be found by.
            span = (start - 1, end, first - 1, last) if start else (start, end + 1, first, last + 1)
        if spans and span[0] < spans[-1][1]:
            span = (spans[-1][0], span[1], spans[-1][2], span[3])
            del spans[-1]
        spans.append(span)
    for start, end, first, last in spans:
        where = program.place(filename, start + 1)
        yield Change(where, "\n".join(before[start:end]), "\n".join(after[first:last]), filename, start + 1)


def idle_function(changes: Sequence[Change], program: Program) -> str:
    """Return in one clause which function does nothing any more, as its text says; empty if none."""
    for filename in dict.fromkeys(change.filename for change in changes):
        text = program.source(filename) or ""
        own = [change for change in changes if change.filename == filename]
        try:
            before, after = (_idle_functions(ast.parse(one)) for one in (text, edited(text, own)))
        except (SyntaxError, ValueError, NotTriedError):  # as the trial will say
            continue
        for name, is_idle in after.items():
            if is_idle and not before.get(name, True):
                return f"{name}() does nothing any more"
    return ""


def _idle_functions(tree: ast.AST, above: str = "") -> dict[str, bool]:
    """Return for each function by its name whether it does nothing."""
    found: dict[str, bool] = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{above}{node.name}" if isinstance(node, _DEFINITIONS) else ""
        if isinstance(node, FUNCTIONS):
            found[name] = not any(map(_does_something, _reached(node.body)))
        found |= _idle_functions(node, f"{name}." if name else above)
    return found


def _does_something(statement: ast.stmt) -> bool:
    """Return whether *statement* of a function does more than to name a literal or a function, or to return one."""
    if isinstance(statement, FUNCTIONS):
        return bool(statement.decorator_list)
    value = getattr(statement, "value", None)
    is_constant = value is None or isinstance(value, ast.Constant)
    if isinstance(statement, ast.Assign) and all(isinstance(one, ast.Name) for one in statement.targets):
        return any(isinstance(node, (ast.Call, ast.Name, ast.Await)) for node in ast.walk(statement.value))
    return not (isinstance(statement, ast.Pass) or (isinstance(statement, (ast.Return, ast.Expr)) and is_constant))


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block as far as its text says that they can be reached; of ``if False:`` none."""
    for statement in body:
        test = getattr(statement, "test", None)
        if isinstance(test, ast.Constant) and not test.value:
            yield from _reached(getattr(statement, "orelse", ()))
        else:
            yield statement
        if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return
