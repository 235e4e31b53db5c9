"""The way out that the program has itself, and that nobody takes: who takes an entry out of what a run adds to."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from leaklab.cure.case import Case, Store, last_name, name_of
from leaklab.cure.ends import (
    Later,
    Written,
    call_site,
    definition_of,
    end_of,
    kept_name,
    receiver_of,
)
from leaklab.cure.live import MISSING, evaluate, needs_nothing
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.counterparts import lets_go
from leaklab.explain.idioms.own_entries import own_way
from leaklab.explain.idioms.windows import newest_read
from leaklab.lines.syntax import assigned
from leaklab.runtime.objects import class_dict, mro_of
from leaklab.runtime.ours import Origin, origin_of

_CONTAINERS = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter"})
_TAKING = frozenset({"pop", "remove", "discard"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Entry:
    """What a statement puts where.

    Attributes:
        store: The statement.
        name: The last name of what it is put into.
        key: What takes it out again is given that: the key of a dict, the entry of a list or set.
    """

    store: Store
    name: str
    key: ast.expr

    @property
    def function(self) -> Function | None:
        """The function that the statement is in."""
        found = self.store.source.function_of(self.store.statement)
        return found if isinstance(found, FUNCTIONS) else None


def _entries(case: Case) -> Iterator[_Entry]:
    for store in case.stores:
        container, key = store.container, store.value if store.how == "one" else None
        default = _setdefault(container)
        targets = getattr(store.statement, "targets", [])
        if default is None and store.how == "one":  # d.setdefault(key, value), by itself or with something behind it
            default = next(filter(None, (_setdefault(node) for node in ast.walk(store.statement))), None)
        is_entry = case.holder.endswith("]")  # what the dict has under one of its keys grows, not the dict
        if default is not None and last_name(store.source.text_of(default[0])) == case.name:
            container, key = (store.container, key) if is_entry else default
        if targets and isinstance(targets[0], ast.Subscript) and (is_entry or default is None):
            container, key = targets[0].value, targets[0].slice
        if container is not None and key is not None and not isinstance(container, ast.Call):
            yield _Entry(store, last_name(store.source.text_of(container)), key)
        elif isinstance(container, ast.Call) and default is not None and key is not None:
            yield _Entry(store, last_name(store.source.text_of(default[0])), key)


def _setdefault(node: ast.AST | None) -> tuple[ast.expr, ast.expr] | None:
    """Return the dict and the key of a call of ``setdefault``; None for anything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    return (node.func.value, node.args[0]) if node.func.attr == "setdefault" else None


