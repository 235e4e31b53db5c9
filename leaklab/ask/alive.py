"""Say why an object is alive, and look at live objects for the explorer: by expression or address."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from leaklab.errors import NO_MEMORY_TO_LOOK, LeaklabError, NotEnoughMemoryError
from leaklab.explain.alive.counts import read_counts
from leaklab.explain.alive.explain import explain_alive, explain_best_path
from leaklab.explain.alive.live_graph import live_graph, overview
from leaklab.heap.borrow import borrow_heap, view_for_path
from leaklab.heap.hidden_references import untracked_holders
from leaklab.heap.names import best_reference
from leaklab.heap.running import empty_snapshots
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.measure.checkpoint import whole_heap
from leaklab.model import RootPath
from leaklab.model.alive import HeapOverview, LiveGraph, WhyAliveRecord
from leaklab.reports.alive import WhyAlive
from leaklab.runtime.addresses import Addresses, addresses_of
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import type_name, words_if_shared
from leaklab.runtime.referents import get_referents
from leaklab.text import shorten
from leaklab.version import environment

# Reading these makes new wrappers, or runs an unpack hook of the user: the live view ends where autograd begins.
_INSIDE_AUTOGRAD = re.compile(r"\.(grad_fn|_saved_|next_functions|variable|_raw_saved_)")
_INSTANCE_DICT = ".__dict__"
_MODULE_ROOT = re.compile(r"module '(?P<package>\w+)[^']*'")
_EXPRESSION_LIMIT = 120
_ONLY_PATH = "the best path to the object; memory was too short to find other paths, sizes and counts"


def whyalive(
    obj: object, *, namespace: dict[str, Any] | None = None, max_paths: int = 8, only_path: bool = False
) -> WhyAlive:
    """Say why *obj* is alive: every independent path to it, its holders, what would free it.

    The question itself is no holder: neither its argument nor leaklab's own frames appear. A variable of the function
    that asks does.

    Args:
        obj: Any object that a collector or a reference count can free: no number, no text, not None.
        namespace: The variables among which holders are looked for first, and in which the expressions of the answer
            can be evaluated; by default the global variables of the caller.
        max_paths: How many independent paths to show, at least 1.
        only_path: Whether to stop at the best path: no other paths, no sizes, no counts, nothing to cut. It takes a
            quarter of the time in a heap of a million objects.

    Returns:
        The answer. It is made of records: it keeps nothing alive. Where there is too little memory for the graph of the
        heap, it is the best path alone, and its reason says so.

    Raises:
        TypeError: if the object is a value that all code shares, or an argument is of the wrong type.
        ValueError: if *max_paths* is less than 1.
        NotEnoughMemoryError: if there is too little memory even for the best path.
    """
    borrowed = [obj]
    del obj
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's variables
    return answer(borrowed, variables, max_paths=max_paths, only_path=only_path)


def answer(
    borrowed: list[Any],
    namespace: dict[str, Any],
    *,
    asked: str = "",
    max_paths: int = 8,
    only_path: bool = False,
    summaries: bool = True,
) -> WhyAlive:
    """Answer for the only item of *borrowed*, which is emptied: no other reference of ours would be counted out.

    Args:
        borrowed: The object, and nothing else.
        namespace: The user's variables.
        asked: The expression that was asked about.
        max_paths: How many independent paths to show.
        only_path: As `whyalive` has it.
        summaries: Whether shapes and lengths may be shown.

    Raises:
        TypeError: as `whyalive`.
        ValueError: as `whyalive`.
        NotEnoughMemoryError: as `whyalive`.
    """
    try:
        _refuse_wrong_types(namespace, max_paths)
        _refuse_shared(borrowed)
        if not only_path:
            with suppress(MemoryError):  # what was built of the graph is freed when this block ends, and not before
                return WhyAlive(_explain(borrowed, namespace, asked, max_paths, summaries=summaries))
        found = _best_path_at_limit(borrowed, namespace, asked, summaries=summaries)
        return WhyAlive(found if only_path else replace(found, reason=_ONLY_PATH))
    finally:
        borrowed.clear()


def _explain(
    borrowed: list[Any], namespace: dict[str, Any], asked: str, max_paths: int, *, summaries: bool
) -> WhyAliveRecord:
    _free_garbage()
    raw, address = read_counts(borrowed), id(borrowed[0])
    with _heap_with(borrowed, namespace, summaries=summaries) as view:
        found = explain_alive(view, view.index.vertex_of(address), raw, asked=asked, max_paths=max_paths)
    return replace(found, environment=environment())


def _best_path_at_limit(
    borrowed: list[Any], namespace: dict[str, Any], asked: str, *, summaries: bool
) -> WhyAliveRecord:
    with suppress(MemoryError):
        return _best_path(borrowed, namespace, asked, summaries=summaries)
    raise NotEnoughMemoryError(NO_MEMORY_TO_LOOK)


def _best_path(borrowed: list[Any], namespace: dict[str, Any], asked: str, *, summaries: bool) -> WhyAliveRecord:
    """Return the best path only. Garbage need not be collected first: no root reaches it."""
    raw, address = read_counts(borrowed), id(borrowed[0])
    ignored: list[object] = [borrowed]
    try:
        with (
            _objects_with(borrowed, {}, ignored) as objects,
            view_for_path(objects, address, namespace, ignored, summaries=summaries) as view,
        ):
            found = explain_best_path(view, view.index.vertex_of(address), raw, asked=asked)
    finally:
        empty_snapshots()
    return replace(found, environment=environment())


def _refuse_wrong_types(namespace: object, max_paths: object) -> None:
    if not isinstance(namespace, dict):
        msg = f"namespace must be a dict of variables, not {type(namespace).__name__}"
        raise TypeError(msg)
    if not isinstance(max_paths, int) or isinstance(max_paths, bool):
        msg = f"max_paths must be a whole number, not {type(max_paths).__name__}"
        raise TypeError(msg)
    if max_paths < 1:
        msg = f"max_paths must be at least 1, not {max_paths}"
        raise ValueError(msg)


def _refuse_shared(borrowed: list[Any]) -> None:
    words = words_if_shared(borrowed[0])
    if words:
        msg = f"{words}: no reference keeps it alive, so no cut could free it; ask about the object that holds it"
        raise TypeError(msg)


class GoneError(LeaklabError):
    """What was to be looked at is no longer there; the message says so in one sentence."""


def look_around(namespace: dict[str, Any], *, summaries: bool = True) -> HeapOverview:
    """Return what keeps most of the heap alive."""
    _free_garbage()
    with _heap_with([], namespace, summaries=summaries) as view:
        return overview(view)


def look_at(
    borrowed: list[Any],
    namespace: dict[str, Any],
    *,
    asked: str = "",
    opened: Sequence[int] = (),
    hidden: Mapping[int, str] | None = None,
    summaries: bool = True,
) -> LiveGraph:
    """Return what leads to the only item of *borrowed*, which is emptied.

    Args:
        borrowed: The object, and nothing else.
        namespace: The user's variables.
        asked: The expression for it.
        opened: Addresses of nodes whose holders are to be shown too.
        hidden: Addresses of holders to leave out, each with the type it had: paths are found as if these let go.
        summaries: Whether shapes and lengths may be shown.
    """
    _free_garbage()
    address = id(borrowed[0])
    with _heap_with(borrowed, namespace, hidden or {}, summaries=summaries) as view:
        graph = live_graph(view, view.index.vertex_of(address), asked=asked, opened=opened)
    present = {node.address for node in graph.nodes}
    gone = [address for address in opened if address not in present]
    if gone:
        words = "1 opened node is" if len(gone) == 1 else f"{len(gone)} opened nodes are"
        graph = replace(graph, notes=(*graph.notes, f"{words} gone, or on no path any more"))
    return graph


def expressions_of(path: RootPath) -> list[str]:
    """Return for each step of *path* the expression that evaluates to its object, up to where Python has none.

    It stops where the path enters an autograd graph: to read a saved tensor would unpack it.
    """
    found: list[str] = []
    for position, step in enumerate(path.steps):
        reference = step.reference
        is_suffix = reference.startswith((".", "[")) if position else True
        if not reference or not is_suffix or _INSIDE_AUTOGRAD.match(reference):
            break
        expression = f"{found[-1]}{reference}" if found else reference
        if not _is_expression(expression):
            break
        found.append(expression)
    return found


def modules_of(path: RootPath) -> dict[str, object]:
    """Return the names that the expressions of *path* need where it begins in a module, which need not be imported."""
    found = _MODULE_ROOT.fullmatch(path.root)
    names = () if found is None else ("sys", found["package"])
    return {name: sys.modules[name] for name in names if name in sys.modules}


def evaluate(expression: str, namespace: dict[str, Any], modules: Mapping[str, object] | None = None) -> list[Any]:
    """Return the value of *expression* as the only item of a list.

    Args:
        expression: As `expressions_of` returns them.
        namespace: The user's variables.
        modules: Names that mean these modules, whatever the user's variable of that name is.

    Raises:
        GoneError: if it cannot be evaluated any more, or its value is none that can be freed.
    """
    try:
        borrowed = [eval(compile(expression, "<leaklab explorer>", "eval"), namespace, modules or {})]  # noqa: S307 - the holder's own expression, in the user's namespace, at the user's request
    except Exception as error:  # noqa: BLE001 - properties and __getitem__ of the user may raise anything
        problem = f"{shorten(expression, _EXPRESSION_LIMIT)} is gone ({type(error).__name__})"
    else:
        problem = words_if_shared(borrowed[0])
        if not problem:
            return borrowed
        problem = f"{shorten(expression, _EXPRESSION_LIMIT)}: {problem}"
    raise GoneError(problem)


def at_address(address: int, kind: str) -> list[Any]:
    """Return the object that lies at *address* as the only item of a list.

    Raises:
        GoneError: if none lies there that the collector knows, or one of another type.
    """
    with whole_heap() as objects:
        places = np.flatnonzero(addresses_of(objects) == address).tolist()
        if places and type_name(type(objects[places[0]])) == kind:
            return [objects[places[0]]]
    msg = f"that {shorten(kind, _EXPRESSION_LIMIT)} is gone: it has been freed since it was shown"
    raise GoneError(msg)


def _free_garbage() -> None:
    """Collect garbage, which would look like a holder; not where the user has switched the collector off."""
    if gc.isenabled():
        collect_quietly()


@contextmanager
def _heap_with(
    borrowed: list[Any], namespace: dict[str, Any], hidden: Mapping[int, str] | None = None, *, summaries: bool
) -> Iterator[HeapView]:
    """Lend the heap as a view in which the only item of *borrowed* is a vertex, and those *hidden* are none."""
    ignored: list[object] = [borrowed]
    heap = _objects_with(borrowed, hidden or {}, ignored)
    try:
        with borrow_heap(NO_BIRTHS, namespace, ignored, heap=heap, summaries=summaries) as view:
            yield view
    finally:
        ignored.clear()


@contextmanager
def _objects_with(borrowed: list[Any], hidden: Mapping[int, str], ignored: list[object]) -> Iterator[list[object]]:
    """Lend every object with the only item of *borrowed*, which is emptied; add those *hidden* to *ignored*."""
    with whole_heap() as objects:
        addresses = addresses_of(objects)
        place = _place_of(borrowed, addresses)
        if borrowed and place == len(objects):
            objects += [borrowed[0], *untracked_holders(objects, borrowed[0])]
        borrowed.clear()  # the list of the heap has it: any other reference would look like somebody's
        for address, kind in hidden.items():
            for position in np.flatnonzero(addresses == address).tolist():
                if type_name(type(objects[position])) == kind:
                    ignored += [objects[position], *_own_dict(objects[position])]
        try:
            yield objects
        except MemoryError:
            borrowed += objects[place : place + 1]  # it can be asked about once more
            raise


def _place_of(borrowed: list[Any], addresses: Addresses) -> int:
    """Return the position of the only item of *borrowed* in the heap; the heap's length where it is not there."""
    places = np.flatnonzero(addresses == id(borrowed[0])).tolist() if borrowed else []
    return places[0] if places else len(addresses)


def _own_dict(thing: object) -> list[object]:
    """Return the dict of an instance as the only item of a list: it holds what the instance holds."""
    dicts: list[object] = [child for child in get_referents(thing) if type(child) is dict]
    return [child for child in dicts if best_reference(thing, child).text == _INSTANCE_DICT][:1]


def _is_expression(text: str) -> bool:
    try:
        compile(text, "<expression>", "eval")
    except (SyntaxError, ValueError):
        return False
    return True
