"""Run a script, a module or a folder as the program of this process, as ``python`` itself would.

The program finds in ``__main__``, ``sys.argv`` and ``sys.path`` what it would find without leaklab.
"""

from __future__ import annotations

import ast
import builtins
import os
import runpy
import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from leaklab.errors import LeaklabError

FILE = __file__
_MARK = "__leaklab_named__"
_MAIN = "__main__"


class MainProgram:
    """A program that is ready to run.

    Args:
        target: A file, a folder or archive with a ``__main__.py``, or with *is_module* the name of a module.
        arguments: What it finds in ``sys.argv`` behind its own name.
        is_module: Whether *target* is a module, as behind ``python -m``.
        named: A function or method at the top of the file, such as ``handle`` or ``Server.handle``; empty for none.

    Attributes:
        variables: Of ``__main__``.

    Raises:
        LeaklabError: if there is no such file, or no such function in it.
    """

    def __init__(self, target: str, arguments: Sequence[str], *, is_module: bool = False, named: str = "") -> None:
        self._target, self._arguments, self._is_module, self._named = target, list(arguments), is_module, named
        self._is_folder = not is_module and (Path(target).is_dir() or zipfile.is_zipfile(target))
        if named and (is_module or self._is_folder):
            msg = f"give the module of the function, as in {target}:{named}; only a function of a file needs none"
            raise LeaklabError(msg)
        self._code = None if is_module or self._is_folder else self._compiled()
        self._module = types.ModuleType(_MAIN)
        self.variables = vars(self._module)
        self.variables.update(__builtins__=builtins, __annotations__={})

    def run(self, hearing: Callable[[Any], Any]) -> None:
        """Run the program to its end; what it raises passes through.

        Args:
            hearing: Returns what stands in for the function that was named.
        """
        first = os.getcwd() if self._is_module else os.path.abspath(self._target)  # noqa: PTH100, PTH109 - as python
        if self._code is not None:
            first = str(Path(self._target).resolve().parent)
        if not getattr(sys.flags, "safe_path", False) or self._is_folder:
            sys.path[0] = first
        sys.argv[:] = [self._target, *self._arguments]
        sys.modules[_MAIN] = self._module
        if self._code is None:
            name: str = _MAIN if self._is_folder else self._target
            run: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 - what python -m runs
            run(name, alter_argv=self._is_module)
            return
        path = str(Path(self._target).absolute())
        self.variables.update(__file__=path, __cached__=None, __loader__=SourceFileLoader(_MAIN, path))
        if self._named:
            self.variables[_MARK] = hearing
        exec(self._code, self.variables)  # noqa: S102 - the user's program

    def _compiled(self) -> types.CodeType:
        path = str(Path(self._target).absolute())
        try:
            source = Path(path).read_bytes()
        except OSError as error:
            msg = f"cannot open {self._target!r}: {error.strerror}; give a Python file, or -m and a module"
            raise LeaklabError(msg) from error
        if not self._named:
            code: types.CodeType = compile(source, path, "exec", dont_inherit=True)
            return code
        tree = ast.parse(source, path)
        _mark(tree, self._named, self._target)
        marked: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
        return marked


def _mark(tree: ast.Module, named: str, file: str) -> None:
    """Give the function *named* one more decorator, the first to be applied; no line moves."""
    body: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for name in named.split("."):
        kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
        found = next((part for part in body if isinstance(part, kinds) and part.name == name), None)
        body = getattr(found, "body", [])
    if not isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        msg = f"there is no function {named} at the top of {file}: give module:function, or a function of that file"
        raise LeaklabError(msg)
    position = found.decorator_list[-1] if found.decorator_list else found
    found.decorator_list.append(ast.copy_location(ast.Name(_MARK, ast.Load()), position))
