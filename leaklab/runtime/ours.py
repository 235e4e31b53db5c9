"""Tell leaklab's own objects, the notebook's own records and the code of libraries from what the user made."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import os
import re
import site
import sys
import sysconfig
import types
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.runtime.addresses import Addresses, KindTable, kinds_of
from leaklab.runtime.objects import has_base, loaded_type, module_dict
from leaklab.runtime.referents import get_referents, is_own_dict
from leaklab.version import PACKAGE_FOLDER

FRONT_ENDS = (
    "IPython.", "ipykernel.", "traitlets.", "zmq.", "tornado.", "jupyter_client.", "comm.", "prompt_toolkit.",
    "matplotlib_inline.", "debugpy.", "_pydevd_bundle.", "pydevd",
)  # fmt: skip
"""How the names of types and modules begin that belong to what runs a notebook. Not widgets: those are the user's."""
OUTPUT_NAMES = r"Out|_oh|_{1,3}|_\d+"
"""The variables, as a pattern, under which IPython keeps the values of cells."""
HISTORY_HOMES = ("In", "Out")
"""The variables by which a reader knows IPython's history; all others refer to the same things."""
HISTORY_CONTAINERS = (*HISTORY_HOMES, "_ih", "_oh", "_dh")
"""The variables that are a list or dict of the whole history; the values in it are the user's."""
SHELL_NAMES = ("get_ipython", "exit", "quit")
"""Variables that IPython gives to every notebook. Not ``open``: many users have one of their own."""
IMPORT_NAMES = ("__builtins__", "__cached__", "__loader__", "__spec__")
"""Variables of a module by which Python has imported it; a loader of a test runner knows the whole run."""
_HISTORY_NAME = re.compile(rf"{OUTPUT_NAMES}|In|_ih|_i{{1,3}}|_i\d+|_dh")


def is_history_name(name: str) -> bool:
    """Return whether IPython keeps its history, or one thing of it, in the variable *name*."""
    return _HISTORY_NAME.fullmatch(name) is not None


_is_tracked = gc.is_tracked


def soon_untracked(objects: list[object], table: KindTable) -> npt.NDArray[np.int64]:
    """Return the positions of the tuples and dicts that contain nothing the collector follows, or only such tuples.

    CPython stops to follow a tuple (up to 3.13 also a dict) as soon as a collection finds nothing in it that could be
    part of a cycle; a tuple of such tuples goes one collection later. Counted as objects, they would seem to die.
    """
    tuples = np.flatnonzero(table.mask(lambda of: of is tuple)).tolist()
    dicts = np.flatnonzero(table.mask(lambda of: of is dict)).tolist()
    found: list[int] = []
    ids: set[int] = set()
    nested: list[int] = []
    for row in chain(tuples, dicts):
        contents = _contents(objects[row])
        if not any(map(_is_tracked, contents)):
            found.append(row)
            ids.add(id(objects[row]))
        # Few have a tuple inside: the others are followed for good.
        elif id(tuple) in map(id, map(type, _contents(objects[row]))):
            nested.append(row)
    n_before = -1
    while len(found) > n_before:
        n_before, left = len(found), nested
        nested = []
        for row in left:
            if any(id(item) not in ids and _is_tracked(item) for item in _contents(objects[row])):
                nested.append(row)
            else:
                found.append(row)
                ids.add(id(objects[row]))
    return np.array(found, np.int64)


def _contents(thing: Any) -> Iterable[object]:
    """Return what a tuple or a dict contains; exact types only, whose methods are C code."""
    return get_referents(thing) if type(thing) is tuple else chain(thing.values(), thing)


_OWN = "leaklab."
_PLAIN = frozenset(map(id, (dict, list, tuple, set, frozenset, collections.deque, collections.defaultdict)))


def is_machinery(name: str) -> bool:
    """Return whether a type or module called *name* belongs to what runs a notebook, or to leaklab."""
    return name.startswith(FRONT_ENDS) or f"{name}.".startswith((_OWN, *FRONT_ENDS))


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
    mask = own | table.mask_by_name(lambda name: name.startswith(FRONT_ENDS))
    mask |= table.mask(lambda of: of is types.FrameType)
    if loaded_type("torch", "Tensor") is not None:
        from leaklab.runtime.autograd_graph import is_wrapper_type  # noqa: PLC0415 - needs torch, which the user has imported

        mask |= table.mask(is_wrapper_type)
    ours = [objects[row] for row in np.flatnonzero(own).tolist()]
    borders = {id(namespace), id(objects), *map(id, _module_dicts())}
    plain = [thing for thing in (*records, *_own_locals()) if id(thing) not in borders]
    parts = {*_plain_parts([*ours, *plain], borders), *map(id, plain)} - borders
    if parts:
        mask |= np.isin(addresses, np.fromiter(parts, np.int64, len(parts)))
    mask[soon_untracked(objects, table)] = True
    return mask


def _plain_parts(owners: list[object], borders: Collection[int] = ()) -> dict[int, object]:
    """Return by address the built-in containers that *owners* lead to through such containers, but not *borders*."""
    seen: dict[int, object] = {}
    frontier = owners
    while frontier:
        fresh = {id(thing): thing for thing in get_referents(*frontier) if id(type(thing)) in _PLAIN}
        frontier = [thing for address, thing in fresh.items() if address not in seen and address not in borders]
        seen.update(fresh)
    return seen


def parts_of_records(records: Iterable[object]) -> int:
    """Return how many of the built-in containers that *records* consist of are known to the collector; no tuples."""
    plain = list(records)
    parts = {id(thing): thing for thing in plain} | _plain_parts(plain)
    return sum(gc.is_tracked(thing) and type(thing) is not tuple for thing in parts.values())


