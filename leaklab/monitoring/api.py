"""`leaklab.monitor` and `leaklab.steps`: watch a loop that runs once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from leaklab.model.monitor import StateChange
from leaklab.monitoring.monitor import Monitor

Item = TypeVar("Item")


def monitor(
    name: str = "",
    *,
    total_steps: int | None = None,
    namespace: dict[str, Any] | None = None,
    roots: Mapping[str, object] | None = None,
    overhead: float = 0.01,
    first_step: int = 200,
    on_change: Callable[[StateChange], object] | None = None,
    fail: bool = False,
    quiet: bool = False,
    group: Any = None,
    group_timeout: float = 300.0,
) -> Monitor:
    """Return a monitor of a loop that runs once: it says what grows, since which step, who holds it, and when it dies.

    Args:
        name: What to call the loop.
        total_steps: Steps of the whole loop; it says whether a growth matters before the end. None if nobody knows.
        namespace: The variables among which holders are looked for first; by default the caller's globals.
        roots: Objects by the names they shall have in what is reported, such as ``{"trainer": trainer}``; held weakly.
        overhead: The share of the loop's time that watching may take in the long run. A check of a stretch takes some
            seconds, in pauses; the first is made in any case.
        first_step: The first check begins after so many steps, earlier where *total_steps* is small.
        on_change: Called with each `StateChange`; what it raises ends the loop.
        fail: Whether to raise `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed; otherwise one line for each change of a state.
        group: The ranks that run this loop, a ``torch.distributed.ProcessGroup``, or True for all of the job: they
            check the same stretches, and look at the same steps. Each of them has to be given it.
        group_timeout: So many seconds a rank waits at such a step for the others; then it goes on alone.

    Raises:
        TypeError: if an argument is of the wrong type, or a root cannot be referred to weakly.
        ValueError: if a number is out of range.

    Example::

        with leaklab.monitor(total_steps=100_000) as watch:
            for batch in loader:
                train(batch)
                watch.step()
        watch.report
    """
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's globals
    return Monitor(
        name,
        total_steps=total_steps,
        namespace=variables,
        roots=roots,
        overhead=overhead,
        first_step=first_step,
        on_change=on_change,
        fail=fail,
        quiet=quiet,
        group=group,
        group_timeout=group_timeout,
    )


class WatchedSteps(Generic[Item]):
    """Items of a loop with a monitor around them; `leaklab.steps` makes it.

    Attributes:
        monitor: Watches from the first item to the last, or until the loop is left.
    """

    def __init__(self, items: Iterable[Item], watch: Monitor) -> None:
        self._items = items
        self.monitor = watch

    def __iter__(self) -> Iterator[Item]:
        with self.monitor:
            yield from self.monitor.steps(self._items)


def steps(
    items: Iterable[Item],
    name: str = "",
    *,
    total_steps: int | None = None,
    namespace: dict[str, Any] | None = None,
    overhead: float = 0.01,
    first_step: int = 200,
    on_change: Callable[[StateChange], object] | None = None,
    fail: bool = False,
    quiet: bool = False,
    group: Any = None,
    group_timeout: float = 300.0,
) -> WatchedSteps[Item]:
    """Return *items*, to be gone through once, with a monitor around the loop: ``for batch in leaklab.steps(loader):``.

    A loop of several epochs has one monitor for all of them: ``for batch in watch.steps(loader)`` inside of
    ``with leaklab.monitor() as watch``.

    Args:
        items: Batches, epochs, numbers: a step of the loop is made with each.
        name: As of `monitor`, like all that follows.
        total_steps: By default the length of *items*, if they have one.
        namespace: The variables among which holders are looked for first.
        overhead: The share of the loop's time that watching may take in the long run.
        first_step: The first check begins after so many steps.
        on_change: Called with each `StateChange`.
        fail: Whether to raise `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed.
        group: The ranks that run this loop.
        group_timeout: So many seconds a rank waits for the others.

    Raises:
        TypeError: if *items* cannot be gone through, or another argument is of the wrong type.
        ValueError: if a number is out of range.
    """
    if not hasattr(type(items), "__iter__"):
        msg = f"leaklab.steps goes through batches or other items, not {type(items).__name__}"
        raise TypeError(msg)
    if total_steps is None:
        try:
            total_steps = len(items) or None  # type: ignore[arg-type]  # most have a length
        except TypeError:
            total_steps = None
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's globals
    watch = Monitor(
        name,
        total_steps=total_steps,
        namespace=variables,
        overhead=overhead,
        first_step=first_step,
        on_change=on_change,
        fail=fail,
        quiet=quiet,
        group=group,
        group_timeout=group_timeout,
    )
    return WatchedSteps(items, watch)
