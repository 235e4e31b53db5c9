"""Containers that get longer, and values that each run replaces by a larger one."""

from __future__ import annotations

import array
import ast
import collections
import io
import queue
import sys
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, Store, is_adding, last_name, rounded, store_of
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, SourceText
from leaklab.explain.idioms.advice import Advice, clearing, is_expression, is_users, named, place_words, written
from leaklab.explain.idioms.caches import table_of_library
from leaklab.explain.idioms.graphs import cuts_training
from leaklab.explain.idioms.tensors import Detachment, cut_of
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.source_lines import Origin, origin_of
from leaklab.runtime.containers import first_items, newest_items
from leaklab.runtime.objects import has_base, is_exactly, is_kind_of, is_tensor, loaded_type, module_dict, type_name
from leaklab.text import format_bytes

_WRITTEN_TO = frozenset({"_io.StringIO", "_io.BytesIO", "bytearray", "array.array"})
_EMPTY = ((list, "[]"), (dict, "{}"), (set, "set()"))
_OWN = (list, dict, set, collections.deque, bytearray)
_STREAMS = (io.StringIO, io.BytesIO)
_QUEUES = (queue.Queue,)
_NEWEST = {
    "torch.Tensor": ("[-{n}:].clone()", "rows"), "numpy.ndarray": ("[-{n}:].copy()", "rows"),
    "pandas.": (".tail({n}).copy()", "rows"), "str": ("[-{n}:]", "characters"), "bytes": ("[-{n}:]", "bytes"),
    "tuple": ("[-{n}:]", "entries"), "list": ("[-{n}:]", "entries"),
}  # fmt: skip
"""What takes the newest part, where that comes last, without keeping the rest alive, by the type or its package."""
_JOINED_BY_PLUS = frozenset({"str", "bytes", "tuple"})
"""What ``+=`` makes longer; a tensor or an array stays as long as it is, a list is trimmed in place."""
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
            f"{place_words(e)} grows by every run{kind}. {_how_to_limit(e)}",
            "Not if all of it is needed at the end; then write it to a file as it comes.",
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
    newest, what = _newest_of(e.holder_kind)
    place, part = written(e.holder), newest.format(n=_IN_ADVICE.get(what))
    how = f": `{place} = {place}{part}`, with the length that you need" if newest and is_expression(place) else ""
    return Advice(
        f"Every run puts something larger into {named(place)}: all that was there, and more. Keep the parts in a list "
        f"and join them once at the end, write them to a file as they come, or keep the newest part only{how}.",
        "Not if all of it is needed at the end; then write it to a file as it comes.",
    )


def _newest_of(kind: str) -> tuple[str, str]:
    """Return what takes the newest part of an object of the type *kind*, and what that has; empty if nothing does."""
    is_it = (row for name, row in _NEWEST.items() if kind == name or (name.endswith(".") and kind.startswith(name)))
    return next(is_it, ("", ""))


def let_go(case: Case) -> Iterator[Proposal]:
    """Yield how what is stored in a container of the user's goes: as numbers, with its run, or but for the newest."""
    store = case.store
    if is_exactly(case.held, (list, dict, set)) and _is_of_library_module(case.held):
        if store is not None:
            yield from _only_new(case, store)
        return
    if not case.is_variable or not _is_users(case):
        return
    if store is None or store.how in ("call", "name"):
        yield from _with_the_run(case)
        return
    cut = None if cuts_training(case, store) else cut_of(case, store)
    yield from _window_kept(case, store, cut)
    readers = list(_readers(case, store))
    if any(_is_for_tensors(source, node) for source, node in readers):
        yield from _with_the_run(case)
    if cut is not None and cut.numbers:
        patch = case.patch()
        cut.apply(patch, store)
        yield from case.proposal(f"Store {cut.words} in `{store.container_text}`.", patch)
    if store.how == "sum" and not _is_collection(case.held):
        return
    if readers or _is_called_back(case, store):
        yield from _with_the_run(case)
        yield from _bounded(case, store, cut)
    else:
        yield from _bounded(case, store, cut)
        yield from _with_the_run(case)


