"""Write the smallest cut as statements that a person could run, with the proof of what they free."""

from __future__ import annotations

import re
from collections.abc import Sequence

from leaklab.explain.alive.alive_paths import start_of
from leaklab.explain.freeing.cuts import ROOT, freed_without, smallest_cut
from leaklab.explain.freeing.letting_go import how_to_let_go
from leaklab.explain.freeing.retained import bytes_of
from leaklab.explain.references import MAX_NAMES, Reference, name_references
from leaklab.explain.references.containers import keys_of
from leaklab.explain.references.record import is_name
from leaklab.explain.view import HeapView
from leaklab.model.alive import Cut, CutReference
from leaklab.objects import is_kind_of, summary, type_name

_INDEX = re.compile(r"\[(\d+)\]")


def cut_of(view: HeapView, vertex: int, *, keeps_variables: bool) -> tuple[Cut, tuple[tuple[int, int], ...]]:
    """Return the smallest cut that lets the object at *vertex* go, and its references as vertices."""
    found = smallest_cut(view, [vertex], keeps_variables=keeps_variables)
    freed = freed_without(view, found.references)
    size = bytes_of(view, freed.tolist())
    ordered = sorted(found.references, key=lambda pair: _position(view, pair))
    cut = Cut(
        references=tuple(_reference(view, holder, held) for holder, held in ordered),
        is_exact=found.is_exact,
        frees_object=bool((freed == vertex).any()),
        n_freed=len(freed),
        freed_bytes=size.exclusive_bytes,
        is_lower_bound=size.is_lower_bound,
        obstacle=found.obstacle,
    )
    return cut, found.references


def _position(view: HeapView, pair: tuple[int, int]) -> tuple[bool, int, int]:
    """Put the statements in an order in which each can be run.

    Variables go last, since others may be reached by their names; of one list the references from its end, since each
    deletion moves what comes after it.
    """
    holder, held = pair
    is_root = holder in (ROOT, view.namespace)
    if is_root or not is_kind_of(view.objects[holder], list):
        return is_root, holder, 0
    names = name_references(view.objects[holder], view.objects[held])
    match = _INDEX.fullmatch(names[-1].text) if names else None
    return is_root, holder, -int(match[1]) if match else 0


def _reference(view: HeapView, holder: int, held: int) -> CutReference:
    thing = view.objects[held]
    target = " ".join(filter(None, (type_name(type(thing)), summary(thing) if view.summaries else "")))
    if holder == ROOT:
        return _of_root(view, held, target)
    described = view.describe_child(holder, thing)
    step, expression = described.path.steps[-1], described.expressions[-1]
    owner = (described.expressions[-2] or "") if len(described.expressions) > 1 else ""
    if not owner:
        above = described.path.steps[:-1]
        owner = " ".join(step.reference for step in above) or described.path.root
    places = _places(view, holder, held)
    if len(places) > 1 or expression is None:
        expressions: Sequence[str] = places
    else:
        expressions = (expression,)
    advice, is_statement = how_to_let_go(view.objects[holder], step.reference, expressions, owner)
    return CutReference(owner, step.reference, target, advice, is_statement)


def _places(view: HeapView, holder: int, held: int) -> tuple[str, ...]:
    """Return an expression for each place in which the holder has the object, the last place first; maybe none."""
    source, thing = view.objects[holder], view.objects[held]
    if holder == view.namespace:
        return tuple(key for key in keys_of(source, thing) if is_name(key))  # type: ignore[arg-type,misc]
    base = view.describe(holder).expressions[-1] if view.is_reached(holder) else None
    names: list[Reference] = name_references(source, thing)
    if not base or len(names) >= MAX_NAMES:
        return ()
    return tuple(f"{base}{name.suffix}" for name in reversed(names) if name.suffix is not None)


def _of_root(view: HeapView, held: int, target: str) -> CutReference:
    start = start_of(view, held)
    if start is None:
        return CutReference("the interpreter", "", target, "a root without a name holds it", is_statement=False)
    if start.is_variable:
        known = _places(view, view.namespace, held) if view.namespace >= 0 else ()
        names = known or (start.expression,)
        advice, is_statement = how_to_let_go({}, names[0], names, "globals()")
        return CutReference("globals()", names[0], target, advice, is_statement)
    advice = f"del {start.expression}" if is_deletable(start.expression) else f"release it: {start.words} holds it"
    return CutReference(start.words, start.expression, target, advice, advice.startswith("del "))


def is_deletable(expression: str) -> bool:
    """Return whether ``del`` takes *expression*: a call is none."""
    return bool(expression) and not expression.endswith(")")
