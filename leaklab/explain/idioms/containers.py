"""Containers that get longer, and values that each run replaces by a larger one."""

from __future__ import annotations

import array
import ast
import collections
import io
import queue
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, Store, last_name, name_of
from leaklab.cure.live import MISSING, evaluate, has_method, newest
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.idioms.advice import (
    Advice,
    clearing,
    is_expression,
    is_gradient,
    is_users,
    named,
    place_words,
    written,
)
from leaklab.explain.idioms.caches import table_of_library
from leaklab.explain.idioms.graphs import cuts_training
from leaklab.explain.idioms.tensors import Detachment, cut_of
from leaklab.explain.idioms.ways_out import cells_of
from leaklab.explain.idioms.windows import (
    bounded,
    emptied_by_end_of_pass,
    is_made_again,
    newest_of,
    newest_read,
    readers,
    reads_newest,
    window_kept,
)
from leaklab.explain.leaks.evidence import BLOCKS, Evidence
from leaklab.lines.syntax import assigned
from leaklab.runtime.containers import first_items, newest_items, newest_pairs
from leaklab.runtime.objects import class_attribute, has_base, is_exactly, is_kind_of, module_dict, safe_len
from leaklab.runtime.ours import Origin, origin_of
from leaklab.text import format_bytes

_WRITTEN_TO = frozenset({"_io.StringIO", "_io.BytesIO", "bytearray", "array.array"})
_EMPTY = ((list, "[]"), (dict, "{}"), (set, "set()"))
_OWN = (list, dict, set, collections.deque, bytearray)
_STREAMS = (io.StringIO, io.BytesIO)
_QUEUES = (queue.Queue,)
_MORE_THAN_ONE = 1.5
_IN_ADVICE = {"rows": "1000", "entries": "1000", "characters": "100_000", "bytes": "100_000"}
"""A length that stands for the one that the user needs."""


def container_growth(e: Evidence) -> Advice | None:
    """A container gets longer, or a buffer bigger, by every run."""
    if e.unit in ("bytes", "characters") and e.holder_kind not in _WRITTEN_TO:
        return _replaced(e)
    if e.unit in ("entries", "bytes", "characters"):
        each = f", {format_bytes(e.facts.bytes_per_entry)} for each entry" if e.facts.bytes_per_entry else ""
        kind = f" ({e.what}{each})" if e.unit == "entries" else ""
        if not is_users(e) and not _is_local(e) and e.unit == "entries":
            return table_of_library(e)
        return Advice(
            f"{place_words(e)} grows with every run{kind}. {_how_to_limit(e)}",
            "Not if all of it is needed at the end; then write it to a file as it comes.",
        )
    if e.entry_kinds and all(kind.startswith(BLOCKS) for kind in e.entry_kinds):
        table = written(e.holder)
        return Advice(
            f"{named(table)} gets new columns in every run, and keeps them, each in a block of its own. Collect the "
            "values in a list and make one table of them at the end, write into existing columns, or take out "
            f"what is done (`{table} = {table}.drop(columns=...)`).",
            "Not if all columns are needed at the end.",
        )
    if e.crossing is None or e.has_tensors or e.crossing.kind not in ("key", "index", "element"):
        return None
    if not is_users(e) and not _is_local(e):
        return table_of_library(e)
    return Advice(
        f"{place_words(e)} gets one more entry in every run. Take entries out when they are done, keep only the "
        f"newest, or empty it after use{clearing(e)}.",
        "Not while somebody still needs the entries.",
    )


def _is_local(e: Evidence) -> bool:
    """Return whether the holder is a variable of a function of the user's, or reached through one."""
    if e.owner is not None and e.owner.is_library:
        return False
    return any(step.reference.startswith(("closure variable", "default of", "local ")) for step in e.steps_above)


def _how_to_limit(e: Evidence) -> str:
    place = written(e.holder)
    if e.holder_kind in ("_io.StringIO", "_io.BytesIO") and is_users(e):
        return f"Empty it after reading it: `{place}.seek(0); {place}.truncate()`."
    if e.holder_kind == "collections.deque" and is_users(e):
        return (
            f"Give it a limit where it is made (`collections.deque(maxlen=...)`), or empty it after use{clearing(e)}."
        )
    if e.holder_kind == "list" and is_users(e):
        return (
            f"Keep a sum or the newest entries only (`del {place}[:-100]` leaves the last 100), or empty it after "
            f"use{clearing(e)}."
        )
    return f"Keep a sum or the newest entries only, or empty it after use{clearing(e)}."


