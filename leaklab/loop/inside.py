"""Watch a block of code from inside: what it calls anyway, as an optimizer, is the clock of its loop.

The code is not changed and calls nothing of leaklab's. What a step is, `leaklab.loop.clocks` finds out. The loop is
then watched as by `leaklab.monitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leaklab.loop.clocks import StepClock

if TYPE_CHECKING:
    from typing_extensions import Self

    from leaklab.loop.monitor import Monitor
    from leaklab.model.loop import StateChange
    from leaklab.reports.loop import MonitorReport


class BlockWatch:
    """Watches the loop in a ``with`` block, whatever it is; used once.

    Until the first step it imports nothing that the block has not imported.

    Args:
        name: What to call the loop.
        namespace: The variables among which holders are looked for first.
        total_steps: Steps of the whole loop; None if nobody knows.
        not_before: In the first so many seconds of the loop the heap is not looked at: what ends by then can be
            checked by repeating it.
        on_change: Called with each `StateChange`.
        quiet: Whether nothing is printed.
        any_thread: Whether the loop may run in any thread; otherwise in the one that enters the block.
        named: A function whose calls are the steps, as for `StepClock`.
        in_worker: As for `StepClock`; a child's watch is another one, of its own loop.

    Attributes:
        n_steps: Steps that were counted so far.

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
        total_steps: int | None = None,
        not_before: float = 0.0,
        on_change: Callable[[StateChange], object] | None = None,
        quiet: bool = True,
        any_thread: bool = False,
        named: str = "",
        in_worker: Callable[[], None] | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "total_steps": total_steps,
            "not_before": not_before,
            "on_change": on_change,
            "quiet": quiet,
        }
        self._clock = StepClock(
            self._count, self._begin_again, self._turn, any_thread=any_thread, named=named, in_worker=in_worker
        )
        self._monitor: Monitor | None = None
        self._before: list[str] = []
        self._is_ended = self._is_counting = False
        self._then: Callable[[], object] | None = None
        self.n_steps = 0

    def __enter__(self) -> Self:
        self._clock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del error, traceback  # they keep the frames of the loop
        self.end("" if kind is None else kind.__name__)

    def end(self, failure: str = "") -> None:
        """End the watch with what it has found; *failure* names what ended the block before its time."""
        self._is_ended = True
        self._clock.__exit__()
        if self._monitor is not None:
            self._monitor.stop(failure)

    @property
    def monitor(self) -> Monitor:
        """The monitor of the loop; it runs from the first step on."""
        from leaklab.loop.monitor import Monitor  # noqa: PLC0415 - it imports what the block may never need

        if self._monitor is None:
            self._monitor = Monitor(**self._options)
        return self._monitor

    @property
    def clock(self) -> str:
        """What a step is, such as ``a step of the optimizer torch.optim.adam.Adam``; empty before the first."""
        return self._clock.words

    def note_named(self) -> None:
        """Note that the function that was named has been called."""
        self._clock.note_named()

    @property
    def missing(self) -> str:
        """Why no step was counted."""
        return self._clock.missing

    @property
    def is_elsewhere(self) -> bool:
        """Whether the loop runs in another thread, which has not ended."""
        return self._clock.is_elsewhere

    def rename(self, name: str) -> None:
        """Call the loop so from its first step on."""
        self._options["name"] = name

    def when_idle(self, act: Callable[[], object]) -> None:
        """Call *act* now, or after the step that is being counted: a handler of a signal may come in its midst."""
        if self._is_counting:
            self._then = act
        else:
            act()

    def report(self) -> MonitorReport:
        """Return what is known of the loop now; a note says what a step was."""
        from leaklab.reports.loop import MonitorReport  # noqa: PLC0415 - as above

        record = self.monitor.record
        words = f"a step is {self.clock}" if self.clock else self._clock.missing
        return MonitorReport(replace(record, notes=(words, *self._before, *record.notes)))

    def _count(self, n_steps: int) -> None:
        if self._is_ended:
            return
        with self._as_counting():
            if self._monitor is None:
                self.monitor.start()
            self.n_steps += n_steps
            self.monitor.step(n_steps)

    def _turn(self) -> None:
        """Go on with the same monitor: the program trains something else from now on."""
        if self._monitor is not None and not self._is_ended:
            with self._as_counting():
                self._monitor.begin_again()

    @contextmanager
    def _as_counting(self) -> Iterator[None]:
        self._is_counting = True
        try:
            yield
        finally:
            self._is_counting = False
            then, self._then = self._then, None
            if then is not None:
                then()

    def _begin_again(self) -> None:
        """Begin with another monitor: steps of another clock are steps of another loop."""
        before, self._monitor, self.n_steps = self._monitor, None, 0
        if before is not None:
            before.on_change = None
            before.stop("GeneratorExit")  # what is being looked at is given up
            if before.record.places:
                self._before.append(f"when a step was {self.clock}: {before.report!r}")
