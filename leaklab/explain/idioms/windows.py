"""How much of a container is read: of what nobody reads any more, the newest part is kept."""

from __future__ import annotations

import array
import ast
import collections
import math
import queue
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from leaklab.cure.case import Case, Store, is_adding, last_name, name_of, rounded, store_of
from leaklab.cure.ends import at_end_of
from leaklab.cure.live import MISSING
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, SourceText
from leaklab.explain.idioms.tensors import Detachment
from leaklab.runtime.objects import has_base, is_exactly, is_tensor, loaded_type, safe_len, type_name

_NEWEST = {
    "torch.Tensor": ("[-{n}:].clone()", "rows"), "numpy.ndarray": ("[-{n}:].copy()", "rows"),
    "pandas.": (".tail({n}).copy()", "rows"), "str": ("[-{n}:]", "characters"), "bytes": ("[-{n}:]", "bytes"),
    "tuple": ("[-{n}:]", "entries"), "list": ("[-{n}:]", "entries"),
}  # fmt: skip
"""What takes the newest part, where that comes last, without keeping the rest alive, by the type or its package."""
_JOINED_BY_PLUS = frozenset({"str", "bytes", "tuple"})
"""What ``+=`` makes longer; a tensor or an array stays as long as it is, a list is trimmed in place."""


_OF_ONE_KEY = frozenset({"get", "pop", "popitem", "setdefault", "move_to_end", "__contains__"})
"""Methods of a dict that look at no other entry than one."""
_OF_CACHES = frozenset({"get", "setdefault", "move_to_end", "__contains__"})
"""Those by which a cache asks for its results."""


def newest_of(kind: str) -> tuple[str, str]:
    """Return what takes the newest part of an object of the type *kind*, and what that has; empty if nothing does."""
    is_it = (row for name, row in _NEWEST.items() if kind == name or (name.endswith(".") and kind.startswith(name)))
    return next(is_it, ("", ""))


def readers(case: Case, store: Store) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield where the code around uses all of the container: the newest of it would not be enough."""
    if has_base(type(case.held), collections.deque):  # a window: what is read of it are its newest entries
        return
    is_dict = has_base(type(case.held), dict)
    for source, node in uses(case, store):
        if not (is_dict and is_looked_up(source, node)):
            yield from _uses_of(source, node) if case.holder.endswith("]") else [(source, node)]


def uses(case: Case, store: Store) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield where the code around does anything with the container but fill and empty it."""
    name, inside = last_name(store.container_text), {*ast.walk(store.statement)}
    for source in _sources(case, store):
        for node in source.nodes:
            if not isinstance(node, (ast.Name, ast.Attribute)) or name_of(node) != name:
                continue
            is_emptied = _is_emptied(source, node)
            if isinstance(node.ctx, ast.Load) and not (is_emptied or _is_filled(source, node, name) or node in inside):
                yield source, node


def _is_emptied(source: SourceText, node: ast.expr) -> bool:
    """Return whether entries are dropped where *node* stands, ``losses.clear()``: that reads nothing."""
    above = source.parent(node)
    if not isinstance(above, ast.Attribute) or above.attr not in _DROPPING:
        return False
    call = source.parent(above)
    return above.attr in _RETURNING_NOTHING or (
        isinstance(call, ast.Call) and isinstance(source.parent(call), ast.Expr)
    )


_RETURNING_NOTHING = frozenset({"clear", "discard", "__delitem__"})
_DROPPING = _RETURNING_NOTHING | {"popleft"}
"""None of them misses an entry that a change has dropped before, as ``pop(key)`` and ``remove(entry)`` would."""


def _sources(case: Case, store: Store) -> Iterable[SourceText]:
    """Return the files in which the container may be read, each once."""
    found = (store.source, case.cell, *case.sources)
    return {source.filename: source for source in found if source is not None}.values()


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


def is_looked_up(source: SourceText, node: ast.AST) -> bool:
    """Return whether *node*, a dict, is asked for one key: what has been dropped is made again then."""
    above = source.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_ONE_KEY
    if isinstance(above, ast.Call) and name_of(above.func) == "len":  # `if len(cache) > LIMIT` reads no entry
        return isinstance(source.parent(above), ast.Compare) and isinstance(source.statement_of(above), ast.If)
    is_item = isinstance(above, ast.Subscript) and above.value is node and not isinstance(above.ctx, ast.Store)
    return isinstance(above, ast.Compare) or is_item


def _is_filled(source: SourceText, node: ast.AST, name: str) -> bool:
    """Return whether *node* stands in a statement that adds to what is called *name*, as what is added to."""
    statement = source.statement_of(node)
    if statement is None or not is_adding(source, statement, name):
        return False
    container = store_of(source, statement, name).container
    return container is not None and node in set(ast.walk(container))