def _replaced(e: Evidence) -> Advice:
    """Something that cannot get longer itself: in every run a larger one takes its place."""
    if is_gradient(e.holder):
        return Advice(
            f"Every backward() adds its entries to the sparse gradient {named(e.holder)}, and nobody clears it. Clear "
            f"the gradients when they have been used: by `zero_grad()` of their optimizer, or `{written(e.holder)} = "
            "None`.",
            "Not between runs whose gradients are meant to add up; then clear them after the step of the optimizer.",
        )
    newest, what = newest_of(e.holder_kind)
    place, part = written(e.holder), newest.format(n=_IN_ADVICE.get(what))
    how = f": `{place} = {place}{part}`, with the length that you need" if newest and is_expression(place) else ""
    return Advice(
        f"Every run puts something larger into {named(place)}: all that was there, and more. Keep the parts in a list "
        f"and join them once at the end, write them to a file as they come, or keep the newest part only{how}.",
        "Not if all of it is needed at the end; then write it to a file as it comes.",
    )


def let_go(case: Case) -> Iterator[Proposal]:
    """Yield how what is stored in a container of the user's goes: as numbers, with its run, or but for the newest."""
    store = case.store
    if is_exactly(case.held, (list, dict, set)) and _is_of_library_module(case.held):
        if store is not None:
            yield from _only_new(case, store)
        return
    if not case.is_variable or not is_users_own(case):
        return
    if store is None or store.how in ("call", "name"):
        if store is None or not newest_read(case, store):
            yield from _with_the_run(case)
        return
    cut, reading = None if cuts_training(case, store) else cut_of(case, store), list(readers(case, store))
    if cut is not None and cut.numbers and any(_is_asked_as_tensor(source, node) for source, node in reading):
        cut = cut.of_tensors()
    yield from window_kept(case, store, cut)
    yield from emptied_by_end_of_pass(case, store)
    is_of_one_pass = bool(_OF_ONE_PASS.search(case.name)) or not _is_for_all_runs(case, reading)
    if is_of_one_pass and any(_is_for_tensors(source, node) for source, node in reading):
        yield from _with_the_run(case)
    if cut is not None and cut.numbers:
        patch = case.patch()
        cut.apply(patch, store)
        yield from case.proposal(f"Store {cut.words} in `{store.container_text}`.", patch)
    if store.how != "sum" or _is_collection(case.held):
        yield from _shortened(case, store, cut)


