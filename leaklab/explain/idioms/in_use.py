"""Tell whether a change drops what is still in use: callbacks and handles, or entries of another owner."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import logging
import queue
import re
import threading
import types
import weakref
from collections import UserDict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from leaklab.cure.case import Case, last_name, name_of
from leaklab.cure.edits import own_names, own_nodes, statements_in
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.source import SourceText
from leaklab.explain.counterparts import OF_HANDLES, TASK_KINDS
from leaklab.explain.idioms.windows import OF_THE_NEWEST, is_asked_elsewhere, uses
from leaklab.lines.syntax import assigned
from leaklab.model.cure import Change
from leaklab.runtime.containers import entries_in, first_items, newest_items, newest_pairs
from leaklab.runtime.objects import attributes_of, has_base, is_exactly, is_tensor, loaded_type, safe_len, type_name
from leaklab.text import unit_words

_CALLED = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, functools.partial,
    weakref.WeakMethod, weakref.finalize,
)  # fmt: skip
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), *_CONTAINERS)
_OF_ARRAYS = ("numpy", "pandas")
_REGISTRY = re.compile(
    r"(^|_)(callbacks?|cbs|subscri\w*|listeners?|handlers?|hooks?|observers?|watchers?|receivers?|slots|sinks|plugins)$",
    re.IGNORECASE,
)
_CAUSES = frozenset({"callback-registry", "hook-left"})
_OF_REGISTRIES = frozenset({"callbacks", "entries"})
_N_NEWEST = 3
_N_SAMPLED = 16
"""So many entries are looked at, at either end."""


def dropped(case: Case, emptied: tuple[str, ...]) -> str:
    """Return what a change drops that is still in use where it takes entries out of *emptied*; empty if nothing.

    A registry is one by what is in it, by its name, or by the cause of the leak. To take out of it whatever happens to
    be the oldest ends the growth, and what the entries are there for. Where the code numbers what it adds by how many
    there are, ``runs[len(runs)] = model``, new entries would take the numbers of others. What is numbered by a counter,
    and no code reads, is a record: whoever asks for it later wants all of it.
    """
    for expression in emptied:
        held = evaluate(expression, case.program.namespace)
        if held is not MISSING and _is_numbered(case, expression):
            return f"the code numbers entries by the length of `{expression}`"
        kind = None if held is MISSING else _in_use(case, expression, held)
        if kind is not None:
            return f"it would drop {kind} that may be in use: `{expression}` holds {_n_in(held, kind)}"
        stores = [store for store in case.stores if last_name(store.container_text) == last_name(expression)]
        if held is case.held and any(is_asked_elsewhere(case, store) for store in stores):
            return f"other code takes entries of `{expression}` by keys of its own"
        if held is not MISSING and (counter := _counter_of_record(case, expression)):
            return f"`{expression}` is a record that the code numbers by `{counter}`, and parts of it would be gone"
    return ""


def is_registry(case: Case, expression: str) -> bool:
    """Return whether *expression* holds what is called, or asked, until it is taken out: no thread or task."""
    held = evaluate(expression, case.program.namespace)
    return held is not MISSING and _in_use(case, expression, held) in _OF_REGISTRIES


def emptied_by(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return the containers out of which *changes* take entries, as far as the text of their lines says so."""
    emptied: list[str] = []
    for change in changes:
        now, was = (tuple(_emptied_in(text)) for text in (change.after, change.before))
        emptied += [one for one in now if one not in was]
    return tuple(dict.fromkeys(emptied))


def _emptied_in(text: str) -> Iterator[str]:
    for node in (node for tree in statements_in(text) for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
            yield ast.unparse(node.func.value)
        elif isinstance(node, (ast.Delete, ast.Assign)):
            parts = [one for one in node.targets if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice)]
            yield from (ast.unparse(one.value) for one in parts)
        if isinstance(node, ast.Assign) and _is_less(node.value, ast.unparse(node.targets[0])):
            yield ast.unparse(node.targets[0])


