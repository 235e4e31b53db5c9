"""Find the line of the user's code that made the storage of a tensor, on every device.

Most tensors that an autograd graph saves have no Python object, and tracemalloc knows no storage. A dispatch mode sees
every operation with its results. What it notes it makes only once: with tracemalloc on, to note an operation takes
150 us, and 9 us without, where the operation itself takes 2.4 us.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from leaklab.lines.arrival import Line
from leaklab.lines.asked import innermost_and_asking
from leaklab.lines.change import Whose, line_in_code
from leaklab.runtime.objects import is_exactly, is_tensor, loaded_type, loaded_variables
from leaklab.runtime.python_traces import N_FRAMES
from leaklab.runtime.sizes import storages_of

_OWN_STORAGE = frozenset({
    "aten.lift_fresh.default", "aten.set_.source_Storage", "aten.set_.source_Storage_storage_offset",
})  # fmt: skip
"""Say that their result is an argument, of which the storage however was made a moment ago where no mode can see it: of
a literal, or copied or loaded from a file. What was noted for a storage at this address is that of another one."""


Stack = tuple[Line, ...]
"""The lines of the calls, innermost first, up to leaklab's own; the function of a line is empty if it is not known."""


class _Call:
    """A call under way: its code, the instruction that it is at, and the call that it was made in.

    Under tracemalloc each new object costs as much as a dozen lines of Python, so that calls are made only once,
    however often they come: those made in one call are found below it by their instruction.
    """

    __slots__ = ("below", "code", "outer", "position")

    def __init__(self, outer: _Call | None, code: types.CodeType | None, position: int) -> None:
        self.outer, self.code, self.position = outer, code, position
        self.below: dict[int | tuple[int, int], _Call] = {}

    def to(self, code: types.CodeType, position: int) -> _Call:
        """Return the call of *code*, at that instruction, which is made in this one."""
        found = self.below.get(position)
        if found is None:
            found = self.below[position] = _Call(self, code, position)
        elif found.code is not code:  # one instruction calls several functions
            key = (position, id(code))
            found = self.below.get(key) or self.below.setdefault(key, _Call(self, code, position))
        return found

    def outward(self) -> Iterator[tuple[str, _Call]]:
        """Yield this call and those around it, each with its file."""
        call: _Call | None = self
        while call is not None and call.code is not None:
            yield call.code.co_filename, call
            call = call.outer


