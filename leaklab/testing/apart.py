"""Run a test repeatedly where it harms no other: in a copy of the process, made after pytest's own turn.

The copy ends with what it has found, so the tests that follow meet the state that one turn has left. A turn that hangs
or crashes ends the copy. It has neither the threads nor the connections of this process. Where no copy is possible, the
turns are made in this process, after pytest's own.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from leaklab.runtime.child import Child, Ran, begin_child, why_no_child
from leaklab.testing.bounded_caches import BoundedCaches
from leaklab.testing.outcome import CheckedTest, not_checked, without_report
from leaklab.testing.repeating import NotRepeatableError, Turns, plugin_packages
from leaklab.testing.screen import leaves_something

if TYPE_CHECKING:
    from leaklab.model import Settings
    from leaklab.testing.baseline import KnownLeak

_WHOLE_SECONDS, _WHOLE_SHARE = 20.0, 2.0
"""So many seconds, and so many times the limit of the runs, a copy may compute, with all that explains a leak."""
_SLOWEST = 10.0
"""So many times as long it may take where the machine is busy, or the test waits."""
_IDLE_SECONDS, _IDLE_RUNS = 10.0, 10.0
"""A copy that has computed nothing for so many seconds and runs waits for what it will never get, such as a thread."""
_NEEDS_CACHES = "needs its caches"
_MOST_HUNG = 2
_RUNS_OF_SUSPECTS = 72
"""A whole check measures so many runs after the quick ones, unless told otherwise: those have followed the growth."""
_IN_WHOLE_CHECKS = frozenset({"numpy", "scipy"})
"""What a whole check brings along that is large: each copy imports them, unless the suite has them anyway."""


class Repeats:
    """Checks one test after pytest's own turn.

    Attributes:
        are_here: Whether turns are being made in this process.
    """

    def __init__(self) -> None:
        self.are_here = False
        self._n_hung = 0
        self._waited_for: set[int | None] = set()

    def check(
        self,
        turns: Turns,
        *,
        settings: Settings,
        seconds: float,
        screened: bool,
        baseline: Mapping[str, KnownLeak],
        known: str,
        told: Mapping[str, str],
        config: pytest.Config,
    ) -> CheckedTest:
        """Run a test repeatedly, and say what that tells.

        Args:
            turns: Of the test.
            settings: How to check.
            seconds: What pytest's own turn took.
            screened: Whether a few runs may show that a whole check is not needed.
            baseline: Leaks that do not count unless they are much worse, by their fingerprints.
            known: Why a leak of this test is accepted; empty if it is not.
            told: The leaks that have been explained in this suite, by their fingerprints, and the test that each was
                of.
            config: Of this run of pytest.
        """
        started = time.perf_counter()

        def check() -> CheckedTest:
            return _check(turns, settings, screened=screened, baseline=baseline, known=known, told=told, config=config)

        def check_with_caches_emptied() -> CheckedTest:
            turns.caches = BoundedCaches()
            return check()

        try:
            if why_no_child():
                checked = self._here(check)
            else:
                checked = self._in_a_copy(check_with_caches_emptied, settings.max_seconds, seconds)
                if dict(checked.properties).get("leaklab_outcome") == _NEEDS_CACHES:
                    checked = self._in_a_copy(check, settings.max_seconds, seconds)
        except Exception as error:  # noqa: BLE001 - a check that fails must not end the suite
            checked = not_checked(f"the check failed: {type(error).__name__}: {error}")
        _drop_output(config)
        took: tuple[str, object] = ("leaklab_seconds", f"{time.perf_counter() - started:.2f}")
        return replace(checked, properties=[*checked.properties, took])

    def _in_a_copy(self, check: Callable[[], CheckedTest], limit_seconds: float, turn_seconds: float) -> CheckedTest:
        threads = {one.ident for one in threading.enumerate() if one is not threading.main_thread()}
        if self._n_hung >= _MOST_HUNG and self._waited_for <= threads:
            return not_checked("it would hang, as others did, in a copy of the process, which has none of its threads")
        checked, hung = _in_a_copy(check, limit_seconds, turn_seconds)
        was_whole = "leaklab_fingerprints" in dict(checked.properties)
        if was_whole and sys.modules.keys() >= _IN_WHOLE_CHECKS:
            with _modules_as_they_are():  # here as well: the next copy has it then
                import_module("leaklab.testing.checking")
        if hung and threads:
            self._n_hung += 1
            self._waited_for = threads
        return checked

    def _here(self, check: Callable[[], CheckedTest]) -> CheckedTest:
        numbers = random.getstate()
        self.are_here = True
        try:
            return check()
        finally:
            self.are_here = False
            random.setstate(numbers)


def _check(
    turns: Turns,
    settings: Settings,
    *,
    screened: bool,
    baseline: Mapping[str, KnownLeak],
    known: str,
    told: Mapping[str, str],
    config: pytest.Config,
) -> CheckedTest:
    with turns.between():
        try:
            if screened and not leaves_something(turns.run, settings.max_seconds, turns.caches):
                return without_report("clean", "the quick test found no leak")
            # Here only: a suite that has no torch gets none, and one without leaks pays for none of it.
            with _modules_as_they_are():
                from leaklab.testing.checking import whole_check  # noqa: PLC0415

            if screened and settings.max_runs is None:
                settings = replace(settings, max_runs=_RUNS_OF_SUSPECTS)
            return whole_check(
                turns, settings=settings, baseline=baseline, known=known, told=told, plugins=plugin_packages(config)
            )
        except NotRepeatableError as error:
            needs_caches = turns.caches is not None and turns.caches.are_emptied
            return without_report(_NEEDS_CACHES if needs_caches else "not repeatable", str(error))


def _in_a_copy(check: Callable[[], CheckedTest], limit_seconds: float, turn_seconds: float) -> tuple[CheckedTest, bool]:
    """Return what *check* tells in a copy of the process, and whether the copy hung."""

    def work() -> Generator[None, Ran, CheckedTest]:
        # Tracers look at every line, keep what they see, and write it down in the process that has begun them.
        sys.settrace(None)
        threading.settrace(None)
        _close_connections()
        yield from ()
        return check()

    computing_seconds = _WHOLE_SECONDS + _WHOLE_SHARE * limit_seconds
    beginning = begin_child(
        work,
        seconds=_SLOWEST * computing_seconds,
        computing_seconds=computing_seconds,
        idle_seconds=_IDLE_SECONDS + _IDLE_RUNS * turn_seconds,
    )
    try:
        next(beginning)
    except StopIteration as stop:
        child: Child[CheckedTest] = stop.value
    except OSError as error:
        return not_checked(f"the system could not start another process: {error}"), False
    with ExitStack() as ending:
        ending.callback(child.kill)
        child.wait()
    if child.answer is not None:
        return child.answer, False
    return not_checked(child.failure), "hung" in child.failure


@contextmanager
def _modules_as_they_are() -> Iterator[None]:
    """Import inside without what pytest does to the assertions of every module of a plug-in.

    Where nothing may be written (containers are often set up so) pytest would compile all of leaklab anew for each test
    that leaks.
    """
    finders = sys.meta_path[:]
    sys.meta_path[:] = [finder for finder in finders if not type(finder).__module__.startswith("_pytest.")]
    try:
        yield
    finally:
        sys.meta_path[:] = finders


def _close_connections() -> None:
    """Let the copy have no connection of its parent's: what it would say on one, the other side takes for the parent's.

    These are the sockets whose peer has a name: a server, a display, a database. Pairs of sockets have none.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as names
        with suppress(OSError):
            number = int(name)
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=os.dup(number)) as copied:
                is_connected = bool(copied.getpeername())
            if is_connected:
                dead, other = socket.socketpair()
                other.close()
                with dead:
                    os.dup2(dead.fileno(), number, inheritable=os.get_inheritable(number))


def _drop_output(config: pytest.Config) -> None:
    """Take away what a turn that was ended on its way has left in pytest's files: the next test would show it."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None and capture.is_globally_capturing():
        with suppress(Exception):
            capture.read_global_capture()
