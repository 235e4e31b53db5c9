"""Cut the link by which the newest object of a chain keeps all that earlier runs made."""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Iterator

from leaklab.cure.case import Case
from leaklab.cure.live import MISSING, attribute
from leaklab.cure.proposal import Proposal
from leaklab.heap.source_lines import Origin, origin_of
from leaklab.model import Status
from leaklab.runtime.objects import class_attribute, is_kind_of, module_dict

_ATTRIBUTE = re.compile(r"\.[^\W\d]\w*")


def cut_links(case: Case) -> Iterator[Proposal]:
    """Yield how an object that each run makes lets go of the one of the run before: ``root.parent = None``.

    The objects must be of one class, and the newest a variable or an attribute of one. What is called needs the one
    below that it wraps, and what a library has under a name of its own is used there: neither is cut.
    """
    link = _link(case)
    if not link or class_attribute(type(case.held), "__call__") is not None or _is_of_library(case):
        return
    place = f"{case.holder}{link}"
    patch = case.patch()
    case.at_end_of_run(patch, f"{place} = None")
    words = f"Cut `{place}`, which leads to all that earlier runs made, where a run ends."
    yield from case.proposal(words, patch)


def _is_of_library(case: Case) -> bool:
    owner = case.program.namespace[case.holder.partition(".")[0]]
    if not is_kind_of(owner, types.ModuleType):
        return False
    filename = (module_dict(owner) or {}).get("__file__")
    return type(filename) is not str or origin_of(filename) is not Origin.USER


def _link(case: Case) -> str:
    """Return the attribute that leads to the object before, ``.parent``; empty if there is none."""
    if not case.is_variable or case.holder.endswith(("]", ")")):
        return ""
    steps = case.leak.path.steps
    for owner, held in itertools.pairwise(steps):
        is_first = held.status is Status.LEAKED and owner.status is not Status.LEAKED
        if is_first and owner.kind == held.kind and _ATTRIBUTE.fullmatch(held.reference):
            before = attribute(case.held, held.reference[1:])
            return held.reference if before is not MISSING and type(before) is type(case.held) else ""
    return ""
