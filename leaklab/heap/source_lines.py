"""Write lines of code as ``train.py:41 in step: history.append(loss)``.

The line is that of the file as it is now, also for a function that was reloaded, or whose file was edited since.
IPython's ``%autoreload`` compiles a changed function by itself, from what ``ast.unparse`` makes of it: its lines are
counted from 1, without comments and blank lines.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from leaklab.runtime.objects import class_dict, is_kind_of, module_dict, running_shell
from leaklab.runtime.ours import Origin, origin_of

_WRAPPER = "__autoreload_class__"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def line_in_file(tree: ast.Module, filename: str, number: int, function: str) -> int:
    """Return the line of the file that line *number* of the running code stands for; 0 if that is not known.

    File and line are as Python's code objects have them. *function* is the qualified name of the code; empty where
    it is not known: then every function of the file is asked.
    """
    outermost = function.partition(".<locals>")[0]
    found = {
        id(live.__code__): live
        for live in _functions_of(filename)
        if (not function or _name_of(live.__code__) == outermost) and _has_line(live.__code__, number)
    }
    moved: list[int] = []
    for live in found.values():
        node, code = _definition(tree, live.__qualname__.split(".")), live.__code__
        if node is None or code.co_firstlineno != min(one.lineno for one in (node, *node.decorator_list)):
            moved.append(0 if node is None else _line_of_twin(node, code, number))
    if not moved:
        return number
    return moved[0] if len(found) == 1 else 0


def _functions_of(filename: str) -> Iterator[types.FunctionType]:
    """Yield the functions of the modules made from *filename*, and the methods of their classes."""
    for module in list(sys.modules.values()):
        names = module_dict(module) if is_kind_of(module, types.ModuleType) else None
        file = names.get("__file__") if names is not None else None
        if names is not None and type(file) is str and file == filename:
            pending = list(names.values())
            while pending:
                thing = pending.pop()
                thing = thing.__func__ if type(thing) in (staticmethod, classmethod) else thing
                if type(thing) is types.FunctionType and thing.__code__.co_filename == filename:
                    yield thing
                elif is_kind_of(thing, type) and class_dict(thing).get("__module__") == names.get("__name__"):
                    pending += class_dict(thing).values()


def _name_of(code: types.CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # co_qualname came with 3.11
    return name


def _has_line(code: types.CodeType, number: int) -> bool:
    inner = (constant for constant in code.co_consts if type(constant) is types.CodeType)
    return any(line == number for _start, _end, line in code.co_lines()) or any(_has_line(one, number) for one in inner)


def _definition(tree: ast.AST, names: list[str]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the last definition of the function with the qualified name *names*; None if there is none."""
    found: ast.AST = tree
    for name in names:
        body: list[ast.stmt] = getattr(found, "body", [])
        named = [node for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == name]
        if not named:
            return None
        found = named[-1]
    return found if isinstance(found, _FUNCTIONS) else None


def _line_of_twin(node: ast.FunctionDef | ast.AsyncFunctionDef, code: types.CodeType, number: int) -> int:
    """Return the line of the statement of *node* that line *number* of *code* is, compiled from its unparsed text."""
    text = textwrap.dedent(ast.unparse(node))
    if _name_of(code).startswith(_WRAPPER):
        text = f"class {_WRAPPER}:\n{textwrap.indent(text, '    ')}"
    twin = ast.parse(text)
    if not _is_same(code, compile(twin, code.co_filename, "exec", dont_inherit=True)):
        return 0
    copies = next(one for one in ast.walk(twin) if isinstance(one, _FUNCTIONS))
    pairs = zip(ast.walk(copies), ast.walk(node), strict=True)
    statements = [(copy, one) for copy, one in pairs if isinstance(copy, ast.stmt) and isinstance(one, ast.stmt)]
    around = [(copy, one) for copy, one in statements if copy.lineno <= number <= (copy.end_lineno or copy.lineno)]
    _copy, innermost = max(around, key=lambda pair: pair[0].lineno, default=(None, None))
    return 0 if innermost is None else innermost.lineno


