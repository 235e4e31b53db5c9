"""Translate line numbers of functions that were reloaded, or whose file was edited since, to lines of the file.

IPython's ``%autoreload`` compiles a changed function by itself, from what ``ast.unparse`` makes of it: its lines are
counted from 1, without comments and blank lines.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import types
from collections.abc import Iterator

from leaklab.runtime.objects import class_dict, is_kind_of, module_dict

_WRAPPER = "__autoreload_class__"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def line_in_file(tree: ast.Module, filename: str, number: int, function: str) -> int:
    """Return the line of the file that line *number* of the running code stands for; 0 if that is not known.

    Args:
        tree: The file, parsed.
        filename: As Python's code objects have it.
        number: As Python's code objects have it.
        function: Qualified name of the code; empty where it is not known: then every function of the file is asked.
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
