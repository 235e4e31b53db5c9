"""Watch a block of code from inside: what it calls anyway, as an optimizer, is the clock of its loop.

The code is not changed and calls nothing of leaklab's. A step is a step of the first optimizer that makes one; where
none does, a batch of a DataLoader. The loop is then watched as by `leaklab.monitor`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from leaklab.loop.monitor import Monitor
from leaklab.model.loop import StateChange
from leaklab.reports.loop import MonitorReport
from leaklab.runtime.objects import type_name

if TYPE_CHECKING:
    from typing_extensions import Self

_WITHOUT_OPTIMIZER = 10
"""After so many batches without a step of an optimizer these are the clock, ..."""
_WITHOUT_CLOCK = 10
"""... and after so many steps of another optimizer, while the first makes none, the other one is."""
_NO_CLOCK = "no optimizer made a step and no DataLoader gave ten batches, so no steps were counted"


class BlockWatch:
    """Watches the loop in a ``with`` block, whatever it is; used once.

    Steps are counted in the thread that enters the block.

    Args:
        name: What to call the loop.
        namespace: The variables among which holders are looked for first.
        not_before: In the first so many seconds of the loop the heap is not looked at: what ends by then can be
            checked by repeating it.
        on_change: Called with each `StateChange`.
        quiet: Whether nothing is printed.

    Attributes:
        monitor: Of the loop; it runs from the first step on.
        clock: What a step is, such as ``a step of the optimizer torch.optim.adam.Adam``; empty before the first.

    Example::

        with BlockWatch("cell", vars(module)) as watch:
            exec(code, vars(module))
        watch.report()
    """

    def __init__(
        self,
        name: str = "",
        namespace: dict[str, Any] | None = None,
        *,
        not_before: float = 0.0,
        on_change: Callable[[StateChange], object] | None = None,
        quiet: bool = True,
    ) -> None:
        self.monitor = Monitor(name, namespace=namespace, not_before=not_before, on_change=on_change, quiet=quiet)
        self._hooks = ExitStack()
        self._here = 0, 0
        self._clock: Callable[[], object | None] | None = None  # a weak reference to the optimizer that is the clock
        self._n_batches = self._n_others = 0
        self._is_started = self._is_ended = False
        self.clock = ""

    def __enter__(self) -> Self:
        self._here = os.getpid(), threading.get_ident()
        self._hooks.callback(register_optimizer_step_post_hook(self._after_step).remove)
        self._hooks.callback(_told_before_batches(self._before_batch))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del error, traceback  # they keep the frames of the loop
        self._is_ended = True
        self._hooks.close()
        self.monitor.stop("" if kind is None else kind.__name__)

    @property
    def n_steps(self) -> int:
        """Steps that were counted so far."""
        return self.monitor.status.step

    def report(self) -> MonitorReport:
        """Return what is known of the loop now; a note says what a step was."""
        record = self.monitor.record
        words = f"a step is {self.clock}" if self.clock else _NO_CLOCK
        return MonitorReport(replace(record, notes=(words, *record.notes)))

    def _after_step(self, optimizer: object, args: object, kwargs: object) -> None:
        del args, kwargs  # not one more reference to them while the heap is looked at
        clock = None if self._clock is None else self._clock()
        self._n_others = 0 if clock is optimizer else self._n_others + 1
        if clock is None or self._n_others > _WITHOUT_CLOCK:
            self._n_others = 0
            self._clock = weakref.ref(optimizer)
            self.clock = f"a step of the optimizer {type_name(type(optimizer))}"
        elif clock is not optimizer:
            return
        del clock, optimizer
        self._count()

    def _before_batch(self) -> None:
        """Count the step before this batch, where batches are the clock."""
        if self._clock is not None:
            return
        self._n_batches += 1
        if self._n_batches > _WITHOUT_OPTIMIZER:
            self.clock = "a batch of a DataLoader"
            self._count()

    def _count(self) -> None:
        if self._is_ended or self._here != (os.getpid(), threading.get_ident()):
            return
        if not self._is_started:
            self._is_started = True
            self.monitor.start()
        self.monitor.step()


def _told_before_batches(note: Callable[[], None]) -> Callable[[], None]:
    """Call *note* whenever a DataLoader is asked for its next batch; return what ends that."""
    kind: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - what every iterator of a loader is
    following = kind.__next__

    def __next__(batches: Any) -> Any:  # noqa: N807 - stands in for it
        note()
        return following(batches)

    def put_back() -> None:
        kind.__next__ = following

    kind.__next__ = __next__
    return put_back
