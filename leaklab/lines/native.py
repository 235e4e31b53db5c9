"""Name the C or C++ code that allocates what is never freed, by a few runs under memray.

memray sees every call of malloc with the Python and the native stack that led to it. What it calls leaked is what was
not freed when tracking ended, the newest values of variables included; so only what *every* tracked run left counts.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaklab.errors import require
from leaklab.lines.arrival import Line
from leaklab.lines.change import Whose
from leaklab.lines.storages import Stack

_LEAST_BYTES_PER_RUN = 256
_MAJORITY = 0.5
_PYTHON, _UNKNOWN = (".py", ".pyx", ".ipynb"), "<unknown>"
_PYTHONS_OWN = re.compile(r"(?:\./)?(?:Objects|Python|Modules|Include|Parser)/")
"""Where the interpreter's own functions come from, as its debug information has it."""
_NO_NEWS = re.compile(
    r"operator new|_{0,2}(?:malloc|calloc|realloc|posix_memalign|aligned_alloc)|std::|c10::alloc_cpu|c10::.*Allocator"
    r"|void std::|_?PyObject_|_?PyMem_|_Py|Py[A-Z]|<unknown>|\?\?"
)
"""Functions that every allocation passes through: they do not tell who wanted the memory."""


@dataclass(frozen=True, slots=True)
class NativeGrowth:
    """What a line of the user's code leaves in the native heap.

    Attributes:
        line: The innermost line of the user's code; None if no Python function of the user's was on the stack.
        bytes_per_run: Left by every tracked run, on average.
        function: The C or C++ function under which most of it was allocated, as deep as possible.
        stacks: Its bytes by call stack; a function of C or C++ has no file.
    """

    line: Line | None
    bytes_per_run: float
    function: str
    stacks: Counter[Stack] = field(default_factory=Counter)


def require_memray() -> None:
    """Raise `MissingExtraError` unless memray is installed."""
    require("memray", "--native", "memray", "'leaklab[native]' (Linux and macOS)")


class NativeTraces:
    """Tracks native allocations inside a ``with``, in which the code is run *n_runs* times.

    memray knows the frames that begin after it, and loses one of those for every function that returns between its
    start and the runs: hence a class and no generator, used in the very function that runs the code.

    Args:
        whose: Tells whose code a file is.
        n_runs: How often the code will be run inside.

    Attributes:
        problem: Why nothing could be tracked; empty if it could.
        growths: What every run left, largest first; there after the ``with``.
    """

    def __init__(self, whose: Whose, n_runs: int) -> None:
        self.problem = ""
        self.growths: tuple[NativeGrowth, ...] = ()
        self._whose = whose
        self._n_runs = n_runs
        self._folder = tempfile.TemporaryDirectory(prefix="leaklab-")
        self._file = Path(self._folder.name) / "native.bin"
        self._tracker: Any = None

    def __enter__(self) -> None:
        import memray  # noqa: PLC0415 - an extra

        self._tracker = memray.Tracker(self._file, native_traces=True)
        try:
            self._tracker.__enter__()
        except RuntimeError as error:  # the user's own tracker is active
            self.problem, self._tracker = str(error), None

    def __exit__(self, *raised: object) -> None:
        try:
            if self._tracker is not None:
                self._tracker.__exit__(*raised)
                if raised[0] is None:
                    self.growths = tuple(_growths(_leaked_records(self._file), self._n_runs, self._whose))
        finally:
            self._tracker = None
            self._folder.cleanup()


def _leaked_records(file: Path) -> list[Any]:
    import memray  # noqa: PLC0415 - an extra

    reader = memray.FileReader(file)
    try:
        return list(reader.get_leaked_allocation_records(merge_threads=True))
    finally:
        reader.close()


def _growths(records: Sequence[Any], n_runs: int, whose: Whose) -> list[NativeGrowth]:
    """Return what every run left, by line of the user's code."""
    sizes: dict[Line | None, int] = defaultdict(int)
    under: dict[Line | None, Counter[str]] = defaultdict(Counter)
    depths: dict[Line | None, dict[str, int]] = defaultdict(dict)
    stacks: dict[Line | None, Counter[Stack]] = defaultdict(Counter)
    for record in records:
        if record.n_allocations < n_runs:
            continue
        names = _names_of(record)
        if not names:  # memory of Python's own objects: counted among these
            continue
        line = _users_line(record, whose)
        sizes[line] += record.size
        stacks[line][_hybrid_stack(record, whose)] += record.size
        for depth, name in enumerate(dict.fromkeys(names)):
            under[line][name] += record.size
            depths[line][name] = max(depth, depths[line].get(name, 0))
    growths = [
        NativeGrowth(line, size / n_runs, _chief(size, under[line], depths[line]), stacks[line])
        for line, size in sizes.items()
        if size / n_runs >= _LEAST_BYTES_PER_RUN
    ]
    return sorted(growths, key=lambda growth: -growth.bytes_per_run)


def _names_of(record: Any) -> list[str]:
    """Return the functions of C and C++ extensions on a stack, innermost first; empty where only Python allocates."""
    names: list[str] = []
    for function, file, _line in record.native_stack_trace():
        if _PYTHONS_OWN.match(file):
            if names:
                break
            continue
        if not _NO_NEWS.match(function):
            names.append(_short(function))
    return names


def _hybrid_stack(record: Any, whose: Whose) -> Stack:
    """Return the calls that led to an allocation, innermost first: of C and C++ without what every allocation has."""
    stack: list[Line] = []
    for function, file, number in record.hybrid_stack_trace():
        if file.endswith(_PYTHON) or (file[:1] == "<" and file != _UNKNOWN):
            if whose(file) is None:
                break
            stack.append((file, number, function))
        elif not _PYTHONS_OWN.match(file) and not _NO_NEWS.match(function):
            stack.append(("", 0, _short(function)))
    return tuple(stack)


def _users_line(record: Any, whose: Whose) -> Line | None:
    for function, file, number in record.stack_trace():
        if whose(file):
            return file, number, function
    return None


def _chief(size: int, under: Counter[str], depths: dict[str, int]) -> str:
    """Return the innermost function under which most of *size* was allocated."""
    most = [name for name, n_bytes in under.items() if n_bytes > _MAJORITY * size]
    return min(most, key=lambda name: (depths[name], name), default="")


def _short(function: str) -> str:
    """Return the name of a C++ function without its arguments and those of its templates."""
    bare, depth = [], 0
    for letter in function.replace("operator()", "operator"):
        if letter == "(" and not depth:
            break
        depth += (letter == "<") - (letter == ">")
        if not depth and letter != ">":
            bare.append(letter)
    return "".join(bare).strip() or function
