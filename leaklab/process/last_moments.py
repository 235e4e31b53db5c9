"""Notice that memory ran out: by an error nobody caught, by torch's allocator on a device, by the limit of a container.

Each hook calls the one that was there before, and brings it back when it is removed. A hook over which somebody has put
another one stays where it is, and only hands on.
"""

from __future__ import annotations

import ctypes
import errno
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from leaklab.measure.gauges import MemoryLimit, memory_limit
from leaklab.runtime.objects import is_kind_of, loaded_type, loaded_variables, running_shell, type_name

_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory", "std::bad_alloc")
"""Of torch's allocator on Linux and on Windows, of CUDA and Metal, of the system."""
_MOST_CAUSES = 8
# The descriptors of the C type: an error may be of a class of the user's.
_args_of = BaseException.__dict__["args"].__get__
_cause_of = BaseException.__dict__["__cause__"].__get__
_context_of = BaseException.__dict__["__context__"].__get__
_FASTEST_BYTES_PER_SECOND = 4 << 30
"""No program takes memory faster than it can be written to."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
_EARLIEST, _ASKED_EVERY = 0.5, 0.05
"""Of a limit: from where on it is asked, and how often, how much the answer will take."""
_READINGS_UNTIL_TOLD, _MOST_UNTIL_TOLD = 2, 0.05
"""The program goes on until it is halted, for as long as this many readings take; it takes at most this of a limit."""
_REARMED_BELOW = 0.95
"""Of the level at which a limit counts as nearly reached."""


class Answers(Protocol):
    """What is told that memory ran out."""

    def make_room(self) -> None:
        """Give memory back, so that there is some to report with."""

    def on_error(self, error: BaseException) -> None:
        """An error ends a program, a thread or a cell; `is_out_of_memory` is true of it, or every error counts."""

    def on_device(self, device: int, wanted: int, total: int, free: int) -> None:
        """A device did not have the bytes *wanted*; its allocator may still survive that."""

    def on_limit(self, limit: MemoryLimit, used: int) -> None:
        """What is used comes near to the limit."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether *error*, or one that it was raised from, says that there is no memory."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return False
        if _says_so(error):
            return True
        error = _cause_of(error) or _context_of(error)
    return False


def is_of_device(error: BaseException) -> bool:
    """Return whether *error* is that of torch's allocator on a device."""
    kind = loaded_type("torch", "OutOfMemoryError") or loaded_type("torch.cuda", "OutOfMemoryError")
    return kind is not None and is_kind_of(error, kind)


def _says_so(error: BaseException) -> bool:
    if is_kind_of(error, MemoryError) or is_of_device(error):
        return True
    words = [word for word in _args_of(error) if type(word) in (str, int)]  # its own __str__ is code of the user
    if is_kind_of(error, OSError):
        return errno.ENOMEM in words[:1]
    return is_kind_of(error, RuntimeError) and any(
        message in word for word in words if type(word) is str for message in _MESSAGES
    )