def _taken(source: SourceText, node: ast.AST, name: str) -> ast.expr | None:
    """Return what *node* takes out of something called *name*: a key, an entry; None if it takes nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKING and node.args:
        return node.args[0] if last_name(source.text_of(node.func.value)) == name else None
    if isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Subscript):
        place = node.targets[0]
        is_part = isinstance(place.slice, ast.Slice)
        return place.slice if last_name(source.text_of(place.value)) == name and not is_part else None
    return None


def way_out(case: Case) -> Iterator[Proposal]:
    """Yield how the function is called that takes out what a run has put there: ``router.del_handler(handle)``.

    It is a method of the same class, or a function of the same file, whose text takes one entry out of what is filled.
    """
    for entry in _entries(case):
        source, function = entry.store.source, entry.function
        for taker in _takers(entry) if function is not None else ():
            args = _arguments(entry, *taker)
            if args is None or function is None:
                continue
            receiver = f"{receiver_of(function)}." if source.class_of(function) is not None else ""
            line, patch = f"{receiver}{taker[0].name}({', '.join(args)})", case.patch()
            at, lines = (source, entry.store.statement), [line]
            if function.name != "__init__":
                site = call_site(case, source, function)
                last, key = function.body[-1], source.text_of(entry.key)
                returned = source.text_of(last.value) if isinstance(last, ast.Return) and last.value else ""
                if site is None:
                    continue
                value = site.statement.value if isinstance(site.statement, ast.Expr) else None
                if value is not None and returned == key:
                    word = kept_name(case, site.source, site.statement, key if key.isidentifier() else "handle")
                    patch.replace(site.source, value, f"{word} = {site.source.text_of(value)}")
                    site = replace(site, names={**site.names, key: word})
                at, translated = (site.source, site.statement), site.translated([line], function)
                if translated is None:
                    continue
                own = own_way(*at, translated[0])
                lines = [own] if own else translated
            if written := end_of(case, *at, patch, lines, later=Later.IF_LAST):
                yield from case.proposal(_WORDS[written].format(taker[0].name), patch)
                return


_WORDS = {
    Written.AT_END: "Take it out again when it has been used, by the program's own `{}`.",
    Written.BEFORE_NEXT: "Take out what the run before has left, by the program's own `{}`.",
}


def _takers(entry: _Entry) -> Iterator[tuple[Function, ast.expr]]:
    """Yield the functions that take such an entry out, each with what it takes."""
    source, own = entry.store.source, entry.function
    owner = None if own is None else source.class_of(own)
    for function in source.nodes:
        if not isinstance(function, FUNCTIONS) or function is own or source.class_of(function) is not owner:
            continue
        if owner is None and source.function_of(function) is not None:
            continue
        taken = (_taken(source, node, entry.name) for node in ast.walk(function))
        key = next((one for one in taken if one is not None), None)
        if key is not None:
            yield function, key


def _arguments(entry: _Entry, taker: Function, taken: ast.expr) -> list[str] | None:
    """Return what *taker* is given to take *entry* out, in the words of what has stored it; None if that lacks one."""
    source, own = entry.store.source, entry.function
    if own is None:
        return None
    is_method = source.class_of(taker) is not None
    given = [one.arg for one in (*taker.args.posonlyargs, *taker.args.args)]
    needed = given[is_method : len(given) - len(taker.args.defaults) or None]
    known = {one.arg for one in (*own.args.posonlyargs, *own.args.args)}
    args = []
    for name in needed:
        if isinstance(taken, ast.Name) and taken.id == name:
            args.append(source.text_of(entry.key))
        elif name in known:
            args.append(name)
        else:
            return None
    is_own = source.text_of(taken) == source.text_of(entry.key)
    return args if args or (is_method and is_own) else None


def looked_up_last(case: Case) -> Iterator[Proposal]:
    """Yield how the one place that looks an entry up takes it out as well: ``pending.pop(key)`` for ``pending[key]``.

    Nothing else may know the dict: not whether a key is in it, not how long it is. What goes through those entries only
    that are not done yet does not want those that somebody has asked for.
    """
    for entry in _entries(case):
        if type(case.held) is not dict or entry.name != case.name:
            continue
        found = [use for use in _uses(case, entry) if not _wants_what_is_open(*use)]
        source, place = found[0] if len(found) == 1 else (entry.store.source, entry.key)
        if len(found) != 1 or not isinstance(place, ast.Subscript):
            continue
        is_apart = source.function_of(place) not in (None, entry.function)
        if not isinstance(place.ctx, ast.Load) or not is_apart or list(source.loops_around(place)):
            continue
        key = source.text_of(place.slice)
        if isinstance(place.slice, (ast.Constant, ast.Slice)):
            continue
        new = f"{source.text_of(place.value)}.pop({key})"
        yield from case.instead(f"Take the entry out where it is looked up: `{new}`.", source, place, new)
        return


def _wants_what_is_open(source: SourceText, use: ast.expr) -> bool:
    """Return whether *use* goes through all values by a condition: ``[s for s in d.values() if not s.finished]``."""
    method = source.parent(use)
    call = source.parent(method) if isinstance(method, ast.Attribute) and method.attr in ("values", "items") else None
    loop = source.parent(call) if isinstance(call, ast.Call) else None
    if isinstance(loop, ast.comprehension):
        return loop.iter is call and bool(loop.ifs)
    return isinstance(loop, ast.For) and loop.iter is call and len(loop.body) == 1 and isinstance(loop.body[0], ast.If)


def _uses(case: Case, entry: _Entry) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield what uses the dict by name, but for what fills it and what makes it: the dict or what is asked of it."""
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            if last_name(source.text_of(node)) != entry.name:
                continue
            statement, above = source.statement_of(node), source.parent(node)
            if source is entry.store.source and statement is entry.store.statement:
                continue
            yield source, above if isinstance(above, ast.Subscript) and above.value is node else node