def _own_locals() -> list[object]:
    """Return the built-in containers that leaklab's running functions refer to."""
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to one's own callers
    found: list[object] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE_FOLDER + os.sep):
            snapshot: Any = frame.f_locals  # up to Python 3.12 a dict that stays with the frame
            found += [value for value in (snapshot, *snapshot.values()) if id(type(value)) in _PLAIN]
        frame = frame.f_back
    return found


def _module_dicts() -> Iterator[dict[str, Any] | None]:
    for module in list(sys.modules.values()):
        if has_base(type(module), types.ModuleType):
            yield module_dict(module)


_EXAMPLES = "leaklab.notebooks"
_module_of = type.__dict__["__module__"].__get__


def is_own_kind(kind: type) -> bool:
    """Return whether *kind* is a class of leaklab's, but for those that leak on purpose, to be tried on."""
    try:
        name = _module_of(kind)
    except (AttributeError, TypeError):
        return False
    return type(name) is str and name.startswith(_OWN) and name != _EXAMPLES


def own_addresses(objects: list[object], table: KindTable | None = None) -> Addresses:
    """Return the addresses of those of *objects*, of types *table*, that are leaklab's, and of their dicts."""
    own = (KindTable(kinds_of(objects)) if table is None else table).mask(is_own_kind)
    found = [objects[place] for place in np.flatnonzero(own).tolist()]
    dicts = [child for thing in found for child in get_referents(thing) if is_own_dict(thing, child)]
    return np.array([*map(id, found), *map(id, dicts)], np.int64)


def own_data_addresses(objects: list[object], table: KindTable, namespace: int = 0) -> Addresses:
    """Return the addresses of the arrays that those of *objects*, of types *table*, refer to that are leaklab's.

    Leaklab's objects refer to the user's variables, too: what the dict of a module has is not leaklab's for that, nor
    what the dict at the address *namespace* has.
    """
    own = [objects[place] for place in np.flatnonzero(table.mask(is_own_kind)).tolist()]
    scopes = {namespace, *(id(scope) for scope in _module_dicts())}
    held = get_referents(*own)
    plain = [thing for thing in held if id(type(thing)) in _PLAIN and id(thing) not in scopes]
    held += get_referents(*plain) if plain else []
    return np.array([id(thing) for thing in held if type(thing) is np.ndarray], np.int64)


_CALLERS = frozenset({
    "ipywidgets", "nbclient", "asyncio", "decorator", "nest_asyncio", "_pytest", "pytest", "pluggy", "runpy",
    "unittest", "bdb", "pdb", *(name.removesuffix(".") for name in FRONT_ENDS),
})  # fmt: skip
"""Packages whose code calls the user's."""
_MARKS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Origin(enum.Enum):
    """Whose code something is."""

    USER = "user"
    LIBRARY = "library"
    FRONT_END = "front end"  # what runs the user's code: IPython, its kernel and event loop, a test runner, a debugger
    LEAKLAB = "leaklab"


def _library_folders() -> tuple[str, ...]:
    """Return the folders that Python and its packages are installed in, longest first."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    folders.update(site.getsitepackages())
    folders.update({os.path.dirname(os.path.realpath(os.__file__)), os.path.dirname(os.__file__)})  # noqa: PTH120
    return tuple(sorted((folder.rstrip(os.sep) + os.sep for folder in folders), key=len, reverse=True))


_FOLDERS = _library_folders()


_users_files: set[str] = set()


@contextmanager
def as_the_users(filename: str) -> Iterator[None]:
    """Count *filename* as the user's inside, wherever it lies: some packages are installed with their tests."""
    before = set(_users_files)
    _users_files.add(filename)
    try:
        yield
    finally:
        _users_files.intersection_update(before)


def origin_of(filename: str) -> Origin:
    """Return whose code *filename* is; a cell, a prompt or a string executed is the user's."""
    if filename in _users_files:
        return Origin.USER
    if filename.startswith(PACKAGE_FOLDER + os.sep):
        return Origin.LEAKLAB
    if filename.startswith("<frozen ") or filename.endswith(" internals>"):
        return Origin.FRONT_END if filename == "<frozen runpy>" else Origin.LIBRARY
    part = part_of_library(filename)
    if part is None:
        return Origin.USER
    return Origin.FRONT_END if part.partition(os.sep)[0].removesuffix(".py") in _CALLERS else Origin.LIBRARY


def part_of_library(filename: str) -> str | None:
    """Return *filename* from its package on, None if it lies in no folder of packages."""
    for mark in _MARKS:
        if mark in filename:
            return filename.rpartition(mark)[2]
    for folder in _FOLDERS:
        if filename.startswith(folder):
            return filename[len(folder) :]
    for folder in sys.path:
        if folder and filename.startswith(start := folder.rstrip(os.sep) + os.sep):
            part = filename[len(start) :]
            if f"\n{part.partition(os.sep)[0]}\n" in _installed_in(folder):
                return part
    return None


@functools.cache
def _installed_in(folder: str) -> str:
    """Return the packages and modules that ``pip install --target`` has put into *folder*, by the records of that.

    A name stands on a line of its own. A run may be the first to ask: text is nothing that the collector counts.
    """
    names: set[str] = set()
    with suppress(OSError):
        for path in Path(folder).iterdir():
            if path.suffix == ".dist-info":
                with suppress(OSError, UnicodeDecodeError):
                    rows = (path / "RECORD").read_text("utf-8").splitlines()
                    names.update(row.partition(",")[0].partition("/")[0] for row in rows)
    return "\n".join(["", *names, ""])