class StorageLines:
    """The line that made each storage, and the calls that led to that line, as far as they were noted."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._known: dict[str, bool | None] = {}
        self._outermost = _Call(None, None, -1)
        self._made: dict[int, _Call] = {}
        self._seen: dict[int, _Call] = {}
        self._lines: dict[_Call, Line | None] = {}
        self._fresh: dict[Any, bool] = {}
        self._frames: list[FrameType | None] | None = []
        self._until = math.inf
        self._n_since = 0

    @contextmanager
    def noted(self) -> Iterator[bool]:
        """Note what is made inside; the value is False where torch.compile was used, which a mode would disturb."""
        mode = None if loaded_type("torch", "Tensor") is None or _has_compiled() else self._mode()
        try:
            with mode if mode is not None else nullcontext():
                yield not _has_compiled()
        finally:
            self._frames = []

    def note_for(self, seconds: float) -> None:
        """Note from now on for at most so many seconds: an operation takes many times as long while it is noted.

        Afterwards it is only forgotten what was noted for storages whose addresses others get.
        """
        self._until = time.perf_counter() + seconds

    def forget(self) -> None:
        """Forget everything: where no operation is noted, others get the addresses of storages."""
        self._made.clear()
        self._seen.clear()

    def line_of(self, tensor: object) -> Line | None:
        """Return the line that made the (first) storage of *tensor*, None if it was not noted."""
        for key, _n_bytes in storages_of(tensor) or ():
            call = self._made.get(key) or self._seen.get(key)
            if call is not None and (line := self._line_of_call(call)) is not None:
                return line
        return self._line_on_device(tensor)

    def stack_of(self, key: int) -> Stack:
        """Return the calls that made the storage with *key*; empty if it is older, or that was not noted."""
        call = self._made.get(key)
        if call is None or self._line_of_call(call) is None:
            return ()
        return tuple(_line_at(each) for _file, each in itertools.islice(call.outward(), N_FRAMES))

    def _line_of_call(self, call: _Call) -> Line | None:
        if call not in self._lines:
            innermost, asking = innermost_and_asking(call.outward(), self._known.__getitem__)
            chosen = asking or innermost
            self._lines[call] = None if chosen is None else _line_at(chosen)
        return self._lines[call]

    def _mode(self) -> AbstractContextManager[Any]:
        import torch  # noqa: PLC0415 - it is loaded, or there is no mode
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

        note, thread, base, strided = self._note, threading.get_ident(), torch.Tensor, torch.strided

        def dispatched(_self: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs) if kwargs else func(*args)
            caller = sys._getframe().f_back  # noqa: SLF001
            if caller is None:  # a thread of autograd's, as each card has one: the code waits in its call of backward()
                caller = sys._current_frames().get(thread)  # noqa: SLF001
            if type(result) is base and result.layout is strided and not result.is_meta:  # nearly all, and soonest
                note(func, result.untyped_storage()._cdata, caller)  # noqa: SLF001
            else:
                for key in _keys_in(result):
                    note(func, key, caller)
            return result

        # Given to the class after its making: torch wraps what it finds before, and the wrapper imports torch._dynamo
        # at the first operation, 820 modules in 0.9 s.
        noting = type("Noting", (TorchDispatchMode,), {})
        noting.__torch_dispatch__ = dispatched  # type: ignore[attr-defined]
        mode: AbstractContextManager[Any] = noting()
        return mode

    def _note(self, func: Any, key: int, frame: FrameType | None) -> None:
        """Note which calls lead to an operation that has the storage with *key* for its result."""
        is_fresh = self._fresh.get(func)
        if is_fresh is None:
            is_fresh = self._fresh[func] = _makes_storages(func)
        if self._until < 0:
            if is_fresh:
                self._made.pop(key, None)
                self._seen.pop(key, None)
            return
        if is_fresh:
            self._made[key] = self._call_of(frame)
        elif key not in self._made and key not in self._seen:
            self._seen[key] = self._call_of(frame)
        self._n_since = (self._n_since + 1) % _N_BETWEEN_LOOKS
        if not self._n_since and time.perf_counter() > self._until:
            self._until = -1.0

    def _call_of(self, frame: FrameType | None) -> _Call:
        """Return the call that *frame* is, made in those around it up to leaklab's own."""
        known, n_frames = self._known, 0
        frames, self._frames = self._frames, None  # another thread that comes here meanwhile has its own
        if frames is None:
            frames = []
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename not in known:
                known[filename] = self._whose(filename)
            if known[filename] is None:
                break
            if n_frames == len(frames):
                frames.append(frame)
            else:
                frames[n_frames] = frame
            n_frames += 1
            frame = frame.f_back
        call = self._outermost
        while n_frames:
            n_frames -= 1
            each: Any = frames[n_frames]
            frames[n_frames] = None
            call = call.to(each.f_code, each.f_lasti)
        self._frames = frames
        return call

    def _line_on_device(self, tensor: object) -> Line | None:
        """Ask torch's own history of device memory, where the user has switched it on."""
        traceback_of = loaded_variables("torch.cuda.memory").get("_allocation_traceback")
        base: Any = loaded_type("torch", "Tensor")
        if traceback_of is None or base is None or not base.is_cuda.__get__(tensor):
            return None
        try:
            frames = traceback_of(base.untyped_storage(tensor).data_ptr()) or ()
        except (RuntimeError, AttributeError):  # a build or a moment without history
            return None
        stack = ((frame["filename"], (frame["filename"], int(frame["line"]), "")) for frame in frames)
        innermost, asking = innermost_and_asking(stack, self._whose)
        return asking or innermost


_N_BETWEEN_LOOKS = 64
"""So many storages are noted between two looks at the clock."""


def _keys_in(result: Any) -> Iterator[int]:
    """Yield the keys of the storages of the tensors that an operation has returned."""
    for tensor in result if is_exactly(result, (tuple, list)) else (result,):
        if is_tensor(tensor):
            yield from (key for key, _n_bytes in storages_of(tensor) or ())


def _line_at(call: _Call) -> Line:
    """Return the line that *call* is at."""
    code: Any = call.code
    lines = (line for start, end, line in code.co_lines() if start <= call.position < end and line is not None)
    return line_in_code(code, next(lines, code.co_firstlineno))


def _makes_storages(func: Any) -> bool:
    """Return whether the results of an operation have storages of their own: its schema knows who aliases whom."""
    if str(func) in _OWN_STORAGE:
        return True
    schema = getattr(func, "_schema", None)
    return schema is not None and all(result.alias_info is None for result in schema.returns)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything: under a mode it would compile all of it anew."""
    return bool(loaded_variables("torch._dynamo.convert_frame").get("FRAME_COUNTER"))
