"""Read what may run later in a program whose loop goes on: code that was not seen to run, in whatever function.

`leaklab.lines.open_branches` reads the functions that ran. In a part of a loop, those that end an epoch have not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from leaklab.lines.branches import BranchWatch, Names
from leaklab.lines.open_branches import NO_NAMES
from leaklab.lines.ran_files import ParsedFile, RanFile, note_running
from leaklab.lines.syntax import NamesHere


class LaterCode:
    """Answers for one container after the other.

    Args:
        watch: What was seen of a part of the loop.
        filenames: Of the user's files besides those that ran.
    """

    def __init__(self, watch: BranchWatch, filenames: Iterable[str]) -> None:
        codes = list(watch.codes(NO_NAMES))
        sources = ((name, ParsedFile.of(name)) for name in {*filenames, *(code.co_filename for code, _seen in codes)})
        self._files = {name: _LaterFile(source, name) for name, source in sources if source is not None}
        for code, seen in codes:
            if (file := self._files.get(code.co_filename)) is not None:
                file.add(code)
                file.see(code, seen)
        for file in self._files.values():
            file.look()
        note_running(self._files, watch.running)

    def may_drop(self, names: Names) -> bool:
        """Return whether entries of a container are dropped later, or it is replaced."""
        return any(file.may_drop(names) for file in self._files.values())

    def may_read(self, names: Names) -> bool:
        """Return whether anything is done later with what is in a container; its length is no such thing."""
        return any(file.may_read(names) for file in self._files.values())


class _LaterFile(RanFile):
    """One file of the user's, with what ran of it."""

    def may_drop(self, names: Names) -> bool:
        """As `LaterCode.may_drop`, in this file; an object that is made drops nothing of another."""
        known = _known(names)
        dropping = (node for node in self._parents if known.effect_of(node) < 0)
        return any(self._is_later(node) and self._function_name(node) != "__init__" for node in dropping)

    def may_read(self, names: Names) -> bool:
        """As `LaterCode.may_read`, in this file."""
        known = _known(names)
        loads = (node for node in self._parents if isinstance(getattr(node, "ctx", None), ast.Load))
        return any(known.is_container(node) and self._is_later(node) and not self._is_length(node) for node in loads)

    def _is_later(self, node: ast.AST) -> bool:
        """Return whether *node* was not seen to run, and may run yet."""
        return not (self._has_run(node) or self._is_over(node))

    def _is_length(self, node: ast.AST) -> bool:
        """Return whether *node* stands in ``len()``, or is a part of what does."""
        above = self._parents.get(node)
        while isinstance(above, (ast.Attribute, ast.Subscript)):
            node, above = above, self._parents.get(above)
        return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "len"


def _known(names: Names) -> NamesHere:
    of_functions = frozenset[str]().union(*names.free.values())
    return NamesHere(names.anywhere, {*names.variables, *of_functions})
