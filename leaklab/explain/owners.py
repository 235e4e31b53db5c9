"""Tell whose objects the steps of a path are, and by which of their own calls they may let go."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaklab.explain.counterparts import lets_go
from leaklab.explain.ownership import is_users_kind
from leaklab.heap.paths import Described
from leaklab.runtime.objects import class_dict, is_exactly, is_kind_of, mro_of, type_name

_PLAIN = frozenset(
    {"builtins", "collections", "types", "functools", "weakref", "_io", "_weakref", "array", "_contextvars"}
)
"""Modules whose types hold what they are given: it is not they who decide what is kept."""
_CALLABLES = (types.FunctionType, staticmethod, classmethod, types.MethodDescriptorType, types.BuiltinFunctionType)
_N_NAMES = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """One object of a path.

    Attributes:
        code: Python for it; empty where there is none.
        kind: Name of its type, or its own if it is a class.
        is_plain: Whether it is a list, a dict, a function or the like, which belongs to whoever made it.
        is_library: Whether it is a library's: an instance of its class, or such a class itself.
        releases: Its methods that by their names let go of something, at most three.
    """

    code: str
    kind: str
    is_plain: bool = False
    is_library: bool = False
    releases: tuple[str, ...] = ()


def owners_of(things: Sequence[object], described: Described) -> tuple[Owner, ...]:
    """Return for the first steps of *described* whose they are; *things* are their objects, as far as they are known.

    The classes are read along their real ``__mro__``; no code of the user is run.
    """
    return tuple(
        _owner(thing, code or _local_code(described, number))
        for number, (thing, code) in enumerate(zip(things, described.expressions, strict=False))
    )


def _local_code(described: Described, number: int) -> str:
    """Return Python for a step below a local variable, as it is written in that function; empty if there is none."""
    steps = described.path.steps[: number + 1]
    local = re.match(r"local '(\w+)' of ", steps[0].reference)
    if local is None or not all(step.reference.startswith((".", "[")) for step in steps[1:]):
        return ""
    return "".join((local[1], *(step.reference for step in steps[1:])))


def _owner(thing: object, code: str) -> Owner:
    is_class = is_kind_of(thing, type)
    kind: type = thing if is_class else type(thing)  # type: ignore[assignment]  # the real type was asked
    name = type_name(kind)
    is_plain = not is_class and ("." not in name or name.partition(".")[0] in _PLAIN) and not is_users_kind(kind)
    if is_plain:
        return Owner(code, name, is_plain=True)
    return Owner(
        code, name, is_library=not is_users_kind(kind), releases=tuple(_releases(kind, is_class=is_class))[:_N_NAMES]
    )


def _releases(kind: type, *, is_class: bool) -> Iterator[str]:
    """Yield the methods that by their names let go of something, the plainest names first."""
    yield from sorted(_named_releases(kind, is_class=is_class), key=lambda name: "_" in name)


def _named_releases(kind: type, *, is_class: bool) -> Iterator[str]:
    seen: set[str] = set()
    for base in mro_of(kind)[:-1]:
        if type_name(base).partition(".")[0] in _PLAIN:
            continue
        for name, value in class_dict(base).items():
            if type(name) is not str or name in seen:
                continue
            seen.add(name)
            wanted = (staticmethod, classmethod) if is_class else _CALLABLES
            if lets_go(name) and is_exactly(value, wanted):
                yield name
