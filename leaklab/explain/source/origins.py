"""Tell whose code a file is: the user's, a library's, a front end's, or leaklab's own."""

from __future__ import annotations

import enum
import os
import site
import sysconfig

OWN_FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), *(os.pardir,) * 2))  # noqa: PTH100, PTH118, PTH120 - strings are compared


class Origin(enum.Enum):
    """Whose code something is."""

    USER = "user"
    LIBRARY = "library"
    FRONT_END = "front end"  # what runs the user's code: IPython, its kernel and event loop, a test runner, a debugger
    LEAKLAB = "leaklab"


_FRONT_ENDS = frozenset({
    "IPython", "ipykernel", "ipywidgets", "comm", "jupyter_client", "nbclient", "traitlets", "zmq", "tornado",
    "asyncio", "decorator", "nest_asyncio", "_pytest", "pytest", "pluggy", "runpy", "unittest", "debugpy", "bdb", "pdb",
})  # fmt: skip
_MARKS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _library_folders() -> tuple[str, ...]:
    """Return the folders that Python and its packages are installed in, longest first."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    folders.update(site.getsitepackages())
    folders.update({os.path.dirname(os.path.realpath(os.__file__)), os.path.dirname(os.__file__)})  # noqa: PTH120
    return tuple(sorted((folder.rstrip(os.sep) + os.sep for folder in folders), key=len, reverse=True))


_FOLDERS = _library_folders()


def origin_of(filename: str) -> Origin:
    """Return whose code *filename* is; a cell, a prompt or a string executed is the user's."""
    if filename.startswith(OWN_FOLDER + os.sep):
        return Origin.LEAKLAB
    if filename.startswith("<frozen ") or filename.endswith(" internals>"):
        return Origin.FRONT_END if filename == "<frozen runpy>" else Origin.LIBRARY
    part = _part_of_library(filename)
    if part is None:
        return Origin.USER
    return Origin.FRONT_END if part.partition(os.sep)[0].removesuffix(".py") in _FRONT_ENDS else Origin.LIBRARY


def _part_of_library(filename: str) -> str | None:
    """Return *filename* from its package on, None if it lies in no folder of packages."""
    for mark in _MARKS:
        if mark in filename:
            return filename.rpartition(mark)[2]
    for folder in _FOLDERS:
        if filename.startswith(folder):
            return filename[len(folder) :]
    return None