def bounded(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield how the container keeps its newest entries only."""
    place = store.container_text
    holder, held = case.filled(store)
    if is_asked_elsewhere(case, store):
        return
    lines, n_kept = trimming(case, place, held, at_least=longest_read(case, store), wanted=_n_wanted(case, store))
    if not lines:
        return
    if _is_filled_in_front(store):
        lines = [line.replace(f"[:-{n_kept}]", f"[{n_kept}:]").replace("popleft()", "pop()") for line in lines]
    patch = case.patch()
    if cut is not None:
        cut.apply(patch, store)
    _write_behind(case, store, patch, lines)
    also = f"; store {cut.words}" if cut is not None else ""
    wanted = "" if any(uses(case, store)) else ", or as many as you will read: nothing reads them so far"
    if is_made_again(case, store):
        wanted = ", or as many as you have room for: what was dropped is made again when it is asked for"
    if n_kept == 1:
        words = f"Keep only the newest entry of `{place}`{also}: nothing reads an older one."
    else:
        words = f"Keep only the newest {n_kept:,} entries of `{place}`{wanted}{also}."
    emptied = case.holder if has_base(type(held), queue.Queue) else holder
    full_after = runs_until(case, n_kept)
    yield from (replace(one, full_after=full_after) for one in case.proposal(words, patch, emptied=(emptied,)))


def _n_wanted(case: Case, store: Store) -> int:
    """Return how many entries the code wants by its words: one of what it calls the best or the last; 0 for others."""
    if is_made_again(case, store):
        return 0
    return int(bool(OF_THE_NEWEST.search(last_name(store.container_text))))


OF_THE_NEWEST = re.compile(r"(?:^|_)(best|last|latest|newest|current|prev|previous)(?:_|$)")


def is_asked_elsewhere(case: Case, store: Store) -> bool:
    """Return whether other code takes a dict to have what a key of its own asks for: ``self.outputs.pop(ctx.key)``.

    What is dropped is missing there, unless the dict is a cache, and so asked whether it has the key.
    """
    if not has_base(type(case.held), dict) or is_made_again(case, store):
        return False
    own = store.source.function_of(store.statement)
    for source, node in uses(case, store):
        above = source.parent(node)
        is_item = isinstance(above, ast.Subscript) and above.value is node and isinstance(above.ctx, ast.Load)
        is_named = is_item and not isinstance(above.slice, ast.Constant)  # type: ignore[union-attr]  # a subscript
        call = source.parent(above) if isinstance(above, ast.Attribute) and above.attr == "pop" else None
        is_named |= isinstance(call, ast.Call) and len(call.args) == 1  # without a default
        if is_named and (source is not store.source or source.function_of(node) is not own):
            return True
    return False


def runs_until(case: Case, n_entries: int) -> int:
    """Return how many runs it takes until the container has so many entries."""
    n_now, n_runs = safe_len(case.held) or 0, len(case.leak.kept)
    per_run = n_now / n_runs if n_runs else case.leak.count_per_run
    return 1 + math.ceil(n_entries / (int(per_run) if per_run >= 1 else max(per_run, _RAREST)))


_RAREST = 1e-3


def is_made_again(case: Case, store: Store) -> bool:
    """Return whether the code that fills a dict asks for the key first, as a cache does."""
    own = store.source.function_of(store.statement) or store.source.tree
    if not has_base(type(case.held), dict):
        return False
    name = last_name(store.container_text)
    nodes = (node for node in ast.walk(own) if isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) == name)
    return any(isinstance(node.ctx, ast.Load) and _is_asked_first(store.source, node) for node in nodes)


def _is_asked_first(source: SourceText, node: ast.AST) -> bool:
    """Return whether *node*, a dict, is asked whether it has a key: plainly read, it must have it."""
    above = source.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_CACHES
    if not isinstance(above, ast.Subscript):
        return isinstance(above, ast.Compare)
    return is_looked_up(source, node) and any(isinstance(one, ast.Try) and one.handlers for one in source.above(node))


def _write_behind(case: Case, store: Store, patch: Patch, lines: list[str]) -> None:
    """Write *lines* below the statement that stores, above a return, at the run's end where a function is made."""
    if any(isinstance(above, ast.Lambda) for above in store.source.above(store.container or store.statement)):
        case.at_end_of_run(patch, *lines)
    elif isinstance(store.statement, ast.Return):
        patch.before(store.source, store.statement, lines)
    else:
        patch.after(store.source, store.statement, lines)


def window_kept(case: Case, store: Store, cut: Detachment | None) -> Iterator[Proposal]:
    """Yield how a list keeps as many of its newest entries as the code reads of it: ``frames[-8:]``, and no others."""
    if store.how not in ("one", "many") or (cut is not None and cut.numbers) or _is_filled_in_front(store):
        return
    length, kind = newest_read(case, store), type(case.filled(store)[1])
    is_short = length.isdigit() and int(length) <= case.leak.count_per_run
    is_deque = has_base(kind, collections.deque)
    if not length or not (is_deque or has_base(kind, list)) or (case.is_in_run and is_short):
        return  # of what the run itself fills no more is read than what it has filled: that begins anew with the run
    place, patch = store.container_text, case.patch()
    if cut is not None:
        cut.apply(patch, store)
    lines = [f"while len({place}) > {length}:", f"    {place}.popleft()"] if is_deque else [f"del {place}[:-{length}]"]
    _write_behind(case, store, patch, lines)
    also = f" Store {cut.words}." if cut is not None else ""
    newest = "entry" if length == "1" else f"`{length}` entries"
    words = f"Keep only the newest {newest} of `{place}`: no older one is read.{also}"
    full_after = runs_until(case, int(length)) if length.isdigit() else 0
    found = case.proposal(words, patch, emptied=(case.filled(store)[0],))
    yield from (replace(one, full_after=full_after) for one in found)


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
        is_known = is_shared and (length.startswith("self.") or (function is own and _is_place(length)))
        if not (length.isdigit() or is_known):
            return ""
        lengths.add(length)
    if len(lengths) > 1 and not all(one.isdigit() for one in lengths):
        return ""
    return max(lengths, key=lambda one: int(one) if one.isdigit() else 0, default="")


def reads_newest(reading: Iterable[tuple[SourceText, ast.expr]]) -> bool:
    """Return whether all that is read of a container are so many of its newest entries, by a number."""
    return all(_length_read(source, node).isdigit() for source, node in reading)


def _is_place(text: str) -> bool:
    """Return whether *text* is a variable, an attribute or an item: to read it again changes nothing."""
    parts = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Load)
    return bool(text) and all(isinstance(node, parts) for node in ast.walk(ast.parse(text, mode="eval")))


