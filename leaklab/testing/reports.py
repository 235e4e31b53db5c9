"""Hold back what pytest tells of a test until it is known whether the test leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

_TELLING = ("pytest_runtest_logstart", "pytest_runtest_logreport", "pytest_runtest_logfinish")


class _StandIn:
    """Stands for a hook: calls go to a function, all else to the hook, so that plug-ins come and go while a test runs.

    pluggy asks every hook whether it has a function of the plug-in that leaves.
    """

    def __init__(self, hook: Any, function: Callable[..., object]) -> None:
        self._stands_for = hook
        self._function = function

    def __call__(self, **what: Any) -> object:
        return self._function(**what)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stands_for, name)


@contextmanager
def hooks_replaced(item: pytest.Item, instead: Mapping[str, Callable[..., object]]) -> Iterator[None]:
    """Call these functions in place of the hooks of their names, wherever *item* is run."""
    with ExitStack() as undoing:
        for hooks in {id(one): one for one in (item.ihook, item.config.hook)}.values():
            for name, function in instead.items():
                before = vars(hooks).get(name)
                setattr(hooks, name, _StandIn(getattr(hooks, name), function))
                undoing.callback(_put_back, hooks, name, before)
        yield


def _put_back(hooks: Any, name: str, before: object) -> None:
    if before is None:
        delattr(hooks, name)
    else:
        setattr(hooks, name, before)


class HeldReports:
    """Lets pytest run a test as ever, and holds back what it tells from the moment on when the test has passed.

    What is told before goes out at once: ``--exitfirst`` and its like look at it while the test runs.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._held: list[tuple[str, dict[str, Any]]] = []
        self._has_failed_part = False
        self._tell: dict[str, Callable[..., object]] = {name: getattr(item.ihook, name) for name in _TELLING}

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold back, while the test runs."""
        with hooks_replaced(self._item, {name: partial(self._told, name) for name in _TELLING}):
            yield

    def _told(self, name: str, **what: Any) -> None:
        report = what.get("report")
        is_part = hasattr(report, "context")  # of a subtest
        self._has_failed_part |= is_part and report is not None and bool(report.failed)
        passed = report is not None and not is_part and report.when == "call" and report.passed
        if self._held or (passed and not hasattr(report, "wasxfail")):
            self._held.append((name, what))
        else:
            self._tell[name](**what)

    def _last(self, when: str) -> pytest.TestReport | None:
        told = [what["report"] for _name, what in self._held if "report" in what]
        return next((one for one in reversed(told) if one.when == when and not hasattr(one, "context")), None)

    @property
    def passed(self) -> pytest.TestReport | None:
        """The report of the test itself, where it passed to its very end; None for any other."""
        call, teardown = self._last("call"), self._last("teardown")
        if call is None or teardown is None or self._has_failed_part:
            return None
        return call if call.passed and teardown.passed else None

    def add_properties(self, properties: list[tuple[str, object]]) -> None:
        """Add to the reports of the test and of its end: JUnit reads them with its end."""
        for report in (self._last("call"), self._last("teardown")):
            if report is not None:
                report.user_properties += properties

    def give_out(self) -> None:
        """Tell what was held back."""
        held, self._held = self._held, []
        for name, what in held:
            self._tell[name](**what)
