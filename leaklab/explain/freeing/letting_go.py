"""Say how a reference is dropped: as a statement where Python has one, else in words. A table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from leaklab.objects import is_kind_of

_BY_REFERENCE: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\.grad_fn", "store a tensor without its graph instead: {owner}.detach()"),
        (r"\._base", "make a copy of the part that is needed: {owner}.clone()"),
        (r"\.base", "make a copy of the part that is needed: {owner}.copy()"),
        (
            r"\.next_functions|\._?saved|\.variable",
            "let go of the autograd graph: the tensor that carries it, or backward()",
        ),
        (r"local ", "let the function return, or delete this variable in it"),
        (r"closure variable", "let go of {owner}, whose closure it is"),
        (r"default of", "let go of {owner}, whose default it is"),
        (r"cached result", "{owner}.cache_clear()"),
        (r"element", "{owner}.discard(...)"),
        (r"key ", "delete the entry of {owner} with this key"),
        (r"queued item", "take it out of the queue: {owner}.get()"),
    )
)
_SET_TO_NONE: Final = (".grad", ".__traceback__", ".__context__", ".__cause__")


def how_to_let_go(holder: object, reference: str, expressions: Sequence[str], owner: str) -> tuple[str, bool]:
    """Return how *holder* drops a reference, and whether that is a Python statement.

    Args:
        holder: The object that refers.
        reference: How it refers, as a path shows it.
        expressions: For each place that has to be emptied what evaluates to the object there; empty if unknown.
        owner: Expression for the holder, or words for it.
    """
    if reference in _SET_TO_NONE and expressions:
        return f"{expressions[0]} = None", True
    for pattern, words in _BY_REFERENCE:
        if pattern.match(reference):
            return words.format(owner=owner or "its owner"), False
    if is_kind_of(holder, tuple) and expressions:
        return f"put another tuple, without this item, in the place of {owner}", False
    if expressions:
        return f"del {', '.join(expressions)}", True
    return f"drop the reference {reference!r} of {owner or 'its owner'}", False
