"""The functions that run, in all threads, with their local variables: what the collector does not list."""

from __future__ import annotations

import inspect
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from leaklab.runtime.ours import Origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

_SOLE_REFERENCES = 3  # to a snapshot of locals: the frame's, ours, and the argument of getrefcount
_SNAPSHOTS = sys.version_info < (3, 13)  # from 3.13 on f_locals is a view, and reading it leaves nothing behind


@dataclass(frozen=True, slots=True, eq=False)
class RunningFrame:
    """A frame that is being executed.

    Attributes:
        frame: The frame itself. The collector does not list it while it runs.
        function: Qualified name of its function.
        thread: Name of its thread, empty for the main thread and the one that asks.
        origin: Whose code it is.
    """

    frame: FrameType
    function: str
    thread: str
    origin: Origin


def is_of_function(frame: FrameType) -> bool:
    """Return whether *frame* runs a function, not the body of a module, a cell or a class."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def running_frames(*, bodies: bool = False, ended: bool = True) -> list[RunningFrame]:
    """Return the running functions of all threads, that of the caller and the main thread first, innermost first.

    Left out are leaklab's own functions with the library functions that they called. A function of the user's that
    called leaklab is listed.

    Args:
        bodies: Whether those of modules and cells are listed as well, whose variables are no secret to the collector.
        ended: Whether the functions that an error has ended are listed where they count as running.
    """
    # A worker of an engine checks in a thread of its own: its functions are no more a thread's than those of a script.
    own = (threading.get_ident(), threading.main_thread().ident)
    by_thread = sorted(sys._current_frames().items(), key=lambda item: item[0] not in own)  # noqa: SLF001
    try:
        return [
            running
            for ident, frame in by_thread
            for running in _of_thread(frame, "" if ident in own else _thread_name(ident), bodies=bodies)
        ] + [
            RunningFrame(frame, _function_name(frame), "", Origin.USER)
            for frame in reversed(_ending if ended else [])
            if is_of_function(frame) and origin_of(frame.f_code.co_filename) is Origin.USER
        ]
    finally:
        # This function's own frame is in the list: left there, the two and all variables of our callers, which are the
        # user's objects, would wait for the collector.
        by_thread.clear()


_ending: list[FrameType] = []


@contextmanager
def count_as_running(traceback: TracebackType | None) -> Iterator[None]:
    """Let the functions that an error has ended count as running ones: their variables live as long as it does."""
    _ending.extend(frame for frame, _line in walk_tb(traceback))
    try:
        yield
    finally:
        _ending.clear()


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
        if frame is not None and is_of_function(frame):
            values = (id(value) for _name, value in local_variables(frame))
            places[_thread_name(ident)] = id(innermost), innermost.f_lasti, *values
    return places


def other_threads() -> dict[int, str]:
    """Return the names of the other threads that run Python code, by the number that the system has for them.

    Those of the front end and our own are left out, and those that Python did not start.
    """
    found: dict[int, str] = {}
    threads = sys._current_frames()  # noqa: SLF001
    del threads[threading.get_ident()]  # a variable that is this function's own frame would be a cycle
    for ident, innermost in threads.items():
        frame: FrameType | None = innermost
        outermost = ""
        while frame is not None and origin_of(frame.f_code.co_filename) is not Origin.FRONT_END:
            if frame.f_code.co_filename != threading.__file__:
                outermost = frame.f_code.co_filename
            frame = frame.f_back
        if frame is None and origin_of(outermost) is not Origin.LEAKLAB:
            number = _of_thread_object(ident, "_native_id")
            if type(number) is int:
                found[number] = _thread_name(ident)
    return found


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
        and is_of_function(frame)
        and frame.f_trace is None  # a debugger writes the dict back into the variables
        and sys.gettrace() is None
        and sys.getrefcount(snapshot) == _SOLE_REFERENCES
    ):
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            snapshot.pop(name, None)
    return variables


def empty_snapshots() -> None:
    """Empty the dicts that `local_variables` had to leave as they were, because the list of the heap held them.

    A dict that an earlier look left on a frame, empty, is in that list. To be called when the list is empty.
    """
    if _SNAPSHOTS:
        for running in running_frames():
            local_variables(running.frame)


def _of_thread(innermost: FrameType, thread: str, *, bodies: bool) -> Iterator[RunningFrame]:
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
        if (bodies or is_of_function(outer)) and not called_by_leaklab:
            kept.append(RunningFrame(outer, _function_name(outer), thread, origin))
    return reversed(kept)


def _function_name(frame: FrameType) -> str:
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # co_qualname came with 3.11
    return name.rpartition("<locals>.")[2]


def _thread_name(ident: int) -> str:
    """Return a thread's name; a thread that Python did not start has a number only."""
    name = _of_thread_object(ident, "_name")
    return name if type(name) is str else f"thread {ident}"


def _of_thread_object(ident: int, attribute: str) -> object:
    """Return an attribute of a `threading.Thread` without its class having a say; None if there is none."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    try:
        value: object = object.__getattribute__(thread, attribute)
    except AttributeError:
        return None
    return value