def _is_same(code: types.CodeType, compiled: types.CodeType) -> bool:
    """Return whether *compiled* defines just *code*, line by line."""
    pending = [compiled]
    while pending:
        one = pending.pop()
        if one == code:
            return True
        pending += [constant for constant in one.co_consts if type(constant) is types.CodeType]
    return False


CellNames = Callable[[str], str]
"""Returns what a notebook calls the cell that a file name stands for, ``Cell In[7]``; empty for a real file."""
THIS_CELL = "this cell"
"""What reports call the cell that is checked."""
_MAX_SOURCE = 100
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAX_SOURCES = 60
"""So many of the newest sources are read: a long notebook has some dozens of cells."""
MAX_CHARACTERS = 100_000
"""A longer source is generated, or data; parsing it would cost more than 0.1 s."""
ADDS_MANY = frozenset({"extend", "extendleft", "update", "writelines"})
ADDING = ADDS_MANY | {
    "append", "appendleft", "add", "insert", "put", "put_nowait", "push", "write", "setdefault", "heappush",
}  # fmt: skip
_ADDS_WHERE_NAMED = ADDING | {"register", "submit", "register_buffer"}
_ENTRY_BY = frozenset({"setdefault", "get"})
"""What is added to the entry that these return, the dict has."""
_QUEUES_OWN = frozenset({"queue", "_queue"})
"""Where a queue has its entries: a program puts them into what has that."""
_KERNEL_FILE = re.compile(r"ipykernel_\d+[\\/]")


class LineWriter:
    """Writes lines, with the function they are in and their source."""

    def __init__(self, cell_name: CellNames) -> None:
        self.cell_of = cell_name
        self._trees: dict[str, ast.Module | None] = {}
        self._scopes: dict[str, list[Any]] = {}

    def in_file(self, filename: str, number: int, function: str) -> int:
        """Return the line of the file for a line of running code, which may be reloaded; 0 if it is not known."""
        tree = self._tree(filename)
        return number if tree is None else line_in_file(tree, filename, number, function)

    def statement(self, filename: str, number: int) -> tuple[str, int]:
        """Return the file and the first line of the statement that line *number* belongs to."""
        found = self._innermost(filename, number)
        return filename, number if found is None or _is_compound(found) else found.lineno

    def write(self, filename: str, number: int, function: str = "") -> str:
        """Return place, function and source of a line.

        Args:
            filename: As Python's code objects have it.
            number: Line number.
            function: What to call the function where the source is not available.
        """
        cell = self.cell_of(filename)
        place = f"{cell}, line {number}" if cell else f"{short_path(filename)}:{number}".removesuffix(":0")
        function = self.function_at(filename, number) if number and self._tree(filename) else function
        function = function.replace("<locals>.", "")
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

    def function_at(self, filename: str, number: int) -> str:
        """Return the qualified name of the function that line *number* is in; empty outside of any, and if unknown."""
        if filename not in self._scopes and (tree := self._tree(filename)) is not None:
            self._scopes[filename] = [node for node in ast.walk(tree) if isinstance(node, _SCOPES)]
        around = [node for node in self._scopes.get(filename, ()) if _covers(node, number)]
        around.sort(key=lambda node: node.lineno)
        # The line of a class or a decorator is outside of what it begins.
        return ".".join(node.name for node in around if number >= node.body[0].lineno)

    def _tree(self, filename: str) -> ast.Module | None:
        if filename not in self._trees:
            try:
                self._trees[filename] = _parse("".join(current_lines(filename)), filename)
            except (SyntaxError, ValueError, RecursionError):
                self._trees[filename] = None
        return self._trees[filename]


