"""Describe a path of live objects as a record: references named, needless steps folded, expressions that evaluate."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaklab.explain.paths.fingerprints import fingerprint, stable_text
from leaklab.explain.paths.folding import Hop, fold
from leaklab.explain.paths.roles import Role, roles_of
from leaklab.explain.references import Reference
from leaklab.explain.references.containers import keys_of
from leaklab.explain.references.functions import function_words
from leaklab.explain.references.record import is_name
from leaklab.model import RootPath, Status, Step
from leaklab.objects import is_kind_of, summary, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Described", "describe_path", "fingerprint"]

_NAMESPACE_SUFFIX = ".__dict__"


@dataclass(frozen=True, slots=True)
class Described:
    """A path as a record, with what cannot be read off the record.

    Attributes:
        path: Root and steps.
        expressions: For each step, Python that evaluates to its object; None from the first reference on that
            Python cannot write.
        stable: For each step, its reference as a fingerprint may contain it.
        positions: For each step, which of the objects given it is.
        roles: For each step, the parts that its object plays in keeping others alive.
    """

    path: RootPath
    expressions: tuple[str | None, ...]
    stable: tuple[str, ...]
    positions: tuple[int, ...]
    roles: tuple[frozenset[Role], ...] = ()


def describe_path(
    objects: Sequence[object],
    root: str,
    expression: str | None,
    statuses: Sequence[Status],
    notes: Sequence[str] = (),
    *,
    summaries: bool = True,
) -> Described:
    """Name the references along *objects*.

    Args:
        objects: Root first; each refers to the next.
        root: What the path starts from, in words: ``notebook variable``.
        expression: Python for ``objects[0]``: ``""`` if it is the dict in which expressions are evaluated,
            ``ctypes`` for a module, ``ctypes.__dict__`` for its dict; None if there is none. A namespace, a module
            and a frame are no steps of the path, its first step is the variable in them; anything else is a step.
        statuses: One for each object.
        notes: One for each object, or none at all. Folded objects lose theirs unless the step has none.
        summaries: Whether steps may tell shapes and lengths.
    """
    hops = fold(objects)
    start = Hop(_root_reference(objects[0], expression), 0)
    if hops and _is_namespace(objects[0], expression):
        first = hops[0]
        start = Hop(_first_reference(objects[0], objects[first.end], expression, first.reference), first.end)
        hops = hops[1:]
    steps: list[Step] = []
    expressions: list[str | None] = []
    previous, current = -1, "" if start.reference.suffix else None
    for reference, end in [start, *hops]:
        steps.append(
            Step(
                reference.text,
                type_name(type(objects[end])),
                summary_of(objects[end]) if summaries else "",
                _merged_status(statuses[previous + 1 : end + 1]),
                next(filter(None, reversed(notes[previous + 1 : end + 1])), ""),
            )
        )
        current = _joined(current, reference.suffix)
        expressions.append(current)
        previous = end
    every = [start, *hops]
    return Described(
        RootPath(root, tuple(steps)),
        tuple(expressions),
        tuple(hop.reference.stable for hop in every),
        tuple(hop.end for hop in every),
        roles_of([objects[hop.end] for hop in every], [hop.reference for hop in every]),
    )


def summary_of(thing: object) -> str:
    """Return a few words on *thing*: of what is bound or partial, which function it calls."""
    if is_kind_of(thing, functools.partial) or type(thing) is types.MethodType:
        return f"of {function_words(thing)}"
    return summary(thing)


def _joined(expression: str | None, suffix: str | None) -> str | None:
    return None if expression is None or suffix is None else expression + suffix


def _merged_status(statuses: Sequence[Status]) -> Status:
    """Return the status of a step from those of the objects folded into it, its own last.

    A folded object holds nothing but this step, so what is known of it stands for the step if nothing else does.
    """
    own = statuses[-1]
    if own is Status.UNKNOWN and Status.LEAKED in statuses:
        return Status.LEAKED
    return own


def _is_namespace(thing: object, expression: str | None) -> bool:
    if type(thing) is types.ModuleType or type(thing) is types.FrameType:
        return True
    is_dict_of_names = expression is not None and (not expression or expression.endswith(_NAMESPACE_SUFFIX))
    return type(thing) is dict and is_dict_of_names


def _root_reference(thing: object, expression: str | None) -> Reference:
    text = expression or ""
    return Reference(text, expression or None, text or type_name(type(thing)), "other")


def _first_reference(namespace: Any, child: object, expression: str | None, reference: Reference) -> Reference:
    """Return the reference of the first step: the expression for a variable in *namespace*."""
    if type(namespace) is types.FrameType or expression is None:
        suffix = _joined(expression, reference.suffix)
        return Reference(reference.text, suffix, reference.stable, reference.kind)
    keys = keys_of(namespace, child) if type(namespace) is dict else []
    if not keys or not is_name(keys[0]):
        full = _joined(expression or None, reference.suffix)
        return Reference(full or reference.text, full, expression + reference.stable, reference.kind)
    prefix = expression.removesuffix(_NAMESPACE_SUFFIX)
    name = f"{prefix}.{keys[0]}" if prefix else str(keys[0])
    return Reference(name, name, stable_text(name), "attribute")
