"""The variables among which holders are looked for first, held weakly between the checks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any


class Roots:
    """Objects by the names they shall have in what is reported, or a namespace that lives as long as the program.

    Args:
        namespace: Global variables; None to look in modules and functions only.
        named: Objects that stand in its place; held weakly.

    Raises:
        TypeError: if one of *named* cannot be referred to weakly.
    """

    def __init__(self, namespace: dict[str, Any] | None, named: Mapping[str, object] | None) -> None:
        self._namespace = namespace
        self._named = {name: _weakly(name, root) for name, root in (named or {}).items()}

    def variables(self) -> dict[str, Any] | None:
        """Return the variables that are alive now."""
        if not self._named:
            return self._namespace
        alive = ((name, reference()) for name, reference in self._named.items())
        return {name: root for name, root in alive if root is not None}


def _weakly(name: str, root: object) -> weakref.ref[Any]:
    try:
        return weakref.ref(root)
    except TypeError:
        kind = type(root).__name__
        msg = f"the root {name!r} is a {kind}, which cannot be referred to weakly: give the object that has it"
        raise TypeError(msg) from None
