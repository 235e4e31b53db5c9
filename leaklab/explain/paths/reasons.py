"""Say of each step of a path whether its object has a reason to be alive, and which."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import replace

from leaklab.explain.heap.starts import Start
from leaklab.model import Status, Step
from leaklab.objects import is_kind_of, loaded_type

ASKED = "the object you asked about"
_GRAPH = "part of an autograd graph"


def with_reasons(
    steps: Sequence[Step], things: Sequence[object], in_graph: Sequence[bool], start: Start | None
) -> Iterator[Step]:
    """Yield *steps* with the status of each, and with the reason for it as its note.

    What a variable names, modules, classes and the parts of a model are there for their own sake, as long as everything
    before them is. Of anything else only its owner knows whether it is still wanted: unknown. The last step is the
    object asked about, whose place is in question.

    Args:
        steps: As they were described.
        things: The object of each step.
        in_graph: For each step whether it belongs to an autograd graph.
        start: Where the path begins; None where that is unknown.
    """
    is_expected = True
    for position, (step, thing) in enumerate(zip(steps, things, strict=True)):
        if position == len(steps) - 1:
            yield replace(step, status=Status.UNKNOWN, note=ASKED)
            return
        reason = (_of_start(start) if position == 0 else _of_kind(thing)) if is_expected else ""
        is_expected = bool(reason)
        status = Status.EXPECTED if is_expected else Status.UNKNOWN
        yield replace(step, status=status, note=reason or (_GRAPH if in_graph[position] else ""))


def _of_start(start: Start | None) -> str:
    if start is None:
        return ""
    if start.is_history:
        return "the notebook's own memory of results"
    if start.is_variable:
        return "a variable of yours"
    if start.words.startswith("module "):
        return "a variable of a module"
    if start.words.startswith(("thread ", "running function ")):
        return "a variable of a function that is running"
    return start.words


def _of_kind(thing: object) -> str:
    if is_kind_of(thing, types.ModuleType):
        return "a module lives as long as the program"
    if is_kind_of(thing, type):
        return "a class lives as long as its module"
    module = loaded_type("torch.nn", "Module")
    if module is not None and is_kind_of(thing, module):
        return "a part of a model that is held on purpose"
    return ""