def current_lines(filename: str) -> list[str]:
    """Return the source of a file as it is now, which a reload may have read anew; of a cell as it was run."""
    if os.path.isfile(filename):  # noqa: PTH113 - asked of names that are no paths as well
        linecache.checkcache(filename)
    return linecache.getlines(filename)


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

    IPython is looked up, never imported. A kernel names its cells after temporary files, and maps these to numbers.
    """
    return cell_name(running_shell(), filename)


def is_module(filename: str) -> bool:
    """Return whether *filename* is a file with variables of its own; a cell's may exist, too, for its debugger."""
    is_file = os.path.isfile(filename)  # noqa: PTH113 - asked of names that are no paths as well
    return is_file and not running_cell_name(filename) and not _KERNEL_FILE.search(filename)


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


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A statement of the user's.

    Attributes:
        place: ``Cell In[7], line 3``, or file and line.
        text: The statement on one line.
        functions: The names of those that it stands in.
    """

    place: str
    text: str
    functions: frozenset[str] = frozenset()


def find_line(holder: str, function: str = "") -> SourceLine | None:
    """Return the statement of the user that adds to what *holder* (an expression) names; None if that is not clear.

    Only text is read: the sources of the user's cells and modules that Python keeps for its tracebacks, parsed, never
    run. A statement is returned where it is the only one, or where all candidates read the same. Where none adds to it,
    it is the one that makes it anew from what it was: ``total = total + loss``.

    Args:
        holder: The expression.
        function: The function whose local variable it begins with. A statement elsewhere adds to it only where the
            program has no other that could: it may have been given to another function.
    """
    name = _last_name(holder)
    if not name:
        return None
    for finds in (_adds, _continues):
        found = [line for filename, text in sources_with(name) for line in _lines_in(filename, text, name, finds)]
        if function:
            found = [line for line in found if function in line.functions] or (found if len(found) == 1 else [])
        if found:
            return found[0] if len({line.text for line in found}) == 1 else None
    return None


def _last_name(expression: str) -> str:
    """Return the last attribute or variable that *expression* names: ``history`` of ``runs['a'].history[3]``."""
    names: list[str] = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", expression))
    if len(names) > 1 and names[-1] in _QUEUES_OWN:
        del names[-1]
    return names[-1] if names and names[-1] != "globals" else ""


def sources_with(name: str) -> Iterator[tuple[str, str]]:
    """Yield the sources of the user that mention *name*, the newest first; of a script its file is one."""
    script = module_dict(sys.modules.get("__main__")) or {}
    if type(file := script.get("__file__")) is str and origin_of(file) is Origin.USER:
        current_lines(file)  # Python keeps it only once something has failed in it
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
        text = "".join(current_lines(filename))
        if name in text and len(text) <= MAX_CHARACTERS:
            yield filename, text


def _lines_in(filename: str, text: str, name: str, finds: Callable[[ast.stmt, str], bool]) -> Iterator[SourceLine]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell with magics, or no Python at all
        return
    pending: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, functions = pending.pop(0)
        if isinstance(node, ast.stmt) and not _is_compound(node) and finds(node, name):
            words = _one_line(ast.get_source_segment(text, node) or ast.unparse(node))
            yield SourceLine(_place(filename, node.lineno), words, functions)
        inside = functions | {node.name} if isinstance(node, _FUNCTIONS) else functions
        pending += [(child, inside) for child in ast.iter_child_nodes(node)]


def _adds(node: ast.stmt, name: str) -> bool:
    """Return whether the statement *node* adds something to a thing called *name*."""
    if isinstance(node, ast.AugAssign):
        return is_called(node.target, name)
    if any(is_called(method.value, name) for _call, method in adding_calls(node, _ADDS_WHERE_NAMED)):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Subscript) and is_called(target.value, name) for target in targets)


def _continues(node: ast.stmt, name: str) -> bool:
    """Return whether the statement *node* makes what *name* is from what it was: no ``net = net.to(device)``."""
    if not isinstance(node, ast.Assign) or not any(is_called(target, name) for target in node.targets):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if isinstance(called, ast.Attribute) and is_called(called.value, name) and called.attr not in _ADDS_WHERE_NAMED:
        return False
    return any(isinstance(part, (ast.Name, ast.Attribute)) and is_called(part, name) for part in ast.walk(node.value))


def adding_calls(node: ast.AST, methods: Container[str] = ADDING) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """Yield the calls in *node* of methods that add what they are given, each with the method."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and call.args and isinstance(call.func, ast.Attribute):
            yield from [(call, call.func)] if call.func.attr in methods else ()


def is_called(node: ast.expr, name: str) -> bool:
    """Return whether *node* is a variable or attribute called *name*, or an entry of one: ``d.setdefault(key, [])``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENTRY_BY:
            node = node.func.value
        else:
            break
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
    return f"{short_path(filename)}:{number}"
