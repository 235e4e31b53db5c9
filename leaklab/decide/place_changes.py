"""Compare what variables and module attributes referred to at two moments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leaklab.model.differences import PlaceChange
from leaklab.model.moments import Place

_HOME_FIRST: Final = "notebook"
_ORDER: Final = {"born": 0, "replaced": 1, "grown": 2, "shrunk": 3, "died": 4}


def compare_places(
    before: Iterable[Place], after: Iterable[Place], *, same_process: bool, born: frozenset[int] = frozenset()
) -> tuple[PlaceChange, ...]:
    """Return what became of each name: ``born``, ``died``, ``replaced``, ``grown`` or ``shrunk``.

    A name is ``replaced`` if it refers to another object. One number or short text in the place of another is no
    change of memory and is not told.

    Args:
        before: The names at the earlier moment.
        after: The names at the later one.
        same_process: Whether addresses of the two can be compared.
        born: Addresses known to be of objects born between the moments.
    """
    old = {place.expression: place for place in before}
    new = {place.expression: place for place in after}
    rows = []
    for expression in {**old, **new}:
        was, now = old.get(expression), new.get(expression)
        change = _change(was, now, same_process=same_process, born=born)
        if change:
            known = now or was
            assert known is not None  # noqa: S101 - the name comes from one of the two
            rows.append(
                PlaceChange(
                    expression, known.home, change, _words(was), _words(now),
                    was.n_bytes if was else 0, now.n_bytes if now else 0,
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=_order))


_SCALARS: Final = frozenset({"int", "float", "bool", "complex", "str", "bytes", "NoneType"})
_BIG: Final = 1024
"""Bytes from which on even a text in the place of another text is told."""


def _change(was: Place | None, now: Place | None, *, same_process: bool, born: frozenset[int]) -> str:
    if was is None:
        return "born"
    if now is None:
        return "died"
    looks_same = (was.summary, was.n_bytes, was.length) == (now.summary, now.n_bytes, now.length)
    if was.kind != now.kind or now.address in born or (same_process and was.address != now.address):
        return "replaced" if _is_memory(was) or _is_memory(now) else ""
    if looks_same:
        return ""
    size, size_before = (now.length, was.length) if now.length != was.length else (now.n_bytes, was.n_bytes)
    if size == size_before:
        return "replaced"
    return "grown" if size > size_before else "shrunk"


def _is_memory(place: Place) -> bool:
    """Return whether a reader would want to know that another object is there: one number for another is none."""
    return place.kind not in _SCALARS or place.n_bytes >= _BIG


def _words(place: Place | None) -> str:
    if place is None:
        return ""
    separator = " " if place.summary.startswith("(") else ", "
    return separator.join(filter(None, (place.kind, place.summary)))


def _order(row: PlaceChange) -> tuple[bool, int, int, str]:
    return row.home != _HOME_FIRST, _ORDER[row.change], -max(row.bytes_before, row.bytes_after), row.expression