def _is_called_back(case: Case, store: Store) -> bool:
    """Return whether *store* stands in a function that is handed to others: what that collects belongs to one run."""
    if any(isinstance(above, ast.Lambda) for above in store.source.above(store.container or store.statement)):
        return True
    own = store.source.function_of(store.statement)
    return isinstance(own, FUNCTIONS) and any(
        isinstance(node, ast.Call) and any(_last_name_of(arg) == own.name for arg in _given(node))
        for source in case.sources
        for node in ast.walk(source.tree)
    )


def _given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (word.value for word in call.keywords)


def _last_name_of(node: ast.expr) -> str:
    return _names(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def _is_collection(held: Any) -> bool:
    return any(has_base(type(held), kind) for kind in (*_OWN, *_STREAMS, *_QUEUES, array.array))


def _is_users(case: Case) -> bool:
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
    if last_name(store.container_text) == last_name(case.holder):
        return True
    return case.holder.endswith(("]", ".cell_contents", ".queue", ".data"))


def _is_of_user(owner: object) -> bool:
    module = sys.modules.get(type(owner).__module__)
    filename = getattr(module, "__file__", None)
    return type(owner).__module__ == "__main__" or (filename is not None and origin_of(filename) is Origin.USER)


def _readers(case: Case, store: Store) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield where the code around uses all of the container: the newest of it would not be enough."""
    name = last_name(store.container_text)
    if has_base(type(case.held), collections.deque):  # a window: what is read of it are its newest entries
        return
    is_dict, inside = has_base(type(case.held), dict), {*ast.walk(store.statement)}
    sources = {source.filename: source for source in (store.source, case.cell) if source is not None}
    for source in sources.values():
        for node in ast.walk(source.tree):
            if not isinstance(node, (ast.Name, ast.Attribute)) or _names(node) != name:
                continue
            if not isinstance(node.ctx, ast.Load) or _is_filled(source, node, name) or node in inside:
                continue
            if not (is_dict and _is_looked_up(source, node)):
                yield from _uses_of(source, node) if case.holder.endswith("]") else [(source, node)]


def _uses_of(source: SourceText, node: ast.expr) -> list[tuple[SourceText, ast.expr]]:
    """Return where the values of a dict are used that are gone through one by one, for key, value in d.items()."""
    above = source.parent(node)
    call = source.parent(above) if isinstance(above, ast.Attribute) and above.attr in ("items", "values") else None
    loop = source.parent(call) if isinstance(call, ast.Call) else None
    if not isinstance(loop, (ast.comprehension, ast.For)) or loop.iter is not call:
        return [(source, node)]
    target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
    body = source.parent(loop) if isinstance(loop, ast.comprehension) else loop
    if not isinstance(target, ast.Name) or body is None:
        return [(source, node)]
    named = (one for one in ast.walk(body) if isinstance(one, ast.Name) and one.id == target.id)
    return [(source, one) for one in named if isinstance(one.ctx, ast.Load)]


def _is_for_tensors(source: SourceText, node: ast.expr) -> bool:
    """Return whether *node* is handed to torch, which wants tensors, or joined to one: ``torch.stack(outputs)``."""
    above = source.parent(node)
    while isinstance(above, (ast.Subscript, ast.Slice, ast.Starred)):
        above = source.parent(above)
    return isinstance(above, ast.Call) and source.text_of(above.func).startswith("torch.")


def _names(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _is_looked_up(source: SourceText, node: ast.AST) -> bool:
    """Return whether *node*, a dict, is asked for one key: what has been dropped is made again then."""
    above = source.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr in ("get", "pop", "setdefault", "__contains__")
    return isinstance(above, ast.Compare) or (isinstance(above, ast.Subscript) and above.value is node)


def _is_filled(source: SourceText, node: ast.AST, name: str) -> bool:
    """Return whether *node* stands in a statement that adds to what is called *name*, as what is added to."""
    statement = source.statement_of(node)
    if statement is None or not is_adding(source, statement, name):
        return False
    container = store_of(source, statement, name).container
    return container is not None and node in set(ast.walk(container))


def _with_the_run(case: Case) -> Iterator[Proposal]:
    """Yield how the container goes with the run: made anew where a run begins, or emptied where it ends."""
    holder, held = (case.holder, case.held) if case.store is None else case.filled(case.store)
    kind = type(held)
    if not case.run_body:
        return
    empty = next((text for one, text in _EMPTY if kind is one), "")
    if empty and holder.isidentifier() and case.is_in_run and not case.program.function:
        words = f"Begin each run with an empty `{holder}`."
        yield from case.at_start(words, f"{holder} = {empty}", emptied=(holder,))
    elif has_method(held, "clear") and _is_collection(held) and "._" not in holder:
        words = f"Empty `{holder}` at the end of the run, when it has been used."
        yield from case.at_end(words, f"{holder}.clear()", emptied=(holder,))
    elif kind in _STREAMS:
        words = f"Empty `{holder}` at the end of the run, when it has been read."
        yield from case.at_end(words, f"{holder}.seek(0)", f"{holder}.truncate()", emptied=(holder,))


def _bounded(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield how the container keeps its newest entries only."""
    place = store.container_text
    holder, held = case.filled(store)
    lines, n_kept = trimming(case, place, held, at_least=_longest_read(case, store))
    if not lines:
        return
    if _is_filled_in_front(store):
        lines = [line.replace(f"[:-{n_kept}]", f"[{n_kept}:]").replace("popleft()", "pop()") for line in lines]
    patch = case.patch()
    if cut is not None:
        cut.apply(patch, store)
    _write_behind(case, store, patch, lines)
    also = f"; store {cut.words}" if cut is not None else ""
    words = f"Keep only the newest {n_kept:,} entries of `{place}`{also}."
    yield from case.proposal(words, patch, emptied=(case.holder if has_base(type(held), queue.Queue) else holder,))


def _write_behind(case: Case, store: Store, patch: Patch, lines: list[str]) -> None:
    """Write *lines* below the statement that stores; where that only makes the function that will, at the run's end."""
    if any(isinstance(above, ast.Lambda) for above in store.source.above(store.container or store.statement)):
        case.at_end_of_run(patch, *lines)
    else:
        patch.after(store.source, store.statement, lines)


def _window_kept(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield how a list keeps as many of its newest entries as the code reads of it: ``frames[-8:]``, and no others."""
    if store.how not in ("one", "many") or (cut is not None and cut.numbers) or _is_filled_in_front(store):
        return
    length = newest_read(case, store)
    is_short = length.isdigit() and int(length) <= case.leak.count_per_run
    if not length or not has_base(type(case.filled(store)[1]), list) or (case.is_in_run and is_short):
        return  # of what the run itself fills no more is read than what it has filled: that begins anew with the run
    place, patch = store.container_text, case.patch()
    if cut is not None:
        cut.apply(patch, store)
    _write_behind(case, store, patch, [f"del {place}[:-{length}]"])
    also = f" Store {cut.words}." if cut is not None else ""
    words = f"Keep only the newest `{length}` entries of `{place}`: no older one is read.{also}"
    yield from case.proposal(words, patch, emptied=(case.filled(store)[0],))


def newest_read(case: Case, store: Store) -> str:
    """Return how many entries the code reads at the end of the container of *store*, as it is written there.

    Empty where it reads none, or may read others.
    """
    own, lengths = store.source.function_of(store.statement), set[str]()
    for source, node in _read(case, store):
        length, function = _length_read(source, node), source.function_of(node)
        is_shared = function is own
        if own is not None and function is not None:
            is_shared |= _is_beside(source, own, function)
        if not (length.isdigit() or (is_shared and length.startswith("self."))):
            return ""
        lengths.add(length)
    if len(lengths) > 1 and not all(one.isdigit() for one in lengths):
        return ""
    return max(lengths, key=lambda one: int(one) if one.isdigit() else 0, default="")


def _read(case: Case, store: Store) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield where the code reads the container: by its name, or what has it by the same key, ``stream["events"]``."""
    container = store.container
    if not isinstance(container, ast.Subscript):
        yield from _readers(case, store)
        return
    inside, key = {*ast.walk(store.statement)}, ast.dump(container.slice)
    sources = {source.filename: source for source in (store.source, case.cell) if source is not None}
    for source in sources.values():
        nodes = (node for node in ast.walk(source.tree) if isinstance(node, ast.Subscript) and node not in inside)
        yield from ((source, node) for node in nodes if ast.dump(node.slice) == key and isinstance(node.ctx, ast.Load))


def _longest_read(case: Case, store: Store) -> int:
    """Return how many of the newest entries the code reads at least, as far as it says so in a number."""
    lengths = [_length_read(source, node) for source, node in _read(case, store)]
    return max((int(one) for one in lengths if one.isdigit()), default=0)


def _is_beside(source: SourceText, one: ast.AST, other: ast.AST) -> bool:
    """Return whether two functions are methods of one class."""
    return source.class_of(one) is not None and source.class_of(one) is source.class_of(other)


def _length_read(source: SourceText, node: ast.expr) -> str:
    """Return how many entries are read at the end of *node*, as it is written; empty where others may be, too."""
    above = source.parent(node)
    if not isinstance(above, ast.Subscript) or above.value is not node:
        return ""
    part = above.slice
    if isinstance(part, ast.Slice):
        is_end = part.upper is None and part.step is None
        part = part.lower if is_end and part.lower is not None else above.value
    is_from_end = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub)
    return source.text_of(part.operand) if is_from_end and isinstance(part, ast.UnaryOp) else ""


def _is_filled_in_front(store: Store) -> bool:
    """Return whether the newest entry is the first one."""
    calls = (node for node in ast.walk(store.statement) if isinstance(node, ast.Call))
    names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    return bool(names & {"insert", "appendleft", "extendleft"})


def trimming(case: Case, place: str, held: Any, *, at_least: int = 0) -> tuple[list[str], int]:
    """Return the statements that leave the newest entries in *place*, and how many; none where it has no order."""
    kind = type(held)
    if any(has_base(kind, one) for one in (list, bytearray, array.array)):
        n_kept = max(case.n_kept(len(held)), at_least)
        return [f"del {place}[:-{n_kept}]"], n_kept
    if has_base(kind, collections.deque):
        n_kept = max(case.n_kept(len(held)), at_least)
        return [f"while len({place}) > {n_kept}:", f"    {place}.popleft()"], n_kept
    if has_base(kind, dict) or has_base(kind, collections.UserDict):
        n_kept = max(case.n_kept(len(held)), at_least)
        return [f"while len({place}) > {n_kept}:", f"    {place}.pop(next(iter({place})))"], n_kept
    if has_base(kind, queue.Queue) and type(held.queue) is collections.deque:
        n_kept = max(case.n_kept(held.qsize()), at_least)
        return [f"while {place}.qsize() > {n_kept}:", f"    {place}.get_nowait()"], n_kept
    return [], 0


def newest_part(case: Case) -> Iterator[Proposal]:
    """Yield how a variable that every run replaces by something longer keeps the newest part only."""
    store, held = case.store, case.held
    if case.leak.unit == "objects" or store is None or store.how not in ("name", "sum") or held is MISSING:
        return
    name = type_name(type(held))
    suffix, what = _newest_of(name)
    if not suffix or last_name(store.container_text) != last_name(case.holder):
        return
    if (store.how == "sum" and name not in _JOINED_BY_PLUS) or not _refers_to_itself(store):
        return
    length, place = newest_read(case, store), store.container_text
    n_kept = max(rounded(case.leak.count_per_run / _size_of_row(held)), _longest_read(case, store))
    words = f"Keep only the newest {n_kept:,} {what} of `{place}`."
    if length.isdigit():
        n_kept, words = int(length), f"Keep only the newest `{length}` {what} of `{place}`: no older one is read."
    yield from case.behind(words, store, f"{place} = {place}{suffix.format(n=n_kept)}", emptied=(case.holder,))


def _size_of_row(held: Any) -> float:
    """Return how much one row of *held* counts where it is its bytes that are counted; 1 for text and entries."""
    if is_tensor(held):
        base: Any = loaded_type("torch", "Tensor")
        shape = base.size(held)
        return float(base.numel(held) * base.element_size(held) / max(shape[0], 1)) if len(shape) else 1.0
    if type_name(type(held)).startswith(("numpy.", "pandas.")):
        n_bytes = held.nbytes if hasattr(held, "nbytes") else held.memory_usage(deep=False).sum()
        return float(n_bytes / max(len(held), 1)) if held.shape else 1.0
    return 1.0


def _refers_to_itself(store: Store) -> bool:
    if store.how == "sum":
        return True
    wanted = store.container_text
    nodes = ast.walk(store.value) if store.value is not None else ()
    return any(isinstance(node, (ast.Name, ast.Attribute)) and store.source.text_of(node) == wanted for node in nodes)