def reached(case: Case) -> Iterator[Proposal]:
    """Yield how what takes an entry out again, further down in the function that stores it, is reached in any case.

    A ``return`` may stand in between, or a ``yield``, where an error of the block comes out.
    """
    for entry in _entries(case):
        source, function = entry.store.source, entry.function
        block = source.siblings(entry.store.statement)
        below = block[block.index(entry.store.statement) + 1 :] if function is not None else []
        key = source.text_of(entry.key)
        at = next((n for n, one in enumerate(below) if _takes(source, one, entry.name, key)), None)
        if not at or not any(_leaves(node) for one in below[:at] for node in ast.walk(one)):
            continue
        removal, patch = below[at], case.patch()
        if isinstance(removal, (ast.Expr, ast.Delete)):
            indent = source.indent_of(removal.lineno)
            patch.indent(source, below[:at], "try:")
            patch.replace(source, removal, f"finally:\n{indent}    {source.text_of(removal)}")
            words = f"Let go of it in a `finally`: `{source.text_of(removal)}`."
        else:
            again = _written_again(source, removal, entry.name, key)
            if not again:
                continue
            patch.indent(source, below, "try:")
            patch.after(source, below[-1], ["finally:", f"    {again}"])
            words = f"Let go of it in a `finally`: `{again}`."
        yield from case.proposal(words, patch)
        return


def _takes(source: SourceText, statement: ast.stmt, name: str, key: str) -> bool:
    taken = (_taken(source, node, name) for node in ast.walk(statement))
    return not hasattr(statement, "body") and any(one is not None and source.text_of(one) == key for one in taken)


def _written_again(source: SourceText, statement: ast.stmt, name: str, key: str) -> str:
    """Return the line that takes *key* out if it is still there; empty where that is no dict."""
    for node in ast.walk(statement):
        if _taken(source, node, name) is not None and isinstance(node, ast.Call):
            method = node.func
            if isinstance(method, ast.Attribute) and method.attr == "pop":
                return f"{source.text_of(method.value)}.pop({key}, None)"
    return ""


def _leaves(node: ast.AST) -> bool:
    return isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))


def emptied_by_owner(case: Case) -> Iterator[Proposal]:
    """Yield how the object that the container belongs to empties it where the run ends: ``metric.reset()``.

    It has a method that is called so, needs nothing, and empties the container as its text says. The run must have
    asked the object for something: what nobody has read yet is not thrown away.
    """
    place = re.fullmatch(r"(.+)\.([^\W\d]\w*)", re.sub(r"(\[[^\]]*\])+$", "", case.holder))
    owner = evaluate(place[1], case.program.namespace) if place and case.is_variable else MISSING
    if place is None or owner is MISSING or "._" in place[1] or not _is_asked(case, place[1]):
        return
    if case.store is not None and newest_read(case, case.store):
        return
    for kind in mro_of(type(owner)):
        for name, method in class_dict(kind).items():
            if type(method) is not types.FunctionType or not lets_go(name) or not needs_nothing(method):
                continue
            if not name.startswith("reset") and _is_filled_by_hand(case, place[1], method):
                continue
            definition = definition_of(case, method)
            if definition is not None and _empties(definition, place[2]):
                line = f"{place[1]}.{name}()"
                words = f"Empty it at the end of the run, when it has been used, by the program's own `{line}`."
                yield from case.at_end(words, line, emptied=(case.holder,))
                return


def _is_filled_by_hand(case: Case, owner: str, method: types.FunctionType) -> bool:
    """Return whether *owner*, of a library's class, is given what it keeps by the run itself: the user's data."""
    if origin_of(method.__code__.co_filename) is Origin.USER:
        return False
    calls = (node for one in case.run_body for node in ast.walk(one) if isinstance(node, ast.Call) and node.args)
    return any(isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == owner for call in calls)