def _read(case: Case, store: Store) -> Iterator[tuple[SourceText, ast.expr]]:
    """Yield where the code reads the container: by its name, or what has it by the same key, ``stream["events"]``."""
    container = store.container
    if not isinstance(container, ast.Subscript):
        is_deque = has_base(type(case.held), collections.deque)
        yield from uses(case, store) if is_deque else readers(case, store)
        return
    inside, key = {*ast.walk(store.statement)}, ast.dump(container.slice)
    for source in _sources(case, store):
        nodes = (node for node in source.nodes if isinstance(node, ast.Subscript) and node not in inside)
        yield from ((source, node) for node in nodes if ast.dump(node.slice) == key and isinstance(node.ctx, ast.Load))


def longest_read(case: Case, store: Store) -> int:
    """Return how many of the newest entries the code reads at least, as far as it says so in a number."""
    reading = list(_read(case, store))
    lengths = [_length_read(source, node) for source, node in reading]
    wanted = [number for source, node in reading for number in _numbers_beside(source, node)]
    return max((int(one) for one in [*lengths, *wanted] if one.isdigit()), default=0)


def _numbers_beside(source: SourceText, node: ast.expr) -> Iterator[str]:
    """Yield the numbers that a call gets with *node*, ``random.sample(replay, 32)``, or that its length is to reach."""
    above = source.parent(node)
    if isinstance(above, ast.Call) and node in above.args:
        compared = source.parent(above) if name_of(above.func) == "len" else None
        beside = compared.comparators if isinstance(compared, ast.Compare) else above.args
        yield from (source.text_of(one) for one in beside if isinstance(one, ast.Constant))


def _is_beside(source: SourceText, one: ast.AST, other: ast.AST) -> bool:
    """Return whether two functions are methods of one class."""
    return source.class_of(one) is not None and source.class_of(one) is source.class_of(other)


def _length_read(source: SourceText, node: ast.expr) -> str:
    """Return how many entries are read at the end of *node*, as it is written; empty where others may be, too."""
    above = source.parent(node)
    if isinstance(above, ast.Call) and above.args == [node] and name_of(above.func) in ("list", "tuple"):
        node, above = above, source.parent(above)  # `list(window)[-10:]`: a deque has no slices
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


