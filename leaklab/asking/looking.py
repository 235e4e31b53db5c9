"""Look at living objects for the explorer: find them by expression or address, borrow the heap, return records."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from leaklab.addresses import addresses_of
from leaklab.collect.checkpoint import heap_objects
from leaklab.collect.gcstate import collect_quietly, user_has_frozen
from leaklab.errors import LeaklabError
from leaklab.explain.alive.live_graph import live_graph
from leaklab.explain.alive.overview import overview
from leaklab.explain.heap.shared_values import words_if_shared
from leaklab.explain.heap.untracked import untracked_holders
from leaklab.explain.references import best_reference
from leaklab.explain.view import Births, HeapView, heap_view
from leaklab.model import RootPath
from leaklab.model.live import HeapOverview, LiveGraph
from leaklab.objects import type_name
from leaklab.pausing import gc_paused
from leaklab.render.wording import shorten

# Reading these makes new wrappers, or runs an unpack hook of the user: the live view ends where autograd begins.
_INSIDE_AUTOGRAD = re.compile(r"\.(grad_fn|_saved_|next_functions|variable|_raw_saved_)")
_INSTANCE_DICT = ".__dict__"
_MODULE_ROOT = re.compile(r"module '(?P<package>\w+)[^']*'")
_EXPRESSION_LIMIT = 120


class GoneError(LeaklabError):
    """What was to be looked at is no longer there; the message says so in one sentence."""


def look_around(namespace: dict[str, Any], *, summaries: bool = True) -> HeapOverview:
    """Return what keeps most of the heap alive."""
    with _borrowed_heap(namespace, [], (), summaries=summaries) as (view, _):
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
        summaries: Whether shapes and lengths may be told.
    """
    with _borrowed_heap(namespace, borrowed, tuple((hidden or {}).items()), summaries=summaries) as (view, address):
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
    objects = heap_objects(frozen_too=user_has_frozen())
    try:
        places = np.flatnonzero(addresses_of(objects) == address).tolist()
        if places and type_name(type(objects[places[0]])) == kind:
            return [objects[places[0]]]
    finally:
        objects.clear()
    msg = f"that {shorten(kind, _EXPRESSION_LIMIT)} is gone: it was freed since it was shown"
    raise GoneError(msg)


@contextmanager
def _borrowed_heap(
    namespace: dict[str, Any], borrowed: list[Any], hidden: Sequence[tuple[int, str]], *, summaries: bool
) -> Iterator[tuple[HeapView, int]]:
    """Lend the heap as a view, with the address of the only item of *borrowed*; both lists are emptied."""
    if gc.isenabled():
        collect_quietly()  # garbage that waits for a collection is nobody's holder
    none = np.empty(0, np.int64)
    address = id(borrowed[0]) if borrowed else 0
    with gc_paused():
        objects = heap_objects(frozen_too=user_has_frozen())
        ignored: list[object] = [borrowed]
        try:
            addresses = addresses_of(objects)
            if borrowed and not (addresses == address).any():
                objects += [borrowed[0], *untracked_holders(objects, borrowed[0])]
            borrowed.clear()  # the list of the heap has it: any other reference would look like somebody's
            for place, kind in hidden:
                found = np.flatnonzero(addresses == place).tolist()
                for thing in [objects[i] for i in found if type_name(type(objects[i])) == kind]:
                    ignored += [thing, *_own_dict(thing)]
            with heap_view(objects, Births(none, none, 1), namespace, ignored, summaries=summaries) as view:
                yield view, address
        finally:
            ignored.clear()
            objects.clear()


def _own_dict(thing: object) -> list[object]:
    """Return the dict of an instance as the only item of a list: it holds what the instance holds."""
    dicts: list[object] = [child for child in gc.get_referents(thing) if type(child) is dict]
    return [child for child in dicts if best_reference(thing, child).text == _INSTANCE_DICT][:1]


def _is_expression(text: str) -> bool:
    try:
        compile(text, "<expression>", "eval")
    except (SyntaxError, ValueError):
        return False
    return True