def _is_less(value: ast.expr, target: str) -> bool:
    """Return whether *value* is an empty container, or a slice of *target*."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice) and ast.unparse(value.value) == target
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"list", "dict", "set", "deque"} and not value.args
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def _counter_of_record(case: Case, expression: str) -> str:
    """Return the counter by which code numbers what it puts into *expression*; empty where it does not, or reads it."""
    name = last_name(expression)
    if OF_THE_NEWEST.search(name) or _OF_SOME.search(name):
        return ""
    for store in case.stores:
        if last_name(store.container_text) != name or any(uses(case, store)):
            continue
        keys = [one.slice for one in getattr(store.statement, "targets", ()) if isinstance(one, ast.Subscript)]
        if counter := counter_in(case, store.source, [*keys, *filter(None, [store.value])]):
            return counter
    return ""


_OF_SOME = re.compile(r"(?:^|_)(?:recent|cache)(?:_|$)", re.IGNORECASE)
"""Names of what is not to be kept as a whole, besides those of one thing."""


def counter_in(case: Case, source: SourceText, written: Sequence[ast.expr]) -> str:
    """Return the counter that is a key, a name, or a part of an entry, as *written*; empty if there is none.

    A counter is a whole number that the same code, or another method of the class, makes larger by one,
    ``self.step += 1``, and that does not begin again there; or what an ``itertools.count`` gives.
    """
    function = source.function_of(written[0]) if written else None
    owner = source.class_of(function) if function is not None else None
    # Not as they are written: before Python 3.12 the parts of an f-string have no places of their own.
    counted = {ast.unparse(target) for target in _counted_in(owner or source.tree)}
    again = {ast.unparse(target) for target in _set_to_numbers(function or source.tree)}
    for one in _parts(source, written, function):
        text = ast.unparse(one)
        if isinstance(one, ast.Call) and name_of(one.func) == "next" and len(one.args) == 1:
            text = ast.unparse(one.args[0])
            is_counter = type(_value_of(case, text)) is itertools.count
        else:
            is_counter = text in counted - again - own_names(function) and type(_value_of(case, text)) is int
        if is_counter:
            return text
    return ""


def _value_of(case: Case, text: str) -> object:
    """Return what *text* of a method or a cell stands for, of ``self`` what belongs to the object of the leak."""
    owner = case.holder.rpartition(".")[0]
    found = evaluate(f"{owner}.{text.partition('.')[2]}" if text.startswith("self.") else text, case.program.namespace)
    return evaluate(text, case.program.namespace) if found is MISSING else found


def _set_to_numbers(top: ast.AST) -> Iterator[ast.expr]:
    """Yield what the code of *top* sets to a number: a counter begins again there."""
    for node in own_nodes(top):
        if isinstance(node, ast.Assign):
            yield from (target for target, value in assigned(node) if isinstance(value, ast.Constant))


def _counted_in(top: ast.AST) -> Iterator[ast.expr]:
    """Yield what the code of *top* counts: ``step += 1``."""
    for node in ast.walk(top):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and ast.unparse(node.value) == "1":
            yield node.target


def _parts(source: SourceText, written: Sequence[ast.expr], function: ast.AST | None) -> Iterator[ast.expr]:
    """Yield *written*, and the parts of which keys, entries and texts among it are made; variables by their values."""
    pending, seen = [*written], set[str]()
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            pending += node.elts
        elif isinstance(node, ast.Dict):
            pending += [one for one in (*node.keys, *node.values) if one is not None]
        elif isinstance(node, ast.JoinedStr):
            pending += [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
        elif isinstance(node, ast.BinOp) and any(_is_text(one) for one in ast.walk(node)):
            pending += [node.left, node.right]
        elif isinstance(node, ast.Call) and (name_of(node.func) in _OF_TEXTS or name_of(node.func)[:1].isupper()):
            pending += [*node.args, *(word.value for word in node.keywords)]
        elif isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            values = (one for one in ast.walk(function or source.tree) if isinstance(one, ast.Assign))
            pending += [one.value for one in values if name_of(one.targets[0]) == node.id]


_OF_TEXTS = frozenset({"str", "repr", "dict", "format", "tuple", "list"})


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and type(node.value) is str)


def _is_numbered(case: Case, expression: str) -> bool:
    """Return whether code makes a number, a key or a name of the length of what is called *expression*."""
    name = last_name(expression)
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Call) or name_of(node.func) != "len" or len(node.args) != 1:
                continue
            if name_of(node.args[0]) == name and _is_kept_as_number(source, node):
                return True
    return False


def _is_kept_as_number(source: SourceText, length: ast.Call) -> bool:
    """Return whether *length*, itself or in a text, becomes a key, an attribute, or an argument of a class."""
    node, above = length, source.parent(length)
    while isinstance(above, (ast.FormattedValue, ast.JoinedStr, ast.Tuple)) or (
        isinstance(above, ast.BinOp) and isinstance(above.left, ast.Constant) and type(above.left.value) is str
    ):
        node, above = above, source.parent(above)  # type: ignore[assignment]  # an expression
    if isinstance(above, ast.Subscript):
        return above.slice is node
    if isinstance(above, (ast.Call, ast.keyword)):
        call = source.parent(above) if isinstance(above, ast.keyword) else above
        return isinstance(call, ast.Call) and name_of(call.func)[:1].isupper()  # a class: Trial(len(self.trials))
    targets = (
        above.targets if isinstance(above, ast.Assign) else [above.target] if isinstance(above, ast.AnnAssign) else []
    )
    parts = [part for target in targets for part in ast.walk(target)]
    names = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return any(isinstance(part, ast.Attribute) for part in parts) or any(
        isinstance(one, ast.Subscript) and any(getattr(inner, "id", None) in names for inner in ast.walk(one.slice))
        for one in source.nodes
    )


def _n_in(held: Any, kind: str) -> str:
    n_entries = safe_len(held)
    return kind if n_entries is None else unit_words(n_entries, kind)


def _in_use(case: Case, expression: str, held: Any) -> str | None:
    oldest, newest = _entries(held)
    entries = [*oldest, *newest]
    if entries and _wait_to_be_taken(case, expression):
        return "waiting entries"
    if not entries or all(map(_is_plain, entries)):
        return None
    if sum(map(_is_called_back, entries)) > len(entries) / 2:
        return "callbacks"
    if what := still_running(oldest) or _suspended(oldest):
        return what
    if all(has_base(type(one), type) for one in entries) and len(set(map(id, entries))) > 1:
        return "classes"
    names = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", expression))
    if case.leak.cause in _CAUSES or (names and _REGISTRY.search(names[-1])):
        return "entries"
    kinds_now = [type(one) for one in newest[:_N_NEWEST]]
    is_of_others = not any(is_exactly(one, kinds_now) for one in oldest)
    return "entries" if is_of_others and not any(map(_is_plain, oldest)) else None


def _wait_to_be_taken(case: Case, expression: str) -> bool:
    """Return whether code takes the oldest entry out, one by one, and uses it: ``batch = pending.pop(0)``.

    As the thread does that serves a queue: ``self.requests.get()``.
    """
    name = last_name(expression.removesuffix(".queue"))
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            is_first = node.func.attr == "pop" and [ast.unparse(one) for one in node.args] == ["0"]
            is_first |= node.func.attr in ("popleft", "get_nowait", "get") and not node.args
            is_used = not isinstance(source.parent(node), ast.Expr)
            if is_first and is_used and last_name(source.text_of(node.func.value)) == name:
                return True
    return False


def still_running(entries: Sequence[Any]) -> str:
    """Return what *entries* are if each of them goes on until it is ended, whoever keeps it; empty if they do not."""
    kinds = {_running_kind(one) for one in entries}
    return kinds.pop() if len(kinds) == 1 else ""


def _suspended(entries: Sequence[Any]) -> str:
    """Return what *entries* are if each is in the midst of its work and waits to be resumed; empty if they are not."""
    if all(type(one) is types.CoroutineType and one.cr_frame is not None for one in entries):
        return "suspended coroutines"
    is_begun = all(
        type(one) is types.GeneratorType and inspect.getgeneratorstate(one) == inspect.GEN_SUSPENDED for one in entries
    )
    return "suspended generators" if is_begun else ""


def _running_kind(entry: Any) -> str:
    kind = type(entry)
    if type_name(kind) in TASK_KINDS:
        return "" if kind.done(entry) else "tasks"
    if has_base(kind, threading.Thread):
        return "threads" if attributes_of(entry).get("_started") and threading.Thread.is_alive(entry) else ""
    executor = loaded_type("concurrent.futures.thread", "ThreadPoolExecutor")
    if executor is not None and has_base(kind, executor):
        return "executors" if attributes_of(entry).get("_threads") and not attributes_of(entry)["_shutdown"] else ""
    child = loaded_type("subprocess", "Popen")
    return "processes" if child is not None and has_base(kind, child) and _is_unasked(entry) else ""


def _is_unasked(child: Any) -> bool:
    return attributes_of(child).get("returncode", MISSING) is None


def _entries(held: Any) -> tuple[list[Any], list[Any]]:
    """Return some entries of a container, the oldest and the newest, running no code of the user's."""
    if has_base(type(held), UserDict):
        held = attributes_of(held).get("data")
    if has_base(type(held), queue.Queue):
        held = attributes_of(held).get("queue")
    if has_base(type(held), dict):
        return (
            [value for _key, value in entries_in(held, _N_SAMPLED)],
            [value for _key, value in newest_pairs(held, _N_SAMPLED)],
        )
    return first_items(held, _N_SAMPLED), newest_items(held, _N_SAMPLED)


def _is_plain(entry: Any) -> bool:
    """Return whether *entry* is data: numbers, texts, arrays, and collections of these."""
    if is_exactly(entry, (list, tuple, set, frozenset, deque)):
        return all(map(_is_plain, first_items(entry, _N_SAMPLED)))
    if type(entry) is dict:
        return all(_is_plain(value) for _key, value in entries_in(entry, _N_SAMPLED))
    return is_exactly(entry, _PLAIN) or is_tensor(entry) or type_name(type(entry)).partition(".")[0] in _OF_ARRAYS


def _is_called_back(entry: Any) -> bool:
    """Return whether somebody calls *entry*, or has it to take a callback out again."""
    if is_exactly(entry, (tuple, list)):
        return any(map(_is_called_back, first_items(entry, _N_SAMPLED)))
    if type(entry) is weakref.ref:
        return entry() is not None
    if any(has_base(type(entry), one) for one in (*_CALLED, logging.Handler)):
        return True
    if any(has_base(type(entry), one) for one in _CONTAINERS) or not any(has_method(entry, one) for one in OF_HANDLES):
        return False
    return any(is_exactly(value, _CALLED) for value in attributes_of(entry).values())