def words_of(error: BaseException) -> str:
    """Return type and message of *error* in one line."""
    words = [word for word in _args_of(error) if type(word) is str]
    message = words[0].strip().partition("\n")[0] if words else ""
    return ": ".join(filter(None, (type_name(type(error)), message)))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error*."""
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


class ErrorHooks:
    """Tells *answers* of errors that nobody caught: of the program, of its threads, of the cells of a notebook.

    Args:
        answers: Is told.
        any_error: Whether every error that ends the program counts, Ctrl-C included.
    """

    def __init__(self, answers: Answers, *, any_error: bool = False) -> None:
        self._answers: Answers | None = answers
        self._any_error = any_error
        self._before, self._before_in_threads = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self._of_program, self._of_thread
        self._events = getattr(running_shell(), "events", None)
        if self._events is not None:
            self._events.register("post_run_cell", self._of_cell)

    def remove(self) -> None:
        """Bring back the hooks that were there before."""
        self._answers = None
        if sys.excepthook == self._of_program:
            sys.excepthook = self._before
        if threading.excepthook == self._of_thread:
            threading.excepthook = self._before_in_threads
        if self._events is not None:
            with suppress(ValueError):  # the user has removed all callbacks
                self._events.unregister("post_run_cell", self._of_cell)

    def _of_program(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        self._prepare(error)
        self._before(kind, error, traceback)
        self._tell(error, counts=self._any_error)

    def _of_thread(self, arguments: Any) -> None:
        self._prepare(arguments.exc_value)
        self._before_in_threads(arguments)
        self._tell(arguments.exc_value)

    def _of_cell(self, result: Any) -> None:
        self._prepare(result.error_in_exec)
        self._tell(result.error_in_exec)

    def _prepare(self, error: BaseException | None) -> None:
        """Make room first: to print the traceback takes memory, too."""
        if self._answers is not None and is_out_of_memory(error):
            self._answers.make_room()

    def _tell(self, error: BaseException | None, *, counts: bool = False) -> None:
        if self._answers is not None and error is not None and (counts or is_out_of_memory(error)):
            self._answers.on_error(error)


_device_answers: list[Answers] = []
_attached: list[None] = []
"""One entry once torch calls `_observe`: an observer can be attached, never detached."""


def observe_devices(answers: Answers) -> None:
    """Tell *answers* of every allocation that finds no memory on a CUDA device, from the first use of CUDA on.

    A build of torch without CUDA has no such observer; nothing is initialised.
    """
    _device_answers.append(answers)
    attach = loaded_variables("torch._C").get("_cuda_attach_out_of_memory_observer")
    later = loaded_variables("torch.cuda").get("_lazy_call")
    if attach is not None and later is not None and not _attached:
        _attached.append(None)
        # Attached at once, it would initialise CUDA: no process that is forked off could use it then.
        later(lambda: attach(_observe))


def ignore_devices(answers: Answers) -> None:
    """Tell *answers* no more."""
    _device_answers[:] = [known for known in _device_answers if known is not answers]


def _observe(device: int, wanted: int, total: int, free: int) -> None:
    for answers in tuple(_device_answers):
        with suppress(Exception):  # it would pass through the C++ code of the allocator
            answers.on_device(device, wanted, total, free)


_PENDING_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def in_main_thread(work: Callable[[], None], max_seconds: float) -> None:
    """Run *work* once, between two instructions of the main thread: the program stands still, and takes no more memory.

    In the calling thread where the main thread does not come to that within *max_seconds*, because it waits or is in C
    code. Returns when the work is done.
    """
    claimed, begun, done = threading.Lock(), threading.Event(), threading.Event()

    def once(_unused: object = None) -> int:
        if claimed.acquire(blocking=False):
            begun.set()
            try:
                with suppress(Exception):
                    work()
            finally:
                done.set()
        return 0

    call = _PENDING_CALL(once)
    _pending_calls.append(call)  # the interpreter has no reference to it
    if ctypes.pythonapi.Py_AddPendingCall(call, None) != 0 or not begun.wait(max_seconds):
        once()
    done.wait()


_pending_calls: deque[Any] = deque(maxlen=32)
"""The interpreter has room for as many; each is needed until it was called, which may be late."""


def _nothing() -> int:
    return 0


class LimitThread(threading.Thread):
    """Tells *answers*, once for each time, that *share* of the container's limit is used; sleeps for the rest.

    Args:
        answers: Is told.
        limit: The limit.
        share: Part of it.
        needed: Returns the bytes that the answer takes: where the rest is less, it is told earlier.
    """

    def __init__(
        self, answers: Answers, limit: MemoryLimit, share: float, needed: Callable[[], int] = _nothing
    ) -> None:
        super().__init__(name="leaklab memory limit", daemon=True)
        self._answers, self._limit, self._share, self._needed = answers, limit, share, needed
        self._stopped = threading.Event()

    def run(self) -> None:
        """Read two small files, answer if need be, sleep; until it is stopped, or the files are gone."""
        near = self._share * self._limit.n_bytes
        ask_at = _EARLIEST * self._limit.n_bytes
        is_armed, pause = True, _SHORTEST_PAUSE
        before = told_at = self._limit.n_bytes
        while not self._stopped.wait(pause):
            used = self._limit.used_bytes()
            if used is None:
                return
            if used >= ask_at:
                ask_at = used + _ASKED_EVERY * self._limit.n_bytes
                near = self._level()
            soon = used + min(_READINGS_UNTIL_TOLD * max(used - before, 0), _MOST_UNTIL_TOLD * self._limit.n_bytes)
            before = used
            if soon >= near and is_armed:
                is_armed, told_at = False, used
                with suppress(Exception):
                    self._answers.on_limit(self._limit, used)
            is_armed = is_armed or used < min(near, told_at) * _REARMED_BELOW
            pause = min(max((near - used) / _FASTEST_BYTES_PER_SECOND, _SHORTEST_PAUSE), _LONGEST_PAUSE)

    def _level(self) -> float:
        n_bytes = self._limit.n_bytes
        return max(min(self._share * n_bytes, n_bytes - self._needed()), min(_EARLIEST, self._share) * n_bytes)

    def stop(self) -> None:
        """End the thread, at once if it sleeps."""
        self._stopped.set()


def limit_threads(answers: Answers, share: float, needed: Callable[[], int]) -> Iterator[LimitThread]:
    """Yield the thread that watches the limit of this process's container; none without one."""
    limit = memory_limit()
    if limit is not None:
        yield LimitThread(answers, limit, share, needed)
