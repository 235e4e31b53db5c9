"""Try a change of what a ``def`` says beside its body: decorators, parameters, their defaults.

A ``def`` of a module or a class has run, once and for all. The function is made anew from the changed text: one that
had no decorator and gets none stays the same object, whoever refers to it; else the new one takes its place in its
class, or in the modules and the notebook that have it. Of decorators only those of the standard library and of torch
are run again that do nothing but wrap.
"""

from __future__ import annotations
import __future__ as future_features

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import or_
from types import CodeType, FunctionType
from typing import Any

from leaklab.cure.edits import NotTriedError, code_objects
from leaklab.cure.keeping import to_the_end
from leaklab.cure.source import FUNCTIONS, Program
from leaklab.measure.checkpoint import whole_heap
from leaklab.runtime.objects import LRU_CACHE, class_dict, is_kind_of

FUTURE_FLAGS: int = reduce(
    or_, (getattr(future_features, name).compiler_flag for name in future_features.all_feature_names)
)
_WRAPPING = frozenset({
    "staticmethod", "classmethod", "property", "cache", "lru_cache", "cached_property", "wraps", "contextmanager",
    "no_grad", "inference_mode", "enable_grad",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    """A function whose ``def`` is changed.

    Attributes:
        filename: Its file.
        path: The names of the classes that it is in, and its own.
        old: The ``def`` as it is.
        new: The changed one.
    """

    filename: str
    path: tuple[str, ...]
    old: ast.stmt
    new: ast.stmt

    def code(self, node: ast.stmt, flags: int) -> CodeType:
        """Return the code of *node*, in a class without bases for what stands in one: it decides on private names."""
        kind = ast.parse(f"class {self.path[-2]}: pass").body[0] if len(self.path) > 1 else None
        if isinstance(kind, ast.ClassDef):
            kind.body = [node]
        module = ast.Module([kind or node], [])
        made: CodeType = compile(module, self.filename, "exec", flags, dont_inherit=True)
        return made

    def is_made_from(self, function: FunctionType) -> bool:
        """Return whether *function* is that of the unchanged text."""
        found = code_objects(self.code(self.old, function.__code__.co_flags & FUTURE_FLAGS))
        return function.__code__.co_filename == self.filename and function.__code__ in found.values()


def take_definitions(filename: str, was: ast.Module, tree: ast.Module) -> list[Definition]:
    """Take the functions whose ``def`` is changed out of *tree*: what is left differs in bodies of functions."""
    return [Definition(filename, *taken) for taken in _taken(was.body, tree.body, ())]


def _taken(
    was: list[ast.stmt], now: list[ast.stmt], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ast.stmt, ast.stmt]]:
    if len(was) != len(now):
        return
    for number, (old, new) in enumerate(zip(was, now, strict=True)):
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            yield from _taken(old.body, new.body, (*path, old.name))
        elif _is_changed(old, new):
            now[number] = old
            yield (*path, old.name), old, new  # type: ignore[attr-defined]  # a function


def _is_changed(old: ast.stmt, new: ast.stmt) -> bool:
    if not isinstance(old, FUNCTIONS) or not isinstance(new, FUNCTIONS) or type(old) is not type(new):
        return False
    calls = (one.func if isinstance(one, ast.Call) else one for one in new.decorator_list)
    only_wraps = all(ast.unparse(one).rpartition(".")[2] in _WRAPPING for one in calls)
    return old.name == new.name and only_wraps and _head(old) != _head(new)


def _head(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [ast.dump(part) for part in (*function.decorator_list, function.args)]


@contextmanager
def made_anew(definitions: Sequence[Definition], program: Program) -> Iterator[None]:
    """Let the program have the changed functions inside.

    Raises:
        NotTriedError: if one of them cannot be made anew soundly.
    """
    undo: list[Callable[[], None]] = []
    try:
        for one in definitions:
            undo += _make(one, program)
        yield
    finally:
        to_the_end(lambda: _all(undo))


def _all(undo: list[Callable[[], None]]) -> None:
    while undo:
        undo[-1]()
        undo.pop()


def _make(definition: Definition, program: Program) -> Iterator[Callable[[], None]]:
    """Make one function anew; yield what takes a step of that back before the step is made."""
    tables, name = _tables(program), definition.path[-1]
    owner, old = next(filter(None, (_found(table, definition) for table in tables)), (None, None))
    function: Any = _innermost(old)
    if function is None or "__class__" in function.__code__.co_freevars:
        msg = "the code that runs does not match its source"
        raise NotTriedError(msg)
    made: dict[str, Any] = {}
    code = definition.code(definition.new, function.__code__.co_flags & FUTURE_FLAGS)
    exec(code, function.__globals__, made)  # noqa: S102 - the user's own code
    made = made if owner is None else vars(made[definition.path[-2]])
    new, is_same = made[name], function is old and type(made[name]) is FunctionType
    if is_same:
        yield partial(_give, function, function.__code__, function.__defaults__, function.__kwdefaults__)
        _give(function, new.__code__, new.__defaults__, new.__kwdefaults__)
    elif owner is not None:
        yield partial(type.__setattr__, owner, name, old)
        type.__setattr__(owner, name, new)
    else:
        for table in tables:
            for key in [key for key, value in table.items() if value is old]:
                yield partial(table.__setitem__, key, old)
                table[key] = new


def _give(function: FunctionType, code: CodeType, defaults: Any, of_words: Any) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, of_words


def _tables(program: Program) -> list[dict[str, Any]]:
    """Return the global variables of the program and of all functions, each table once."""
    with whole_heap() as objects:
        tables = {id(one): one for one in (thing.__globals__ for thing in objects if type(thing) is FunctionType)}
    return list({id(program.namespace): program.namespace, **tables}.values())  # type: ignore[arg-type]  # a dict


def _found(variables: dict[str, Any], definition: Definition) -> tuple[type | None, Any] | None:
    """Return the class and what the function has become in it, if it is that of *definition*; of a module None."""
    owner: Any = None
    found: Any = None
    for name in definition.path:
        owner = found
        if owner is not None and not is_kind_of(owner, type):
            return None
        found = variables.get(name) if owner is None else class_dict(owner).get(name)
        if found is None:
            return None
    function = _innermost(found)
    return (owner, found) if function is not None and definition.is_made_from(function) else None


def _innermost(thing: Any) -> FunctionType | None:
    """Return the function that decorators have wrapped in *thing*; None if that is not known."""
    inner = thing
    while inner is not None:
        if type(inner) is FunctionType and "__wrapped__" not in inner.__dict__:
            return inner
        name = "__wrapped__" if type(inner) is FunctionType else _INSIDE.get(type(inner), "")
        inner = getattr(inner, name, None) if name else None
    return None


_INSIDE: dict[Any, str] = {
    staticmethod: "__func__", classmethod: "__func__", property: "fget", LRU_CACHE: "__wrapped__",
    cached_property: "func",
}  # fmt: skip
"""Where the object of a decorator has the function that it wraps."""
