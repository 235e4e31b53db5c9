"""Call something as soon as a module has been imported, without importing it for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Told = Callable[[ModuleType], object]


def after_import(name: str, tell: Told) -> Callable[[], None]:
    """Call *tell* with the module *name*: now where it is loaded, else right after its own code has run.

    Nobody who imports from it has its names by then.

    Returns:
        What ends the waiting; it does nothing once *tell* was called.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        tell(module)
        return lambda: None
    if _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)
    _waiting.wanted.setdefault(name, []).append(tell)

    def forget() -> None:
        wanted = [other for other in _waiting.wanted.pop(name, ()) if other is not tell]
        if wanted:
            _waiting.wanted[name] = wanted
        _waiting.leave_if_done()

    return forget


class _Waiting(MetaPathFinder):
    """Stands before all finders while a module is waited for, and lets them find it."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[Told]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find; the loader of a module that is waited for tells when it is done."""
        if fullname not in self.wanted:
            return None
        others = (finder for finder in tuple(sys.meta_path) if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "__dict__"):
            self._tell_after(fullname, spec.loader)
        return spec

    def _tell_after(self, name: str, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # it is the loader of this one module
            run(module)
            for tell in self.wanted.pop(name, ()):
                tell(module)
            self.leave_if_done()

        loader.exec_module = exec_module

    def leave_if_done(self) -> None:
        """Go, where nothing is waited for any more."""
        if not self.wanted and self in sys.meta_path:
            sys.meta_path.remove(self)


_waiting = _Waiting()
