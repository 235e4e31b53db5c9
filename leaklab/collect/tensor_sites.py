"""Note for every storage the line of the user's code that made it.

tracemalloc knows the Python object of a tensor, not its storage, and most tensors that an autograd graph saves have no
Python object. A dispatch mode sees every operation with its results, on every device. Per operation it costs 36 us
where the stack of anomaly mode costs 72 us, with 9 us for the operation itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from leaklab.collect.copy_sites import frames_from, innermost_and_asking, line_of
from leaklab.collect.line_watch import Line, Whose
from leaklab.objects import is_exactly, is_tensor, loaded_type
from leaklab.tensors import storages_of

_OWN_STORAGE = "aten.lift_fresh.default"
"""Says that its result is its argument, which however was made a moment ago where no mode can see it."""


class StorageLines:
    """The line that made each storage, as far as it was noted.

    Args:
        whose: Tells whose code a file is.
    """

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._known: dict[str, bool | None] = {}
        self._lines: dict[int, Line] = {}
        self._fresh: dict[Any, bool] = {}

    @contextmanager
    def noted(self) -> Iterator[bool]:
        """Note what is made inside; the value is False where torch.compile was used, which a mode would disturb."""
        mode = None if "torch" not in sys.modules or _has_compiled() else self._mode()
        with mode if mode is not None else nullcontext():
            yield not _has_compiled()

    def line_of(self, tensor: object) -> Line | None:
        """Return the line that made the (first) storage of *tensor*, None if it was not noted."""
        for key, _n_bytes in storages_of(tensor) or ():
            if key in self._lines:
                return self._lines[key]
        return self._line_on_device(tensor)

    def _mode(self) -> AbstractContextManager[Any]:
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - torch is loaded, or not wanted

        note = self._note

        def dispatched(_self: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            note(func, result, sys._getframe(1))  # noqa: SLF001
            return result

        # Given to the class after its making: torch wraps what it finds before, and the wrapper imports torch._dynamo
        # at the first operation, 820 modules in 0.9 s.
        noting = type("Noting", (TorchDispatchMode,), {})
        noting.__torch_dispatch__ = dispatched  # type: ignore[attr-defined]
        mode: AbstractContextManager[Any] = noting()
        return mode

    def _note(self, func: Any, result: Any, frame: FrameType | None) -> None:
        results = result if is_exactly(result, (tuple, list)) else (result,)
        tensors = [thing for thing in results if is_tensor(thing)]
        if not tensors:
            return
        innermost, asking = innermost_and_asking(frames_from(frame), self._is_users)
        line = line_of(asking or innermost)
        if line is None:
            return
        is_fresh = self._fresh.get(func)
        if is_fresh is None:
            is_fresh = self._fresh[func] = _makes_storages(func)
        for tensor in tensors:
            for key, _n_bytes in storages_of(tensor) or ():
                if is_fresh:
                    self._lines[key] = line
                else:
                    self._lines.setdefault(key, line)

    def _is_users(self, filename: str) -> bool | None:
        try:
            return self._known[filename]
        except KeyError:
            return self._known.setdefault(filename, self._whose(filename))

    def _line_on_device(self, tensor: object) -> Line | None:
        """Ask torch's own history of device memory, where the user has switched it on."""
        memory = sys.modules.get("torch.cuda.memory")
        traceback_of = getattr(memory, "_allocation_traceback", None)
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


def _makes_storages(func: Any) -> bool:
    """Return whether the results of an operation have storages of their own: its schema knows who aliases whom."""
    if str(func) == _OWN_STORAGE:
        return True
    schema = getattr(func, "_schema", None)
    return schema is not None and all(result.alias_info is None for result in schema.returns)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything: under a mode it would compile all of it anew."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return bool(getattr(frames, "FRAME_COUNTER", 0))
