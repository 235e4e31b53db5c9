"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from.

In a notebook, ``%load_ext leaklab``, then ``%%leakcheck`` above a cell. From Python, `leaklab.leakcheck`.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

# A name is imported where it is first used: ``import leaklab`` alone stays cheap.
_find, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in _names if name not in {"__version__", "metrics", "remote"}]

_OLD_NAMES = {
    "Moment": "HeapSnapshot",
    "compare_snapshots": "compare_cuda_snapshots",
    "load_snapshot": "load_cuda_snapshot",
    "record": "record_cuda",
    "run": "training_run",
}


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        import warnings

        from leaklab.version import renamed

        better = _OLD_NAMES[name]
        warnings.warn(renamed(f"leaklab.{name}", f"leaklab.{better}"), DeprecationWarning, stacklevel=2)
        name = better
    if name not in _names:
        msg = f"module 'leaklab' has no attribute {name!r}"
        raise AttributeError(msg)
    return _find(name)
