"""Cut the link by which the newest object of a chain keeps all that earlier runs made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from leaklab.cure.candidate import Candidate
from leaklab.cure.case import Case
from leaklab.cure.live import MISSING, attribute
from leaklab.model import Status

_ATTRIBUTE = re.compile(r"\.[^\W\d]\w*")


def cut_links(case: Case) -> Iterator[Candidate]:
    """Yield how an object that each run makes lets go of the one of the run before: ``root.parent = None``.

    The objects must be of one class, and the newest a variable or an attribute of one.
    """
    link = _link(case)
    if not link:
        return
    place = f"{case.holder}{link}"
    patch = case.patch()
    case.at_end_of_run(patch, f"{place} = None")
    words = f"Cut `{place}`, which leads to all that earlier runs made, where a run ends."
    yield from case.candidate(words, patch)


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
