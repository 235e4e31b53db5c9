"""Change every text of a record, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

Record = TypeVar("Record")
TEXT_LIMIT = 4_000
"""Characters: no sentence, advice or name that leaklab writes is longer, a string of the user's may be."""
_N_TAIL = 800


def with_texts(record: Record, change: Callable[[str], str]) -> Record:
    """Return *record*, a frozen record or a tuple of them, with *change* applied to every string in it."""
    return cast("Record", _changed(record, change))


def clipped(record: Record) -> Record:
    """Return *record* with the middle left out of every string of more than `TEXT_LIMIT` characters.

    A name of a megabyte would else stand in a page ten times.
    """
    return with_texts(record, _clip)


def _clip(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[: TEXT_LIMIT - _N_TAIL - 3]}...{text[len(text) - _N_TAIL :]}"


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if type(value) is str:  # members of enums are strings too, and stay
        return change(value)
    if type(value) is tuple:
        return tuple(_changed(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _changed(getattr(value, field.name), change) for field in fields(value)})
    return value
