"""Tell leaklab's own objects and the notebook's own records from what the user made."""

from __future__ import annotations

import collections
import gc
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses
from leaklab.collect.forgettable import forgettable
from leaklab.collect.moment_kinds import KindTable
from leaklab.objects import has_base

_OWN = "leaklab."
_FOLDER = str(Path(__file__).parent.parent)
_module_dict: Callable[[object], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
_MACHINERY = (
    "IPython.", "ipykernel.", "traitlets.", "zmq.", "tornado.", "jupyter_client.", "comm.", "prompt_toolkit.",
    "matplotlib_inline.", "debugpy.", "_pydevd_bundle.", "pydevd",
)  # fmt: skip
_PLAIN = frozenset(map(id, (dict, list, tuple, set, frozenset, collections.deque, collections.defaultdict)))


def is_machinery(name: str) -> bool:
    """Return whether a type or module called *name* belongs to what runs a notebook, or to leaklab."""
    return name.startswith(_MACHINERY) or f"{name}.".startswith((_OWN, *_MACHINERY))


def left_out(
    objects: list[object],
    addresses: Addresses,
    table: KindTable,
    records: Iterable[object],
    namespace: dict[str, Any] | None,
) -> npt.NDArray[np.bool_]:
    """Return which of *objects* are no doing of the user's.

    These are the instances of leaklab's classes, with the dicts, lists and tuples that only serve them; the instances
    of IPython's and the kernel's classes; frames, which only Python 3.10 lists while they run; *records*; and the
    Python objects of autograd nodes of C++, which a node of any age gets when somebody, leaklab too, looks at it.

    Args:
        objects: The heap.
        addresses: Of the objects, shape ``(n,)``.
        table: Their types.
        records: Containers in which a notebook keeps its texts, such as the history of its input. What they contain is
            left out with them, as far as it is built-in containers.
        namespace: The user's variables: what leaklab reaches through them is not its own.
    """
    own = table.mask_by_name(lambda name: name.startswith(_OWN))
    mask = own | table.mask_by_name(lambda name: name.startswith(_MACHINERY))
    mask |= table.mask(lambda of: of is types.FrameType)
    if "torch" in sys.modules:
        from leaklab.graph_walk import is_wrapper_type  # noqa: PLC0415 - needs torch, which the user has imported

        mask |= table.mask(is_wrapper_type)
    ours = [objects[row] for row in np.flatnonzero(own).tolist()]
    borders = {id(namespace), id(objects), *map(id, _module_dicts())}
    plain = [thing for thing in (*records, *_own_locals()) if id(thing) not in borders]
    parts = (_plain_parts([*ours, *plain], borders) | set(map(id, plain))) - borders
    if parts:
        mask |= np.isin(addresses, np.fromiter(parts, np.int64, len(parts)))
    mask[forgettable(objects, table)] = True
    return mask


def _plain_parts(owners: list[object], borders: set[int]) -> set[int]:
    """Return the addresses of the built-in containers that *owners* lead to through nothing but such containers."""
    seen = set(borders)
    frontier = owners
    while frontier:
        fresh = {id(thing): thing for thing in gc.get_referents(*frontier) if id(type(thing)) in _PLAIN}
        frontier = [thing for address, thing in fresh.items() if address not in seen]
        seen.update(fresh)
    return seen


def parts_of_records(records: Iterable[object]) -> int:
    """Return how many of the built-in containers that *records* consist of are known to the collector; no tuples."""
    plain = list(records)
    seen: dict[int, object] = {id(thing): thing for thing in plain}
    frontier = plain
    while frontier:
        fresh = {id(thing): thing for thing in gc.get_referents(*frontier) if id(type(thing)) in _PLAIN}
        frontier = [thing for address, thing in fresh.items() if address not in seen]
        seen.update(fresh)
    return sum(gc.is_tracked(thing) and type(thing) is not tuple for thing in seen.values())


def _own_locals() -> list[object]:
    """Return the built-in containers that leaklab's running functions refer to."""
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to one's own callers
    found: list[object] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(_FOLDER):
            snapshot: Any = frame.f_locals  # up to Python 3.12 a dict that stays with the frame
            found += [value for value in (snapshot, *snapshot.values()) if id(type(value)) in _PLAIN]
        frame = frame.f_back
    return found


def _module_dicts() -> Iterator[dict[str, Any]]:
    for module in list(sys.modules.values()):
        if has_base(type(module), types.ModuleType):
            yield _module_dict(module)
