"""Find what a program does once in every step of its loop: nothing of the program is changed for that.

Each clock is something that torch, a framework, a server or asyncio is asked for anyway. A clock of more trust takes
over from one of less; what is trusted less is not listened to any more.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leaklab.loop.servers import is_built_on, is_of_program, request_calls
from leaklab.runtime.after_import import after_import
from leaklab.runtime.objects import type_name

if TYPE_CHECKING:
    from typing_extensions import Self


class Trust(IntEnum):
    """What steps may be counted by, the most trusted first."""

    NAMED = 0
    OPTIMIZER = 1
    CALLBACK = 2
    BATCH = 3
    BACKWARD = 4
    REQUEST = 5
    CALL = 6
    TASK = 7


_OF_ALL_THREADS = (Trust.NAMED, Trust.REQUEST)
"""A service answers in many threads at once: where any thread may be the loop's, the steps of all of them count."""
_UNHEARD = {Trust.BATCH: 10, Trust.BACKWARD: 10, Trust.REQUEST: 10, Trust.CALL: 10, Trust.TASK: 50}
"""So often the less trusted are heard before they are the clock: what is trusted more comes by then, if it comes."""
_WITHOUT_CLOCK = 10
"""After so many steps of one other optimizer, while the first makes none, the other one is the clock."""
_LONG_LOOP = 200
"""Where another optimizer goes on after so many steps of one, another loop has begun: the first is told by itself."""
_MUCH_FINER = 8
"""A clock that goes so many times in a step of the optimizer stays: gradients are summed up over many batches."""
_SAME_LARGEST = 3
"""The largest module that was called so often is the one whose calls may be steps."""
NO_CLOCK = (
    "no optimizer made a step, no DataLoader gave ten batches, no gradients were computed, no server answered ten "
    "requests, and no module was called again and again, so no steps were counted"
)


