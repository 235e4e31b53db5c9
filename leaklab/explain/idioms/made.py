"""Containers that let go by themselves, if they are made so: weak keys, weak entries, a length that is limited.

The change stands where the container is made, which ran once: a trial puts such a container in its place.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leaklab.cure.case import Case, Store, last_name, name_of
from leaklab.cure.live import evaluate
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, Remade, SourceText
from leaklab.explain.idioms.windows import (
    is_asked_elsewhere,
    longest_read,
    newest_read,
    readers,
    runs_until,
)
from leaklab.heap.source_lines import sources_with
from leaklab.lines.syntax import assigned
from leaklab.runtime.containers import first_items, keys_in
from leaklab.runtime.objects import class_attribute, is_exactly, is_kind_of, is_tensor, mro_of

_weakref_offset = type.__dict__["__weakrefoffset__"].__get__
_IDENTITY = ("__hash__", "__eq__")
_REGISTERING = frozenset({"__init__", "__post_init__"})
_N_SAMPLED = 16
_EMPTY: dict[type, re.Pattern[str]] = {
    list: re.compile(r"\[\]|list\(\)"),
    dict: re.compile(r"\{\}|dict\(\)"),
    set: re.compile(r"set\(\)"),
    collections.deque: re.compile(r"(collections\.)?deque\((\[\]|\(\))?\)"),
}
_OF_ALL = frozenset({"sum", "any", "all", "min", "max", "len", "set", "frozenset", "sorted"})
"""Functions that do not mind in which order they get something."""


@dataclass(frozen=True, slots=True)
class _Making:
    """Where a container is made: empty, once for as long as the program runs.

    Attributes:
        source: Its file.
        statement: The assignment.
        value: What is assigned.
    """

    source: SourceText
    statement: ast.Assign | ast.AnnAssign
    value: ast.expr


def made_weak(case: Case) -> Iterator[Proposal]:
    """Yield how the entries go with the objects that they belong to: their keys, or what registers itself.

    Only where nothing but the key asks for an entry, or what goes through the registry: an object that nobody else has
    is none that anybody asks for.
    """
    store, held = case.store, case.held
    if store is None or not is_exactly(held, (dict, list, set)) or not case.is_variable:
        return
    yield from _goes_with_its_key(case, store)
    making = _making_of(case, store)
    if making is None:
        return
    place = store.container_text
    if type(held) is dict and _are_objects(keys_in(held)[:_N_SAMPLED]):
        if store.how == "item" and not any(readers(case, store)):
            words = f"Let `{place}` have its keys weakly: an entry goes with the object that it is about."
            yield from _made(case, making, "weakref.WeakKeyDictionary()", weakref.WeakKeyDictionary, words)
    elif type(held) is not dict and _are_objects(first_items(held, _N_SAMPLED)):
        patch = case.patch()
        if _registers_itself(case, store) and _is_only_gone_through(case, store, patch):
            words = f"Let `{place}` have its entries weakly: it is there to go through what lives, not to keep it."
            yield from _made(case, making, "weakref.WeakSet()", weakref.WeakSet, words, patch=patch)


def limited(case: Case) -> Iterator[Proposal]:
    """Yield how a deque has its limit from the start, so that the oldest entry makes room for the newest."""
    store = case.store
    if store is None or store.how not in ("one", "many") or type(case.held) is not collections.deque:
        return
    making = _making_of(case, store)
    if making is None or is_asked_elsewhere(case, store):
        return
    length = newest_read(case, store)
    n_kept, words = max(case.n_kept(len(case.held)), longest_read(case, store)), ", or as many as you need."
    if length:
        n_kept, words = _number(case, store, making, length), ": no older entry is read."
    if n_kept <= 0:
        return
    limit = length or str(n_kept)
    made = f"{making.source.text_of(making.value).partition('(')[0]}(maxlen={limit})"
    words = f"Make `{store.container_text}` with a limit, `maxlen={limit}`{words}"
    for one in _made(case, making, made, partial(collections.deque, maxlen=n_kept), words):
        yield replace(one, full_after=runs_until(case, n_kept), emptied=(case.holder,))


def _number(case: Case, store: Store, making: _Making, length: str) -> int:
    """Return the value of *length*, as it is where the container is made; 0 where it is not known there."""
    if length.isdigit():
        return int(length)
    function = making.source.function_of(making.statement)
    before = [
        target
        for node in getattr(function, "body", [])
        if isinstance(node, ast.Assign) and node.lineno < making.statement.lineno
        for target, _value in assigned(node)
    ]
    owner = case.holder.rpartition(".")[0]
    receiver, _, name = length.rpartition(".")
    if not owner or store.container_text.rpartition(".")[0] != receiver:
        return 0
    value = evaluate(f"{owner}.{name}", case.program.namespace)
    is_there = any(making.source.text_of(target) == length for target in before)
    return value if is_there and type(value) is int else 0


def _goes_with_its_key(case: Case, store: Store) -> Iterator[Proposal]:
    """Yield that an entry under the ``id()`` of an object is taken out when the object dies."""
    statement = store.statement
    targets = statement.targets if isinstance(statement, ast.Assign) and store.how == "item" else []
    if len(targets) != 1 or not isinstance(targets[0], ast.Subscript):
        return
    key = targets[0].slice
    calls = [node for node in ast.walk(key) if isinstance(node, ast.Call)]
    if len(calls) != 1 or name_of(calls[0].func) != "id" or not isinstance(calls[0].args[0], ast.Name):
        return
    source, name = store.source, calls[0].args[0].id
    patch, text = case.patch(), ast.unparse(key) if isinstance(key, ast.Tuple) else source.text_of(key)
    patch.after(source, statement, [f"weakref.finalize({name}, {store.container_text}.pop, {text}, None)"])
    imported = _imported(patch, source)
    words = f"Take the entry out of `{store.container_text}` when `{name}` dies: nobody can ask for it then."
    remade = (Remade(f"{_module_of(source)}weakref", lambda _old: weakref, imported),) if imported else ()
    yield from (replace(one, remade=remade) for one in case.proposal(words, patch))


def _making_of(case: Case, store: Store) -> _Making | None:
    """Return the one place where the holder is made empty: in its class, its module, or a cell."""
    owner_place, _, name = case.holder.rpartition(".")
    if not name.isidentifier() or name != last_name(store.container_text):
        return None
    owner = evaluate(owner_place, case.program.namespace) if owner_place else None
    for source in _texts(case, store, name):
        nodes = (node for node in source.nodes if isinstance(node, (ast.Assign, ast.AnnAssign)))
        own = (node for node in nodes if _belongs(source, node, owner))
        found = [one for node in own if (one := _as_making(source, node, name, type(case.held))) is not None]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _texts(case: Case, store: Store, name: str) -> Iterator[SourceText]:
    """Yield the files that may make what is called *name*: where it is filled, those of the case, the newest cells."""
    files = [store.source.filename, *(source.filename for source in case.sources)]
    files += [filename for filename, _text in sources_with(name)]
    yield from filter(None, map(case.source, dict.fromkeys(files)))


def _as_making(source: SourceText, node: ast.Assign | ast.AnnAssign, name: str, kind: type) -> _Making | None:
    pairs = assigned(node) if isinstance(node, ast.Assign) else [(node.target, node.value)]
    for target, value in pairs:
        if name_of(target) == name and value is not None and _EMPTY[kind].fullmatch(source.text_of(value)):
            return _Making(source, node, value)
    return None


def _belongs(source: SourceText, node: ast.stmt, owner: Any) -> bool:
    """Return whether *node* makes an attribute of *owner*: in the body of its class, by its methods, in its file.

    What has no owner is a variable of the program.
    """
    above, function = source.parent(node), source.function_of(node)
    if owner is None or is_kind_of(owner, types.ModuleType):
        return function is None and isinstance(above, ast.Module)
    if is_kind_of(owner, type):
        return isinstance(above, ast.ClassDef) and above.name in _names(owner)
    own = source.class_of(function) if isinstance(function, FUNCTIONS) else None
    return own is not None and own.name in _names(type(owner))


def _names(kind: type) -> set[str]:
    return {one.__name__ for one in mro_of(kind)}


def _are_objects(entries: list[Any]) -> bool:
    """Return whether *entries* can be referred to weakly, and are themselves under no other object's equality."""
    return bool(entries) and not any(
        is_tensor(one)
        or not _weakref_offset(type(one))
        or is_kind_of(one, type)
        or any(class_attribute(type(one), name) is not getattr(object, name) for name in _IDENTITY)
        for one in entries
    )


