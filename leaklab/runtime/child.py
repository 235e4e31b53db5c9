"""Do a part of the work in a forked child: whatever it does to objects, none of it is seen in this process.

A generator that asks for runs of the user's code can go on in a child. The child inherits the whole stack, the driver
of the generator included: it makes its own runs, sends what they told through a pipe, and ends there and then::

    child = yield from begin_child(partial(trial, changes), seconds=20.0)
    ...  # this process goes on at once
    yield from wait_for([child], next_run)
    answer = child.answer  # None if `child.failure` says why there is none

What passes between such a generator and whoever makes its runs is here as well: run it so, and so it went.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import math
import multiprocessing.process
import os
import pickle
import random
import select
import signal
import stat
import sys
import time
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import psutil

from leaklab.runtime.objects import loaded_type, loaded_variables

Ran = tuple[float, str]
"""How one run went: its seconds, and the name of what it raised (``ValueError``), empty if it ended by itself.

A plain tuple of plain values: the collector forgets it at once, so it is never counted as something the run bore.
"""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Several runs inside a context manager.

    Attributes:
        number: Number of the first of them.
        times: How many; 0 where only the context manager is to be entered, which may then take its time.
        around: Entered in the very function that runs the code.
    """

    number: int
    times: int
    around: AbstractContextManager[None]


SWITCH = "LEAKLAB_CHILDREN"
"""The environment variable by which children are switched off: ``LEAKLAB_CHILDREN=0``."""
Result = TypeVar("Result")
Asked = TypeVar("Asked")
_WHO = "the copy of the process"
_SIZE_BYTES = 8
_LOOK_SECONDS = 0.5
_AT_ONCE = 1 << 20
_OWN_THREADS = ("jax", "tensorflow")
"""Libraries whose threads a child does not have, and that hang without them."""


def why_no_child() -> str:
    """Return why the work cannot go on in a child, one clause; empty if it can."""
    return next((words for words, holds in _OBSTACLES if holds()), "")


_OBSTACLES: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("child processes are switched off", lambda: os.environ.get(SWITCH) == "0"),
    ("this system cannot fork a process safely", lambda: not sys.platform.startswith("linux")),
    ("a debugger follows child processes", lambda: type(os.fork) is not types.BuiltinFunctionType),
    ("an accelerator is in use", lambda: any(map(_is_initialized, ("torch.cuda", "torch.xpu", "torch.mtia")))),
    ("ranks work together", lambda: _is_initialized("torch.distributed")),
    ("a library has threads of its own", lambda: any(name in sys.modules for name in _OWN_THREADS)),
    # Their queues are shared: a child would take what this process waits for. Asking whether they live would reap them.
    ("the code has worker processes", lambda: bool(multiprocessing.process._children)),  # type: ignore[attr-defined]  # noqa: SLF001
)


def _is_initialized(module: str) -> bool:
    ask = loaded_variables(module).get("is_initialized")
    return ask is not None and bool(ask())


class Child(Generic[Result]):
    """A child at work, seen from the process that began it.

    Attributes:
        answer: What it found; None until it has been waited for, and where it found nothing.
        failure: Why there is no answer, one clause; empty if there is one.
    """

    def __init__(
        self, pid: int, reader: int, seconds: float, idle_seconds: float, computing_seconds: float = math.inf
    ) -> None:
        self.answer: Result | None = None
        self.failure = ""
        self._pid, self._reader = pid, reader
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._idle_seconds, self._last_work, self._worked = idle_seconds, time.monotonic(), -1.0
        self._computing_seconds = computing_seconds
        self._received = bytearray()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self._is_over

    @property
    def descriptor(self) -> int:
        """What to wait for with `select`."""
        return self._reader

    def read(self) -> None:
        """Take in what it has sent; it must have sent something, or be gone."""
        part = os.read(self._reader, _AT_ONCE)
        self._received += part
        if not part:
            self._finish()

    def give_up_if_late(self) -> None:
        """End it if its time is over, or if it has computed nothing for too long."""
        now = time.monotonic()
        worked = _computed_seconds(self._pid)
        if worked != self._worked:
            self._worked, self._last_work = worked, now
        if self._is_over:
            return
        if now >= self._end:
            failure = f"{_WHO} had not ended after {self._seconds:.0f} s"
        elif now >= self._last_work + self._idle_seconds:
            failure = f"{_WHO} hung"
        elif worked >= self._computing_seconds:
            failure = f"{_WHO} had not ended after {worked:.0f} s of processor time"
        else:
            return
        self.kill()
        self.failure = failure

    def wait(self) -> None:
        """Wait until it has answered, or its time is over."""
        with _waiting([self]):
            pass

    def kill(self) -> None:
        """End it and what it has started, if it has not ended; may be called again."""
        if self._is_over:
            return
        self._is_over = True
        self.failure = f"{_WHO} was ended"
        for end in (os.killpg, os.kill):  # it may not have come to make its group yet
            with contextlib.suppress(OSError):
                end(self._pid, signal.SIGKILL)
        os.close(self._reader)
        with contextlib.suppress(ChildProcessError):  # somebody else has waited for it
            os.waitpid(self._pid, 0)

    def _finish(self) -> None:
        self.kill()
        size = int.from_bytes(self._received[:_SIZE_BYTES], "little")
        sent = bytes(self._received[_SIZE_BYTES:])
        if len(self._received) < _SIZE_BYTES or len(sent) != size:
            self.failure = f"{_WHO} died"
            return
        self.answer, self.failure = pickle.loads(sent)  # noqa: S301 - our own child has written it
        self._received.clear()