def trimming(case: Case, place: str, held: Any, *, at_least: int = 0, wanted: int = 0) -> tuple[list[str], int]:
    """Return the statements that leave the newest entries in *place*, and how many; none where it has no order.

    Args:
        case: The leak.
        place: The container, as it is written.
        held: The same, live.
        at_least: So many must stay.
        wanted: So many stay, if it is known; else those of some runs.
    """
    kind = type(held)
    is_queue = has_base(kind, queue.Queue) and type(held.queue) is collections.deque
    n_kept = max(wanted or case.n_kept(held.qsize() if is_queue else safe_len(held) or 0), at_least)
    if any(has_base(kind, one) for one in (list, bytearray, array.array)):
        return [f"del {place}[:-{n_kept}]"], n_kept
    if has_base(kind, collections.deque):
        return [f"while len({place}) > {n_kept}:", f"    {place}.popleft()"], n_kept
    if has_base(kind, dict) or has_base(kind, collections.UserDict):
        return [f"while len({place}) > {n_kept}:", f"    {place}.pop(next(iter({place})))"], n_kept
    if is_queue:
        return [f"while {place}.qsize() > {n_kept}:", f"    {place}.get_nowait()"], n_kept
    return [], 0


def emptied_by_end_of_pass(case: Case, store: Store) -> Iterator[Proposal]:
    """Yield how the method that ends a pass over the data, ``on_validation_epoch_end``, empties what it has read.

    Nothing else reads it, it is filled by another method, and what is computed of it there has no part of it.
    """
    reading = list(uses(case, store))
    function = reading[0][0].function_of(reading[0][1]) if reading else None
    if not isinstance(function, FUNCTIONS) or not _ENDS_A_PASS.search(function.name) or case.holder.endswith("]"):
        return
    source = reading[0][0]
    is_there = all(one is source and source.function_of(node) is function for one, node in reading)
    is_read = all(_is_computed_with(source, function, node) and name_of(node) == case.name for _one, node in reading)
    is_filled_there = store.source is source and source.function_of(store.statement) is function
    is_plain = is_exactly(case.held, (list, dict, set, collections.deque))
    if not (is_there and is_read and is_plain) or is_filled_there or source.class_of(function) is None:
        return
    place, patch = source.text_of(reading[0][1]), case.patch()
    if at_end_of(case, source, function, patch, [f"{place}.clear()"]):
        words = f"Empty `{place}` where `{function.name}` has read it: the next pass has entries of its own."
        yield from case.proposal(words, patch, emptied=(case.holder,))


_PASSES = r"(?:epoch|pass|round|train|training|val|valid|validation|test|eval|evaluation|fit)"
_ENDS_A_PASS = re.compile(rf"(?:^|_){_PASSES}_end$|^(?:on_)?(?:end|finish|finalize)_(?:of_)?(?:\w+_)?{_PASSES}$")


def _is_computed_with(source: SourceText, function: ast.AST, node: ast.expr) -> bool:
    """Return whether *function* goes through *node*, or gives it to what computes, and under no condition."""
    statement, above = source.statement_of(node), source.parent(node)
    if statement not in getattr(function, "body", []):
        return False
    if isinstance(above, ast.For):
        return above is statement and above.iter is node
    if isinstance(above, ast.comprehension):
        made = source.parent(above)
        above = source.parent(made) if isinstance(made, ast.GeneratorExp) else None
        return isinstance(made, (ast.ListComp, ast.SetComp, ast.DictComp)) or _computes(source, above)
    return _computes(source, above)


def _computes(source: SourceText, node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and _COMPUTING.match(source.text_of(node.func)) is not None


_COMPUTING = re.compile(
    r"(?:torch|np|numpy|statistics|math)\.(?:\w+\.)*[a-z]\w*$|(?:len|sum|min|max|any|all|sorted|list|tuple|float)$"
)
"""No classes: a dataset or an iterator that is made of a list reads of it later."""


def newest_part(case: Case) -> Iterator[Proposal]:
    """Yield how a variable that every run replaces by something longer keeps the newest part only."""
    store, held = case.store, case.held
    is_list = has_base(type(held), list)
    if store is None or store.how not in ("name", "sum") or held is MISSING:
        return
    if case.leak.unit == "objects" and not (is_list and newest_read(case, store).isdigit()):
        return
    name = type_name(type(held))
    suffix, what = newest_of(name)
    if not suffix or last_name(store.container_text) != case.name:
        return
    if (store.how == "sum" and name not in _JOINED_BY_PLUS) or not _refers_to_itself(store):
        return
    length, place = newest_read(case, store), store.container_text
    n_kept = max(rounded(case.leak.count_per_run / _size_of_row(held)), longest_read(case, store))
    words = f"Keep only the newest {n_kept:,} {what} of `{place}`."
    if length.isdigit():
        n_kept, words = int(length), f"Keep only the newest `{length}` {what} of `{place}`: no older one is read."
    found = case.behind(words, store, f"{place} = {place}{suffix.format(n=n_kept)}", emptied=(case.holder,))
    yield from (replace(one, full_after=runs_until(case, n_kept) if is_list else 0) for one in found)


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