def _registers_itself(case: Case, store: Store) -> bool:
    """Return whether an object puts itself there where it is made, and what makes it does something with it."""
    function = store.source.function_of(store.statement)
    kind = store.source.class_of(function) if isinstance(function, FUNCTIONS) else None
    if kind is None or not isinstance(function, FUNCTIONS) or function.name not in _REGISTERING:
        return False
    is_self = bool(function.args.args) and name_of(store.value) == function.args.args[0].arg if store.value else False
    makers = [
        (source, node)
        for source in case.sources
        for node in source.nodes
        if isinstance(node, ast.Call) and name_of(node.func) == kind.name
    ]
    return is_self and not any(isinstance(source.parent(node), ast.Expr) for source, node in makers)


def _is_only_gone_through(case: Case, store: Store, patch: Patch) -> bool:
    """Return whether nobody wants an order or a place of the entries; write into *patch* what a set calls otherwise."""
    if not all(_takes_any_order(source, node, type(case.held)) for source, node in readers(case, store)):
        return False
    call = store.statement.value if isinstance(store.statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    if not isinstance(method, ast.Attribute) or method.attr not in ("append", "add"):
        return False
    if method.attr == "append":
        patch.replace(store.source, method, f"{store.source.text_of(method.value)}.add")
    return True


def _takes_any_order(source: SourceText, node: ast.expr, kind: type) -> bool:
    """Return whether the code that uses *node*, of *kind*, gets the same from its entries in whatever order.

    A list may be there for its order: ``for layer in layers: x = layer(x)``.
    """
    above = source.parent(node)
    if isinstance(above, ast.comprehension) and above.iter is node:
        whole = source.parent(above)
        asked = None if whole is None else source.parent(whole)
        is_of_all = isinstance(asked, ast.Call) and name_of(asked.func) in _OF_ALL
        return kind is set or is_of_all or isinstance(whole, ast.SetComp)
    if isinstance(above, ast.For) and above.iter is node:
        return kind is set or all(isinstance(one, ast.Expr) for one in above.body)
    is_counted = isinstance(above, ast.Call) and node in above.args and name_of(above.func) in _OF_ALL
    return is_counted or isinstance(above, ast.Compare)


def _made(
    case: Case, making: _Making, text: str, make: Callable[[Any], Any], words: str, *, patch: Patch | None = None
) -> Iterator[Proposal]:
    """Yield the proposal to make the holder by *text*, which *make* does for the trial."""
    source, patch = making.source, patch or case.patch()
    patch.replace(source, making.value, text)
    if isinstance(making.statement, ast.AnnAssign):
        noted = making.statement.annotation
        named = noted.value if isinstance(noted, ast.Subscript) else noted  # `set` of `set[Session]`
        patch.replace(source, named, text.partition("(")[0])
    lines = {(source.filename, making.statement.lineno)}
    if text.startswith("weakref."):
        lines |= _imported(patch, source)
    remade = Remade(case.holder, make, frozenset(lines))
    yield from (replace(one, remade=(remade,)) for one in case.proposal(words, patch))


def _imported(patch: Patch, source: SourceText) -> frozenset[tuple[str, int]]:
    """Write into *patch* that *source* imports weakref, and return the line; none where that stands there."""
    imports = [alias for node in source.tree.body if isinstance(node, ast.Import) for alias in node.names]
    if any(alias.name == "weakref" and alias.asname is None for alias in imports):
        return frozenset()
    first = next(one for one in source.tree.body if not _is_docstring(one) and not _is_future(one))
    patch.before(source, first, ["import weakref"], on_top=True)
    return frozenset({(source.filename, first.lineno)})


def _module_of(source: SourceText) -> str:
    """Return what stands before the variables of *source*: nothing for a cell or a script, else its module."""
    files = (
        (name, vars(module).get("__file__"))
        for name, module in list(sys.modules.items())
        if type(module) is types.ModuleType
    )
    return next((f"{name}." for name, file in files if file == source.filename and name != "__main__"), "")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
