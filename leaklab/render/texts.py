"""Change every text of a record, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from leaklab.render.wording import well_formed

Record = TypeVar("Record")
TEXT_LIMIT = 4_000
"""Characters: no sentence, advice or name that leaklab writes is longer, a string of the user's may be."""
SHOWN_LIMIT = 800
"""The same for one line of what is shown; a text of several lines, an advice, may be `N_LINES` times as long."""
N_LINES = 3
CELL_LIMIT = 20_000
"""Of one cell of a table: the path through a long graph takes some thousands."""


def with_texts(record: Record, change: Callable[[str], str]) -> Record:
    """Return *record*, a frozen record or a tuple of them, with *change* applied to every string in it."""
    return cast("Record", _changed(record, change))


def clipped(record: Record, limit: int = TEXT_LIMIT) -> Record:
    """Return *record* with the middle left out of every string of more than *limit* characters.

    A name of a megabyte would else stand in a page ten times, and each of its characters would be looked at.
    """
    return with_texts(record, partial(_clip, limit=limit))


def cell_text(cell: object) -> object:
    """Return *cell*, where it is a text one that a table can store: well-formed, of `CELL_LIMIT` characters at most."""
    return well_formed(_clip(cell, CELL_LIMIT)) if isinstance(cell, str) else cell


def _clip(text: str, limit: int) -> str:
    if "\n" in text[:limit]:
        limit = max(limit, min(N_LINES * limit, TEXT_LIMIT))
    if len(text) <= limit:
        return text
    n_tail = limit // 5
    return f"{text[: limit - n_tail - 3]}...{text[len(text) - n_tail :]}"


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if type(value) is str:  # members of enums are strings too, and stay
        return change(value)
    if type(value) is tuple:
        items = tuple(_changed(item, change) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value)}
        new = {name: _changed(item, change) for name, item in old.items()}
        return replace(value, **new) if any(new[name] is not item for name, item in old.items()) else value
    return value