def _shortened(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield how fewer entries stay: none that nobody reads, those of one run, the newest if no others are read.

    A cache is never emptied by every run: then it would find nothing again.
    """
    reading, is_called_back = list(readers(case, store)), _is_called_back(case, store)
    if not reading and not is_called_back:
        yield from _not_kept(case, store)
        if _is_of_cell(case, store):
            yield from _begun_with_cell(case, store, cut)
        yield from bounded(case, store, cut)
    if not (_is_for_all_runs(case, reading) or is_made_again(case, store)):
        yield from _with_the_run(case)
    if reads_newest(reading) and (reading or is_called_back):
        yield from bounded(case, store, cut)


def _is_of_cell(case: Case, store: Store) -> bool:
    """Return whether what the cell collects in a variable is that of one run: it is to begin empty with each.

    A run adds several entries, or the variable is called as what one pass over the data gives. A cache is to find what
    earlier runs have put there, and what has the number of its run for a key is that of all runs.
    """
    is_variable = case.holder.isidentifier() and case.is_in_run and not case.program.function
    if not is_variable or not is_exactly(case.held, tuple(kind for kind, _text in _EMPTY)):
        return False
    keys = [key for key, _value in newest_pairs(case.held, 1)] if type(case.held) is dict else []
    has_number = any(is_exactly(one, (int,)) for key in keys for one in (key, *(key if type(key) is tuple else ())))
    if has_number or is_made_again(case, store) or _CACHE.search(case.holder.lower()):
        return False
    return not _adds_one_each(case) or _OF_ONE_PASS.search(case.holder) is not None


_CACHE = re.compile(r"cache|memo(?:$|_)|lookup")
_OF_ONE_PASS = re.compile(
    r"^(?:all|epoch|val|valid|validation|test|eval)_|(?:^|_)(?:preds|predictions|outputs|logits|labels|targets)$"
)


def _begun_with_cell(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield that the variable begins empty with each run of the cell, and has its entries without what they carry."""
    if cut is None or _is_set_up(case, case.holder) or case.cell is None:
        yield from _with_the_run(case)
        return
    empty = next(text for kind, text in _EMPTY if type(case.held) is kind)
    body, patch = case.run_body, case.patch()
    cut.apply(patch, store)
    patch.before(case.cell, body[0], [f"{case.holder} = {empty}"])
    words = f"Begin each run with an empty `{case.holder}`, and store {cut.words}."
    yield from case.proposal(words, patch, emptied=(case.holder,))


def _adds_one_each(case: Case) -> bool:
    n_runs, n_entries = len(case.leak.kept), safe_len(case.held)
    return n_runs > 0 and n_entries is not None and n_entries < _MORE_THAN_ONE * n_runs


def _is_for_all_runs(case: Case, reading: list[tuple[SourceText, ast.expr]]) -> bool:
    """Return whether the code goes through the entries of all runs: each adds one, and all are read, for the best."""
    return _adds_one_each(case) and any(_is_gone_through(source, node) for source, node in reading)


def _is_gone_through(source: SourceText, node: ast.expr) -> bool:
    above = source.parent(node)
    if isinstance(above, (ast.For, ast.comprehension)):
        return above.iter is node
    return isinstance(above, ast.Call) and node in above.args and name_of(above.func) != "len"


def _not_kept(case: Case, store: Store) -> Iterator[Proposal]:
    """Yield that an iterator is not kept, which nothing reads: it is no data."""
    statement, value = store.statement, store.value
    is_iterator = class_attribute(type(newest(case.held)), "__next__") is not None
    if not is_iterator or store.how != "one" or value is None or not isinstance(statement, ast.Expr):
        return
    patch = case.patch()
    if isinstance(value, ast.Name):
        patch.remove(store.source, statement)
    else:
        patch.replace(store.source, statement, store.source.text_of(value))
    yield from case.proposal(f"Don't keep it in `{store.container_text}`, which nothing reads.", patch)


def _is_called_back(case: Case, store: Store) -> bool:
    """Return whether *store* stands in a function that is handed to others: what that collects belongs to one run."""
    if any(isinstance(above, ast.Lambda) for above in store.source.above(store.container or store.statement)):
        return True
    own = store.source.function_of(store.statement)
    return isinstance(own, FUNCTIONS) and any(
        isinstance(node, ast.Call) and any(name_of(arg) == own.name for arg in _given(node))
        for source in case.sources
        for node in source.nodes
    )


def _given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (word.value for word in call.keywords)


def _is_collection(held: Any) -> bool:
    return any(has_base(type(held), kind) for kind in (*_OWN, *_STREAMS, *_QUEUES, array.array))


def is_users_own(case: Case) -> bool:
    """Return whether the holder may be emptied by the user's code: it is no library's own table.

    It is the user's where the user's code adds to it by name, or where nothing but the user's objects and plain
    containers lead to it.
    """
    store = case.store
    if store is not None and store.container is not None and store.how != "call":
        return _is_called_alike(case, store)
    node: ast.expr = ast.parse(case.holder, mode="eval").body
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            return False
        node = node.value
        owner = evaluate(ast.unparse(node), case.program.namespace)
        if owner is MISSING or not (_is_of_user(owner) or is_exactly(owner, (list, dict, tuple))):
            return False
    return True


def _is_of_library_module(held: object) -> bool:
    """Return whether *held* is a variable of a module that is not the user's, as ``sys.path`` is: never emptied."""
    for module in list(sys.modules.values()):
        variables = module_dict(module) if is_kind_of(module, types.ModuleType) else None
        if variables is not None and any(value is held for value in list(variables.values())):
            filename, name = variables.get("__file__"), variables.get("__name__")
            if origin_of(filename) is not Origin.USER if type(filename) is str else name in sys.builtin_module_names:
                return name != "__main__"
    return False


def _only_new(case: Case, store: Store) -> Iterator[Proposal]:
    """Yield that a text or number is added where it is not there yet, if each run added the same one."""
    if store.value is None or store.how != "one" or not gets_the_same(case.held):
        return
    value = store.source.text_of(store.value)
    words = f"Add to `{store.container_text}` only what is not there yet."
    yield from case.under(words, store.source, store.statement, f"if {value} not in {store.container_text}:")


def gets_the_same(held: object) -> bool:
    """Return whether two neighbours at one end of a list are the same text or number."""
    ends = (first_items(held, 2), newest_items(held, 2)) if is_exactly(held, (list,)) else ()
    pairs = [end for end in ends if [*map(type, end)] in ([str] * 2, [int] * 2, [float] * 2)]
    return any(one == other for one, other in pairs)


def _is_called_alike(case: Case, store: Store) -> bool:
    """Return whether *store* adds to the holder itself, not to something that a library then copies."""
    if last_name(store.container_text) == case.name:
        return True
    return case.holder.endswith(("]", ".cell_contents", ".queue", ".data"))


def _is_of_user(owner: object) -> bool:
    module = sys.modules.get(type(owner).__module__)
    filename = getattr(module, "__file__", None)
    return type(owner).__module__ == "__main__" or (filename is not None and origin_of(filename) is Origin.USER)


def _is_for_tensors(source: SourceText, node: ast.expr) -> bool:
    """Return whether *node* is handed to torch, which wants tensors, or joined to one: ``torch.stack(outputs)``."""
    above = source.parent(node)
    while isinstance(above, (ast.Subscript, ast.Slice, ast.Starred)):
        above = source.parent(above)
    return isinstance(above, ast.Call) and source.text_of(above.func).startswith("torch.")


def _is_asked_as_tensor(source: SourceText, node: ast.expr) -> bool:
    """Return whether an entry of *node* is asked for what numbers do not have: ``losses[-1].detach()``."""
    above = source.parent(node)
    names = [] if not isinstance(above, (ast.For, ast.comprehension)) or above.iter is not node else [above.target]
    entries: list[ast.AST] = [above] if isinstance(above, ast.Subscript) and above.value is node else []
    body = source.parent(above) if isinstance(above, ast.comprehension) else above
    for name in (one.id for one in names if isinstance(one, ast.Name)):
        entries += [one for one in ast.walk(body or source.tree) if isinstance(one, ast.Name) and one.id == name]
    asked = (source.parent(entry) for entry in entries)
    return any(isinstance(one, ast.Attribute) and not hasattr(float, one.attr) for one in asked)


def _is_set_up(case: Case, holder: str) -> bool:
    """Return whether the program puts entries into the container where it makes it: these are for all runs."""
    name = last_name(holder)
    displays = (ast.ListComp, ast.SetComp, ast.DictComp)
    for tree in (*(source.tree for source in case.sources), *cells_of(case)):
        for node in ast.walk(tree):
            for target, value in assigned(node) if isinstance(node, ast.Assign) else ():
                entries = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
                is_display = entries and isinstance(value, (ast.List, ast.Set, ast.Dict))
                if name_of(target) == name and (isinstance(value, displays) or is_display):
                    return True
    return False


def _with_the_run(case: Case) -> Iterator[Proposal]:
    """Yield how the container goes with the run: made anew where a run begins, or emptied where it ends.

    Where the code empties another one of the same object, it is emptied there.
    """
    holder, held = (case.holder, case.held) if case.store is None else case.filled(case.store)
    kind = type(held)
    if not case.run_body or _is_set_up(case, holder):
        return
    empty = next((text for one, text in _EMPTY if kind is one), "")
    if empty and holder.isidentifier() and case.is_in_run and not case.program.function:
        words = f"Begin each run with an empty `{holder}`."
        yield from case.at_start(words, f"{holder} = {empty}", emptied=(holder,))
    elif kind in _STREAMS or (has_method(held, "clear") and _is_collection(held) and "._" not in holder):
        yield from _beside_another(case, holder)
        lines = [f"{holder}.seek(0)", f"{holder}.truncate()"] if kind in _STREAMS else [f"{holder}.clear()"]
        if case.program.function or _is_read(case, holder):
            words = f"Empty `{holder}` at the end of the run, when it has been used."
            yield from case.at_end(words, *lines, emptied=(holder,))
        else:
            words = f"Begin each run with an empty `{holder}`: what the last run has left can be read."
            yield from case.at_start(words, *lines, emptied=(holder,))


def _is_read(case: Case, holder: str) -> bool:
    """Return whether the code uses what is in *holder*, a container or a stream, in the run or what the run calls."""
    store, name = case.store, last_name(holder)
    if store is not None and store.container is not None and last_name(store.container_text) == name:
        return any(readers(case, store))
    nodes = (node for one in case.run_body for node in ast.walk(one))
    return any(isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) == name for node in nodes)


def _beside_another(case: Case, holder: str) -> Iterator[Proposal]:
    """Yield that the container is emptied where the code empties another one of its object: ``policy.rewards``."""
    owner, _, name = holder.rpartition(".")
    emptied = re.compile(rf"((del )?)({re.escape(owner)}\.(\w+))(\.clear\(\)|\[:\])")
    for source in case.sources if owner else ():
        for node in source.nodes:
            found = emptied.fullmatch(source.text_of(node)) if isinstance(node, (ast.Expr, ast.Delete)) else None
            is_one = found is not None and bool(found[1]) is (found[5] == "[:]")
            if found is not None and is_one and found[4] != name and isinstance(node, ast.stmt):
                patch = case.patch()
                patch.after(source, node, [f"{found[1]}{holder}{found[5]}"])
                yield from case.proposal(f"Empty `{holder}` where `{found[3]}` is emptied.", patch, emptied=(holder,))
                return
