"""What a run itself has made and named is taken out again of the registry that keeps it, as the program does it."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case
from leaklab.cure.edits import with_names
from leaklab.cure.ends import Written, made_in_run, receiver_of
from leaklab.cure.live import evaluate
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.counterparts import takes_one_out
from leaklab.explain.idioms.in_use import is_registry
from leaklab.explain.leaks.ownership import is_users_kind
from leaklab.runtime.containers import entries_in, items_in, newest_items
from leaklab.runtime.objects import class_attribute, has_base, inline_attributes, is_kind_of, type_name

_N_NEWEST = 3
_WORDS = {
    Written.AT_END: "Take it out again when the run ends: `{}`.",
    Written.BEFORE_NEXT: "Before the run does it again, take back what the run before has left: `{}`.",
}


def words_of(case: Case, source: SourceText, statement: ast.stmt, written: Written, line: str) -> str:
    """Say that *line* takes back what *statement* has registered; of an ``__init__`` in the words of the run."""
    function = source.function_of(statement)
    owner = source.class_of(function) if function is not None else None
    made = [*made_in_run(case, owner.name)] if owner is not None and getattr(function, "name", "") == "__init__" else []
    return _WORDS[written].format(with_names(line, {receiver_of(function): made[0]}) if len(made) == 1 else line)


def run_entry_taken_out(case: Case) -> Iterator[Proposal]:
    """Yield how what the run itself has made and named leaves a registry again that has no call for that.

    That is a function, a bound method or an object that the live registry has among its entries; or an instance of a
    library's class that notes all its instances: ``Neuron.instances.remove(neuron)``.
    """
    held, takes = case.held, takes_one_out(type_name(type(case.held)))
    if not case.is_variable or "._" in case.holder:
        return
    if _notes_instances(case):
        yield from _instance_taken_out(case, held, takes)
        return
    if not takes or not is_registry(case, case.holder):
        return
    newest = _newest_values(held)
    names = [name for name in case.bound_in_run() if name in case.program.namespace]
    for name in names:
        thing = case.program.namespace[name]
        methods = [one for one in newest if type(one) is types.MethodType and one.__self__ is thing]
        entry = name if any(one is thing for one in newest) else ""
        entry = f"{name}.{methods[0].__func__.__name__}" if methods else entry
        if entry:
            line = f"{case.holder}.{takes}({entry})"
            yield from case.at_end(_WORDS[Written.AT_END].format(line), line)
            return


def _newest_values(held: Any) -> list[Any]:
    if has_base(type(held), dict):
        return [value for _key, value in list(entries_in(held))[-_N_NEWEST:]]
    return newest_items(held, _N_NEWEST) or items_in(held)


def _notes_instances(case: Case) -> bool:
    """Return whether the holder is an attribute of a library's class, and what is in it are its instances."""
    place, _dot, _name = case.holder.rpartition(".")
    owner = evaluate(place, case.program.namespace)
    if not is_kind_of(owner, type) or is_users_kind(owner):
        return False
    found = _newest_values(case.held)
    return bool(found) and all(is_kind_of(one, owner) for one in found)


def _instance_taken_out(case: Case, held: Any, takes: str) -> Iterator[Proposal]:
    kinds = {type(one) for one in _newest_values(held)}
    for name in sorted(case.bound_in_run()):
        kind = case.type_in_run(name)
        if kind not in kinds or class_attribute(kind, "__eq__", None) is not object.__eq__:
            continue
        line = f"{case.holder}.{takes}({name})"
        if has_base(type(held), dict):
            key = _own_key(held, kind)
            line = f"{case.holder}.pop({name}.{key}, None)" if key else ""
        elif not takes:
            return
        if line:
            yield from case.at_end(_WORDS[Written.AT_END].format(line), line)
            return


def _own_key(held: Any, kind: type) -> str:
    """Return the attribute by which the instances of *kind* are found in *held*; empty if there is none."""
    pairs = [(key, value) for key, value in list(entries_in(held))[-_N_NEWEST:] if type(value) is kind]
    names = [{name for name, one in inline_attributes(value) if one is key} for key, value in pairs]
    public = {name for name in set.intersection(*names) if not name.startswith("_")} if names else set[str]()
    return min(public, default="")


def own_way(source: SourceText, statement: ast.stmt, line: str) -> str:
    """Return the call of the method that does what *line* does: take back what *statement* in another method registers.

    The program's own method may do more that belongs to it. One that registers anew is none.
    """
    function = source.function_of(statement)
    owner = source.class_of(function) if function is not None else None
    methods = [one for one in owner.body if isinstance(one, FUNCTIONS) and one is not function] if owner else []
    undo, registering = _called_in(ast.parse(line)), _called_in(statement)
    for method in methods:
        needed = len(method.args.posonlyargs) + len(method.args.args) - len(method.args.defaults)
        calls = _called_in(method)
        if needed == 1 and not method.name.startswith("__") and undo & calls and not registering & calls:
            return f"{receiver_of(function)}.{method.name}()"
    return ""


def _called_in(node: ast.AST) -> set[str]:
    """Return what is called in *node*, as it is written: ``bus.disconnect``, ``shell().events.on``."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    inside = {part for call in calls for part in ast.walk(call.func)}
    return {ast.unparse(one.func) for one in calls if one not in inside}
