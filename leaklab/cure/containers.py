"""Let a container go with the run that fills it, or bound it."""

from __future__ import annotations

import array
import ast
import collections
import io
import queue
import sys
from collections.abc import Iterator
from typing import Any

from leaklab.cure.candidate import Candidate
from leaklab.cure.case import Case, Store
from leaklab.cure.live import MISSING, has_method
from leaklab.cure.stored_values import Cut, cut_of
from leaklab.runtime.objects import has_base

_EMPTY = ((list, "[]"), (dict, "{}"), (set, "set()"))
_OWN = (list, dict, set, collections.deque, bytearray)
_STREAMS = (io.StringIO, io.BytesIO)
_QUEUES = (queue.Queue,)


def let_go(case: Case) -> Iterator[Candidate]:
    """Yield how what is stored in a container of the user's goes: as numbers, with its run, or but for the newest."""
    store = case.store
    if store is None or store.how in ("call", "name") or case.held is MISSING or not _is_users(case):
        return
    cut = cut_of(case, store)
    if cut is not None:
        patch = case.patch()
        cut.apply(patch, store)
        if cut.numbers:
            yield from case.candidate(f"Store {cut.words} in `{store.container_text}`.", patch)
    if store.how == "sum" and not _is_collection(case.held):
        return
    if _is_read_in_run(case, store):
        yield from _with_the_run(case)
        yield from _bounded(case, store, cut)
    else:
        yield from _bounded(case, store, cut)
        yield from _with_the_run(case)


def _is_collection(held: Any) -> bool:
    return any(has_base(type(held), kind) for kind in (*_OWN, *_STREAMS, *_QUEUES, array.array))


def _is_users(case: Case) -> bool:
    """Return whether the holder is reached from the user's own variables, not a library's table."""
    root = case.leak.path.root
    if not root.startswith("module "):
        return True
    module = sys.modules.get(root.removeprefix("module ").strip("'"))
    filename = getattr(module, "__file__", None) or ""
    return "site-packages" not in filename and bool(filename) and case.program.source(filename) is not None


def _is_read_in_run(case: Case, store: Store) -> bool:
    """Return whether the code of a run uses the container for more than to fill it."""
    if case.cell is None:
        return False
    wanted = case.holder
    inside = set(ast.walk(store.statement))
    nodes = (node for statement in case.run_body for node in ast.walk(statement))
    return any(
        isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        and node not in inside
        and case.cell.text_of(node) == wanted
        for node in nodes
    )


def _with_the_run(case: Case) -> Iterator[Candidate]:
    """Yield how the container goes with the run: made anew where a run begins, or emptied where it ends."""
    holder, held = case.holder, case.held
    kind = type(held)
    if not case.run_body:
        return
    empty = next((text for one, text in _EMPTY if kind is one), "")
    if empty and holder.isidentifier() and case.is_in_run and not case.program.function:
        patch = case.patch()
        case.at_start_of_run(patch, f"{holder} = {empty}")
        yield from case.candidate(f"Begin each run with an empty `{holder}`.", patch)
    elif has_method(held, "clear") and _is_collection(held):
        patch = case.patch()
        case.at_end_of_run(patch, f"{holder}.clear()")
        yield from case.candidate(
            f"Empty `{holder}` at the end of the run, when it has been used.", patch, emptied=(holder,)
        )
    elif kind in _STREAMS:
        patch = case.patch()
        case.at_end_of_run(patch, f"{holder}.seek(0)", f"{holder}.truncate()")
        yield from case.candidate(f"Empty `{holder}` at the end of the run, when it has been read.", patch)


def _bounded(case: Case, store: Store, cut: Cut | None) -> Iterator[Candidate]:
    """Yield how the container keeps its newest entries only."""
    place = store.container_text
    lines, n_kept = trimming(case, place, case.held)
    if not lines:
        return
    patch = case.patch()
    if cut is not None:
        cut.apply(patch, store)
    patch.after(store.source, store.statement, lines)
    also = f"; store {cut.words}" if cut is not None else ""
    emptied = f"{case.holder}.queue" if has_base(type(case.held), queue.Queue) else case.holder
    words = f"Keep only the newest {n_kept:,} entries of `{place}`{also}."
    yield from case.candidate(words, patch, emptied=(emptied,))


def trimming(case: Case, place: str, held: Any) -> tuple[list[str], int]:
    """Return the statements that leave the newest entries in *place*, and how many; none where it has no order."""
    kind = type(held)
    if any(has_base(kind, one) for one in (list, bytearray, array.array)):
        n_kept = case.n_kept(len(held))
        return [f"del {place}[:-{n_kept}]"], n_kept
    if has_base(kind, collections.deque):
        n_kept = case.n_kept(len(held))
        return [f"while len({place}) > {n_kept}:", f"    {place}.popleft()"], n_kept
    if has_base(kind, dict) or has_base(kind, collections.UserDict):
        n_kept = case.n_kept(len(held))
        return [f"while len({place}) > {n_kept}:", f"    {place}.pop(next(iter({place})))"], n_kept
    if has_base(kind, queue.Queue) and type(held.queue) is collections.deque:
        n_kept = case.n_kept(held.qsize())
        return [f"while {place}.qsize() > {n_kept}:", f"    {place}.get_nowait()"], n_kept
    return [], 0