class StepClock:
    """Counts steps of whatever loop this process runs, inside of a ``with`` block.

    Args:
        count: Is called after each step; with how many, where others ended in other threads while one was counted.
        restart: Is called before the first step of a clock that takes over from another one.
        turn: Is called, once, where another optimizer goes on after many steps of the first: another loop has begun.
        any_thread: Whether the steps of any one thread count; otherwise those of the thread that enters the block.
        named: A function whose calls are the steps, ``module:function``; of ``__main__`` they are to be given to
            `note_named` by whoever runs it.
        in_worker: Is called in a child that was forked off and answers requests, before its first step: it is a worker
            of a server. None: children are not listened to.

    Attributes:
        words: What a step is, such as ``a step of the optimizer torch.optim.adam.Adam``; empty before the first.
    """

    def __init__(
        self,
        count: Callable[[int], None],
        restart: Callable[[], None],
        turn: Callable[[], None] = lambda: None,
        *,
        any_thread: bool = False,
        named: str = "",
        in_worker: Callable[[], None] | None = None,
    ) -> None:
        self._count, self._restart, self._turn, self._in_worker = count, restart, turn, in_worker
        self._any_thread, self._named = any_thread, named
        self._pid, self._thread = 0, 0
        self._waiting: deque[None] = deque()  # steps that are to be counted
        self._counting = threading.Lock()
        self._sources: dict[Trust, ExitStack] = {}
        self._taken: Trust | None = None
        self._n_heard = dict.fromkeys(Trust, 0)
        self._servers: set[str] = set()  # what answered requests before one of them was the clock
        self._n_at_step: int | None = None
        self._optimizer: Callable[[], object | None] | None = None  # a weak reference to the one that is the clock
        self._n_own, self._has_turned = 0, False  # its steps; whether another one has gone on after many of them
        self._n_others: Counter[int] = Counter()  # by their ids, the steps of other optimizers since its last one
        self.words = ""

    def __enter__(self) -> Self:
        self._pid, self._thread = os.getpid(), 0 if self._any_thread else threading.get_ident()
        if self._named:
            module, _, function = self._named.rpartition(":")
            if module not in ("", "__main__"):
                self._listen(Trust.NAMED, module, lambda found: hear_calls(found, function, self.note_named))
            return self
        for trust, name, begin in _PLACES:
            self._listen(trust, name, functools.partial(begin, self))
        return self

    def __exit__(self, *_error: object) -> None:
        self._forget_below(None)

    @property
    def missing(self) -> str:
        """Why no step was counted."""
        return f"{self._named.strip(':')} was not called, so no steps were counted" if self._named else NO_CLOCK

    @property
    def is_elsewhere(self) -> bool:
        """Whether the thread whose steps are counted is another one than this, and has not ended."""
        return self._thread not in (0, threading.get_ident()) and self._thread in sys._current_frames()  # noqa: SLF001 - of all threads

    def note_named(self) -> None:
        """Note that the function that was named has been called."""
        self.note(Trust.NAMED, f"a call of {self._named.removeprefix('__main__:').removeprefix(':')}")

    def note(self, trust: Trust, words: str) -> None:
        """Hear of something that may be a step; count it if it is the clock."""
        if not self._is_here(trust):
            return
        if trust is Trust.REQUEST and trust is not self._taken:
            self._servers.add(words)
            if is_built_on(words, self._servers):
                return
        self._n_heard[trust] += 1
        if trust is not self._taken and not self._takes_over(trust, words):
            return
        if trust is Trust.REQUEST and words != self.words:  # of a server on which that one is built
            return
        self._waiting.append(None)
        if self._counting.acquire(blocking=False):
            try:
                n_steps = len(self._waiting)
                for _ in range(n_steps):
                    self._waiting.popleft()
                self._count(n_steps)
            finally:
                self._counting.release()

    def note_optimizer(self, optimizer: object) -> None:
        """Hear of a step of *optimizer*; of several optimizers, one is the clock."""
        if not self._is_here(Trust.OPTIMIZER):
            return
        clock = None if self._optimizer is None else self._optimizer()
        is_turn = False
        if clock is not optimizer:
            self._n_others[id(optimizer)] += 1
            stands_in = clock is not None and _is_for_same(clock, optimizer)
            if clock is not None and not stands_in and self._n_others[id(optimizer)] <= _WITHOUT_CLOCK:
                return
            is_turn = self._n_own >= _LONG_LOOP and not stands_in
            self._optimizer, self._n_own = weakref.ref(optimizer), self._n_own if stands_in else 0
            if self._taken is Trust.OPTIMIZER:
                self.words = f"a step of the optimizer {type_name(type(optimizer))}"
        self._n_others.clear()
        self._n_own += 1
        words = "" if self._taken is Trust.OPTIMIZER else f"a step of the optimizer {type_name(type(optimizer))}"
        del clock, optimizer  # not one more reference to them while the heap is looked at
        if is_turn and not self._has_turned and self._counting.acquire(blocking=False):
            self._has_turned = True
            try:
                self._turn()
            finally:
                self._counting.release()
        self.note(Trust.OPTIMIZER, words)

    def _is_here(self, trust: Trust) -> bool:
        """Return whether this is the process and the thread whose steps are counted, or may be from now on."""
        thread = threading.get_ident()
        if os.getpid() != self._pid and not (trust is Trust.REQUEST and self._is_worker()):
            return False
        if self._any_thread and trust in _OF_ALL_THREADS:
            self._thread = thread
        if self._any_thread and (self._taken is None or trust < self._taken):
            return True  # an event loop in a thread of a library's may be asked for tasks long before the first step
        if thread != self._thread and self._any_thread and self._thread not in sys._current_frames():  # noqa: SLF001 - of all threads
            self._thread = thread
        return thread == self._thread

    def _is_worker(self) -> bool:
        """Return whether this child, forked off while nothing was counted, is to be listened to from now on."""
        if self._in_worker is None or self._taken is not None:
            return False
        self._pid, self._counting = os.getpid(), threading.Lock()
        self._waiting.clear()
        self._n_heard = dict.fromkeys(Trust, 0)
        self._in_worker()
        return True

    def _takes_over(self, trust: Trust, words: str) -> bool:
        if self._taken is not None and trust > self._taken:
            return False
        if self._n_heard[trust] <= _UNHEARD.get(trust, 0) or self._is_too_coarse(trust):
            return False
        if self._taken is not None:
            self._restart()
        self._taken, self.words = trust, words
        if self._any_thread:
            self._thread = threading.get_ident()
        self._forget_below(trust)
        return True

    def _is_too_coarse(self, trust: Trust) -> bool:
        """Return whether the optimizer makes one step in many of the clock that there is; undecided counts as that."""
        if trust is not Trust.OPTIMIZER or self._taken not in (Trust.BATCH, Trust.BACKWARD):
            return False
        before, self._n_at_step = self._n_at_step, self._n_heard[self._taken]
        if before is None:
            return True
        if self._n_at_step - before < _MUCH_FINER:
            return False
        self._sources.pop(trust, ExitStack()).close()
        return True

    def _listen(self, trust: Trust, module: str, begin: Callable[[ModuleType], Callable[[], None]]) -> None:
        source = self._sources.setdefault(trust, ExitStack())

        def told(found: ModuleType) -> None:
            if self._sources.get(trust) is source:
                with suppress(AttributeError, KeyError):  # another version of it, or a function that is not there
                    source.callback(begin(found))

        source.callback(after_import(module, told))

    def _forget_below(self, trust: Trust | None) -> None:
        """Listen no more to what is trusted less than *trust*, or to anything."""
        for other in [known for known in self._sources if trust is None or known > trust]:
            self._sources.pop(other).close()