def _is_asked(case: Case, owner: str) -> bool:
    """Return whether the run, or a function that the run calls, uses what a method or attribute of *owner* gives.

    Or what *owner* gives when it is called itself, ``score(batch)``, and nothing else is read of it anywhere: a metric
    that tells of each batch may be asked for the sum of all in another cell.
    """
    name = last_name(owner)
    is_called = False
    for source, node in _in_run_and_called(case):
        statement = source.statement_of(node)
        if isinstance(statement, ast.Expr) and not _is_shown(statement):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if _is_owner(case, source, node.value, owner, name):
                return True
        elif isinstance(node, ast.Call):
            is_called |= _is_owner(case, source, node.func, owner, name)
    trees = (*cells_of(case), *(one.tree for one in case.sources)) if is_called else ()
    return is_called and not any(_reads(tree, owner) for tree in trees)


def _is_owner(case: Case, source: SourceText, node: ast.expr, owner: str, name: str) -> bool:
    """Return whether *node* stands for *owner*: in a function that the run calls by its last *name*."""
    written = ast.unparse(node)
    return written == owner if source is case.cell else last_name(written) == name


def cells_of(case: Case) -> Iterator[ast.Module]:
    """Yield the cells that the notebook has run so far, as far as they are Python."""
    for text in case.cells_run:
        with suppress(SyntaxError, ValueError):
            yield ast.parse(text)


def _reads(tree: ast.Module, owner: str) -> bool:
    """Return whether *tree* asks *owner* for anything but to let go of what it has."""
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node.value) == owner and not lets_go(node.attr)
        for node in ast.walk(tree)
    )


def _in_run_and_called(case: Case) -> Iterator[tuple[SourceText, ast.AST]]:
    """Yield what stands in the run, and in the functions and methods that it calls by a name that is known.

    What stands under a condition is left out: ``if step % 100 == 0: report()`` asks for what all steps have added.
    """
    nodes = (node for one in case.run_body for node in ast.walk(one) if case.cell is not None)
    for node in (one for one in nodes if not _is_conditional(case.cell, one)):  # type: ignore[arg-type]  # as asked
        yield case.cell, node  # type: ignore[misc]  # there is no body without
        called = evaluate(ast.unparse(node.func), case.program.namespace) if isinstance(node, ast.Call) else MISSING
        function: Any = called.__func__ if type(called) is types.MethodType else called
        definition = definition_of(case, function) if type(function) is types.FunctionType else None
        source = case.source(function.__code__.co_filename) if definition is not None else None
        if definition is not None and source is not None:
            yield from ((source, inner) for one in definition.body for inner in ast.walk(one))


def _is_conditional(source: SourceText, node: ast.AST) -> bool:
    """Return whether *node* stands in a branch."""
    below = node
    for above in source.above(node):
        if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
            return True
        below = above
    return False


def _is_shown(statement: ast.Expr) -> bool:
    return isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in ("print", "display")


def _empties(method: Function, name: str) -> bool:
    """Return whether *method* empties the attribute *name* of its object, or puts an empty one in its place."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
            if _is_own(method, node.func.value, name) or _is_any_own(method, node.func.value, "getattr"):
                return True
        elif isinstance(node, ast.Call) and _is_any_own(method, node, "setattr"):
            return True
        elif isinstance(node, ast.Assign):
            if any(_is_own(method, target, name) and _is_empty(value) for target, value in assigned(node)):
                return True
        elif isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Subscript):
            part = node.targets[0]
            if isinstance(part.slice, ast.Slice) and part.slice.lower is None and _is_own(method, part.value, name):
                return True
    return False


def _is_own(method: Function, node: ast.expr, name: str) -> bool:
    is_attribute = isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)
    return is_attribute and ast.unparse(node).partition(".")[0] == receiver_of(method)


def _is_any_own(method: Function, node: ast.expr, function: str) -> bool:
    """Return whether *node* calls *function* for the attributes of the object whose names a loop goes through."""
    if not isinstance(node, ast.Call) or name_of(node.func) != function or len(node.args) < _OWNER_AND_NAME:
        return False
    loops = (one for one in ast.walk(method) if isinstance(one, ast.For) and node in ast.walk(one))
    named = {part.id for loop in loops for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    return name_of(node.args[0]) == receiver_of(method) and name_of(node.args[1]) in named


_OWNER_AND_NAME = 2


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return bool(value.elts) and all(map(_is_empty, value.elts))
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in _CONTAINERS and not value.args
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)
