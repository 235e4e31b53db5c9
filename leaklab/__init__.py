"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from.

In a notebook, ``%load_ext leaklab``, then ``%%leakcheck`` above a cell. From Python, `leaklab.leakcheck`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaklab.api import leakcheck
    from leaklab.errors import LeakFound, LeaklabError, MissingExtraError, ReportError
    from leaklab.model import Leak, Outcome, RootPath, Settings, Verdict
    from leaklab.report import LeakReport

__version__ = "0.1.0"

_HOMES = {
    "leakcheck": "leaklab.api",
    "LeakReport": "leaklab.report",
    **dict.fromkeys(("LeakFound", "LeaklabError", "MissingExtraError", "ReportError"), "leaklab.errors"),
    **dict.fromkeys(("Leak", "Outcome", "RootPath", "Settings", "Verdict"), "leaklab.model"),
}

__all__ = [
    "Leak",
    "LeakFound",
    "LeakReport",
    "LeaklabError",
    "MissingExtraError",
    "Outcome",
    "ReportError",
    "RootPath",
    "Settings",
    "Verdict",
    "leakcheck",
    "load_ipython_extension",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used: ``import leaklab`` alone stays cheap."""
    import importlib

    if name not in _HOMES:
        msg = f"module 'leaklab' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOMES[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext leaklab``."""
    from leaklab.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext leaklab``: nothing of it stays in the shell."""
    from leaklab.magics import unload

    unload(shell)