def hear_calls(
    module: ModuleType,
    place: str,
    note: Callable[[], None],
    *,
    before: bool = False,
    counts: Callable[..., bool] | None = None,
) -> Callable[[], None]:
    """Call *note* at each call of the function at *place* in *module*; return what ends that. As for `hearing`."""
    *owners, name = place.split(".")
    owner: Any = functools.reduce(getattr, owners, module)
    function = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    heard = hearing(function, note, before=before, counts=counts)
    setattr(owner, name, heard)

    def put_back() -> None:
        if vars(owner).get(name) is heard:
            setattr(owner, name, function)

    return put_back


def hearing(
    function: Any, note: Callable[[], None], *, before: bool = False, counts: Callable[..., bool] | None = None
) -> Any:
    """Return what stands in for *function*, also for a coroutine function, and calls *note* with each call.

    Args:
        function: It is called as before.
        note: Is called when a call has returned.
        before: Whether it is called before that; not for coroutine functions.
        counts: Says of the arguments of a call whether it is to be noted; None: every call is.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(hearing(function.__func__, note, before=before, counts=counts))
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def heard(*args: Any, **kwargs: Any) -> Any:
            result = await function(*args, **kwargs)
            if counts is None or counts(*args, **kwargs):
                note()
            return result
    else:

        @functools.wraps(function)
        def heard(*args: Any, **kwargs: Any) -> Any:
            if before:
                note()
                return function(*args, **kwargs)
            result = function(*args, **kwargs)
            if counts is None or counts(*args, **kwargs):
                note()
            return result

    return heard


def _hear_optimizers(clock: StepClock, module: ModuleType) -> Callable[[], None]:
    def after_step(optimizer: object, args: object, kwargs: object) -> None:
        del args, kwargs  # as in note_optimizer
        clock.note_optimizer(optimizer)

    remove: Callable[[], None] = module.register_optimizer_step_post_hook(after_step).remove
    return remove


def _is_for_same(one: Any, other: Any) -> bool:
    """Return whether the optimizer *other* stands in for *one*, as where each step makes its own.

    One that wraps another has the same parameters as well, and is of another class.
    """
    if type(one) is not type(other):
        return False
    firsts = [next((p for group in each.param_groups for p in group["params"]), None) for each in (one, other)]
    return firsts[0] is not None and firsts[0] is firsts[1]


def _hear_largest_module(clock: StepClock, module: ModuleType) -> Callable[[], None]:
    return _LargestModule(clock, module).end


class _LargestModule:
    """Hears of the calls of the largest module: first of all modules, until it is known which one that is."""

    def __init__(self, clock: StepClock, module: ModuleType) -> None:
        self._clock = clock
        self._sizes: dict[int, int] = {}
        self._largest: Callable[[], object | None] = lambda: None
        self._n_calls = 0
        self._ends = ExitStack()
        self._ends.callback(module.register_module_forward_pre_hook(self._before).remove)

    def end(self) -> None:
        """Listen no more."""
        self._ends.close()

    def _before(self, module: Any, _args: object) -> None:
        if _is_traced():
            return
        size = self._sizes.get(id(module))
        if size is None:
            size = self._sizes[id(module)] = sum(part.numel() for part in module.parameters())
        largest = self._largest()
        if largest is module:
            self._n_calls += 1
            if self._n_calls >= _SAME_LARGEST:
                self._settle(module)
        elif largest is None or size > self._sizes.get(id(largest), 0):
            self._largest, self._n_calls = weakref.ref(module), 1

    def _settle(self, module: Any) -> None:
        """Hear of the calls of objects of one class from now on: a hook on every module would slow all of them down."""
        self._ends.close()
        kind, largest, clock = type(module), self._largest, self._clock
        own = vars(kind).get("__call__")
        call, words = kind.__call__, f"a call of the largest module, {type_name(kind)}"

        @functools.wraps(call)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - stands in for it
            result = call(self, *args, **kwargs)
            if not _is_traced() and self is largest():
                clock.note(Trust.CALL, words)
            return result

        def put_back() -> None:
            if own is None:
                del kind.__call__
            else:
                kind.__call__ = own

        kind.__call__ = __call__
        self._ends.callback(put_back)


def _is_traced() -> bool:
    """Return whether a module is called to see what it does: its parameters, if read now, would get into the graph."""
    from torch.compiler import is_compiling  # noqa: PLC0415 - it is called by torch; so written, dynamo reads it
    from torch.jit._trace import is_tracing  # noqa: PLC0415 - as above

    return bool(is_compiling() or is_tracing())  # type: ignore[no-untyped-call]  # torch has no types for it


@dataclass(frozen=True, slots=True)
class _CallClock:
    """The calls of one function are a clock."""

    trust: Trust
    place: str
    words: str
    before: bool = False
    counts: Callable[..., bool] | None = None

    def __call__(self, clock: StepClock, module: ModuleType) -> Callable[[], None]:
        def note() -> None:
            clock.note(self.trust, self.words)

        return hear_calls(module, self.place, note, before=self.before, counts=self.counts)


_KERAS = _CallClock(Trust.CALLBACK, "CallbackList.on_train_batch_end", "a batch of Keras")
_BATCH = _CallClock(Trust.BATCH, "_BaseDataLoaderIter.__next__", "a batch of a DataLoader", before=True)
_BACKWARD = _CallClock(Trust.BACKWARD, "backward", "a call of backward")
_TASK = _CallClock(Trust.TASK, "BaseEventLoop.create_task", "a task of asyncio", before=True)
_PLACES: tuple[tuple[Trust, str, Callable[[StepClock, ModuleType], Callable[[], None]]], ...] = (
    (Trust.OPTIMIZER, "torch.optim.optimizer", _hear_optimizers),
    (Trust.CALLBACK, "keras.src.callbacks.callback_list", _KERAS),
    (Trust.BATCH, "torch.utils.data.dataloader", _BATCH),
    (Trust.BACKWARD, "torch.autograd", _BACKWARD),
    *(
        (Trust.REQUEST, name, _CallClock(Trust.REQUEST, at, words, counts=is_of_program))
        for words, name, at in request_calls()
    ),
    (Trust.CALL, "torch.nn.modules.module", _hear_largest_module),
    (Trust.TASK, "asyncio.base_events", _TASK),
)