def begin_child(
    work: Callable[[], Generator[Asked, Ran, Result]],
    *,
    seconds: float = math.inf,
    idle_seconds: float = math.inf,
    computing_seconds: float = math.inf,
) -> Generator[Asked, Ran, Child[Result]]:
    """Begin *work* in a child; what comes back at once is who does it.

    Args:
        work: Makes the generator that works; what it returns must be plain: numbers, words, records of these.
        seconds: After so many the child is ended.
        idle_seconds: After so many, too, in which neither it nor what it has started computed anything: it waits for a
            thread that only this process has.
        computing_seconds: After so many seconds of a processor, too: on a busy machine they say more than a clock.

    Yields:
        In the child what *work* yields, in this process nothing.

    Raises:
        OSError: if the system could not start another process.
    """
    reader, writer = os.pipe()
    numbers = random.getstate()
    parent = os.getpid()
    try:
        pid = _fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid:
        os.close(writer)
        return Child(pid, reader, seconds, idle_seconds, computing_seconds)
    # From here on in the child. Nothing gets past the last line, be it an exception or the end of the generator.
    try:
        os.close(reader)
        _cut_off(parent, writer)
        random.setstate(numbers)  # a fork seeds it anew
        result = yield from work()
        _send(writer, (result, ""))
    except BaseException as raised:  # noqa: BLE001 - told to the parent
        _send(writer, (None, f"{_WHO} raised {type(raised).__name__}: {raised}"))
    finally:
        _leave()


def wait_for(children: Sequence[Child[Any]], number: int) -> Generator[RunRequest, Ran, str]:
    """Wait until all of *children* have answered, or their time is over.

    Args:
        children: Those whose answers are wanted.
        number: Of the run that the wait is told as; none is made.

    Returns:
        What ended the wait (``KeyboardInterrupt``), empty if nothing did. The children are then ended, too.
    """
    _seconds, failure = yield RunRequest(number, 0, _waiting(children))
    if failure:
        for child in children:
            child.kill()
    return failure


@contextlib.contextmanager
def _waiting(children: Sequence[Child[Any]]) -> Iterator[None]:
    while left := [child for child in children if not child.is_over]:
        ready, _, _ = select.select([child.descriptor for child in left], [], [], _LOOK_SECONDS)
        for child in left:
            if child.descriptor in ready:
                child.read()
            else:
                child.give_up_if_late()
    yield


def _computed_seconds(pid: int) -> float:
    """Return the processor time that a process and those that it has started have taken."""
    seconds = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                seconds += sum(each.cpu_times()[:2])
    return seconds


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns wherever a process has more threads than one, and torch has some.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _leave() -> NoReturn:
    """End the child: nobody's `atexit` functions, finalizers and buffers are run or written twice."""
    os._exit(0)


def _send(writer: int, answer: tuple[object, str]) -> None:
    try:
        sent = pickle.dumps(answer)
    except Exception as raised:  # noqa: BLE001 - told instead of the answer
        sent = pickle.dumps((None, f"{_WHO} could not send its answer: {raised}"))
    left = memoryview(len(sent).to_bytes(_SIZE_BYTES, "little") + sent)
    while left:
        left = left[os.write(writer, left) :]


def _cut_off(parent: int, writer: int) -> None:
    """Take from the child what belongs to its parent: the terminal, the notebook's sockets, files, signals."""
    os.setsid()  # a group of its own, which is ended as a whole; an interrupt is the parent's
    _die_with_parent(parent)
    with contextlib.suppress(ValueError):  # of the main thread only
        signal.set_wakeup_fd(-1)
    faulthandler.disable()
    with contextlib.suppress(OSError):  # what it writes to is copied: where memory ends, this process does
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2}.union(map(_descriptor, (sys.stdout, sys.stderr))):
        os.dup2(nowhere, number)
    os.close(nowhere)
    _keep_files_apart(writer)
    _silence_kernel()
    set_threads = loaded_variables("torch").get("set_num_threads")
    if set_threads is not None:  # the threads of the pool are not here: to hand them work would wait for ever
        set_threads(1)


def _die_with_parent(parent: int) -> None:
    set_option, kill_me = 1, signal.SIGKILL
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_option, int(kill_me))
    if os.getppid() != parent:  # it died before that
        _leave()


def _descriptor(stream: Any) -> int:
    try:
        number = stream.fileno()
    except Exception:  # noqa: BLE001 - what stands there may be anything
        return 1
    return number if type(number) is int and number >= 0 else 1


def _keep_files_apart(writer: int) -> None:
    """Give the child files of its own for those that its parent has open for writing only, such as logs.

    What the parent has written and not flushed is in the child's buffers, too, and would come into the file twice.
    """
    import fcntl  # noqa: PLC0415 - not everywhere

    for number in (int(name) for name in os.listdir("/proc/self/fd")):  # noqa: PTH208 - as names
        with contextlib.suppress(OSError):
            state = os.fstat(number)
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
            if number == writer or not stat.S_ISREG(state.st_mode) or flags & os.O_ACCMODE != os.O_WRONLY:
                continue
            own = os.memfd_create("leaklab")
            os.ftruncate(own, state.st_size)
            os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(own, number, inheritable=os.get_inheritable(number))
            os.close(own)


def _silence_kernel() -> None:
    """Let nothing go to the notebook: the sockets of its kernel are the parent's."""
    for module, kind, method, instead in (
        ("ipykernel.iostream", "IOPubThread", "_really_send", _do_nothing),
        ("jupyter_client.session", "Session", "send", _do_nothing),
        ("ipykernel.kernelbase", "Kernel", "_input_request", _refuse_input),
    ):
        found = loaded_type(module, kind)
        if found is not None:
            setattr(found, method, instead)


def _do_nothing(*_args: object, **_options: object) -> None:
    pass


def _refuse_input(*_args: object, **_options: object) -> NoReturn:
    msg = "a cell cannot ask for input while it is run for a trial"
    raise EOFError(msg)
