"""List the functions that are running, in all threads, and read their local variables without changing them."""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaklab.explain.source.origins import Origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SOLE_REFERENCES = 3  # to a snapshot of locals: the frame's, ours, and the argument of getrefcount
_SNAPSHOTS = sys.version_info < (3, 13)  # from 3.13 on f_locals is a view, and reading it leaves nothing behind


@dataclass(frozen=True, slots=True, eq=False)
class RunningFrame:
    """A frame that is being executed.

    Attributes:
        frame: The frame itself. The collector does not list it while it runs.
        function: Qualified name of its function.
        thread: Name of its thread, empty for the main thread.
        origin: Whose code it is.
    """

    frame: FrameType
    function: str
    thread: str
    origin: Origin


def running_frames() -> list[RunningFrame]:
    """Return the running functions of all threads, main thread first and innermost first.

    Left out are the bodies of modules and cells, whose variables are no secret to the collector, and leaklab's own
    functions with the library functions that they called. A function of the user's that called leaklab is listed.
    """
    main = threading.main_thread().ident
    by_thread = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001
    try:
        return [
            running
            for ident, frame in by_thread
            for running in _of_thread(frame, "" if ident == main else _thread_name(ident))
        ]
    finally:
        # This function's own frame is in the list: left there, the two and all variables of our callers, which are the
        # user's objects, would wait for the collector.
        by_thread.clear()


def places_in_code() -> dict[str, tuple[int, ...]]:
    """Return where each other thread that runs code of the user's is, by its name, as numbers.

    These are the frame, the position in its code, and which values the variables of the user's innermost function have:
    threads hand over at the same few positions, a loop's at its end. A thread whose numbers are others when it is asked
    again has run meanwhile.
    """
    places: dict[str, tuple[int, ...]] = {}
    threads = sys._current_frames()  # noqa: SLF001
    del threads[threading.get_ident()]  # a variable that is this function's own frame would be a cycle
    for ident, innermost in threads.items():
        frame: FrameType | None = innermost
        while frame is not None and origin_of(frame.f_code.co_filename) is not Origin.USER:
            frame = frame.f_back
        if frame is not None and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            values = (id(value) for _name, value in local_variables(frame))
            places[_thread_name(ident)] = id(innermost), innermost.f_lasti, *values
    return places


def local_variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Return names and values of the local variables of a running function.

    Up to Python 3.12 reading them leaves a dict on the frame that would keep variables alive which the function deletes
    later. It is emptied again, of what Python itself would refresh, unless somebody else uses it.
    """
    snapshot = frame.f_locals
    # A list first: another thread may run the function on, and call locals() in it, while the loop runs.
    variables = [(name, value) for name, value in list(snapshot.items()) if type(name) is str]
    code = frame.f_code
    if (
        _SNAPSHOTS
        and type(snapshot) is dict
        and code.co_flags & inspect.CO_OPTIMIZED
        and frame.f_trace is None  # a debugger writes the dict back into the variables
        and sys.gettrace() is None
        and sys.getrefcount(snapshot) == _SOLE_REFERENCES
    ):
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            snapshot.pop(name, None)
    return variables


def _of_thread(innermost: FrameType, thread: str) -> Iterator[RunningFrame]:
    frames: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    kept: list[RunningFrame] = []
    called_by_leaklab = False
    for outer in reversed(frames):
        origin = origin_of(outer.f_code.co_filename)
        called_by_leaklab = origin is Origin.LEAKLAB or (called_by_leaklab and origin is Origin.LIBRARY)
        if outer.f_code.co_flags & inspect.CO_OPTIMIZED and not called_by_leaklab:
            kept.append(RunningFrame(outer, _function_name(outer), thread, origin))
    return reversed(kept)


def _function_name(frame: FrameType) -> str:
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # co_qualname came with 3.11
    return name.rpartition("<locals>.")[2]


def _thread_name(ident: int) -> str:
    """Return a thread's name without its class having a say; a thread that Python did not start has a number only."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    try:
        name = object.__getattribute__(thread, "_name")
    except AttributeError:
        return f"thread {ident}"
    return name if type(name) is str else f"thread {ident}"
