"""Run one test of pytest again and again: its setup, its body, its teardown; what wider fixtures made stays.

Each turn goes the way on which pytest itself runs a test that is run again, so that plug-ins find what they expect;
but nobody is told of its reports. pytest keeps something of every turn. Each turn is cleaned of that, else every test
with a fixture of the module's would leak: a finalizer is added to every wider fixture that a narrower one has asked
for (pytest#4871).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_LISTS = ("_report_sections", "own_markers", "user_properties")
_OF_FIXTURES = ("_arg2node2fixturedefs", "_arg2nodeid2fixturedefs", "_arg2fixturedefs")  # the last before pytest 9


class NotRepeatableError(Exception):
    """A turn did not end as a test that passes; the message says how."""


class _Wider:
    """Stands for a next test that shares all with this one but the test itself, for pytest's teardown."""

    def __init__(self, item: pytest.Item) -> None:
        self._chain = item.listchain()[:-1]

    def listchain(self) -> list[Any]:
        """Return the collectors whose fixtures stay."""
        return self._chain


class Turns:
    """The turns of one test.

    Args:
        item: The test; a function, a method, a doctest.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item: Any = item
        self._wider: Any = _Wider(item)
        doctest = getattr(item, "dtest", None)
        self._doctest_globals: dict[str, Any] = {} if doctest is None else dict(doctest.globs)
        self._failed_parts: list[str] = []
        self._n_turns = 0

    def run(self) -> None:
        """Run the test once.

        Raises:
            NotRepeatableError: if it is skipped, or raises anything.
        """
        with self._cleaned(), self._untold(), warnings.catch_warnings(record=True):
            reports = runtestprotocol(self._item, log=False, nextitem=self._wider)
        self._n_turns += 1
        parts = "one of its subtests fails" if self._failed_parts else ""
        ended = next(filter(None, map(_how_it_ended, reports)), parts)
        if ended:
            msg = f"not checked: {ended}" if self._n_turns == 1 else f"not repeatable: in run {self._n_turns} {ended}"
            raise NotRepeatableError(msg)

    def variables(self, plugins: Collection[str]) -> dict[str, Any] | None:
        """Return the variables among which holders are looked for first, after a turn.

        What the test's wider fixtures returned, by their names; those of the test's module where it uses none.

        Args:
            plugins: Packages of installed plug-ins. Which of these there are must not decide on a holder's name.
        """
        values: dict[str, Any] = {}
        info = getattr(self._item, "_fixtureinfo", None)
        definitions = {} if info is None else info.name2fixturedefs
        for fixture in (one for several in definitions.values() for one in several):
            result = getattr(fixture, "cached_result", None)
            home = (getattr(fixture.func, "__module__", None) or "").partition(".")[0]
            if (
                result is not None
                and result[2] is None
                and fixture.scope != "function"
                and home not in {"_pytest", *plugins}
            ):
                values[fixture.argname] = result[0]
        return values or getattr(getattr(self._item, "module", None), "__dict__", None)

    @contextmanager
    def _untold(self) -> Iterator[None]:
        """Tell no plug-in of the reports of this turn: those of subtests are given out while the test runs."""
        told_instead: dict[str, Callable[..., None]] = {
            "pytest_runtest_logreport": self._note_part,
            "pytest_exception_interact": _tell_nobody,
        }
        with ExitStack() as undoing:
            for hooks in {id(one): one for one in (self._item.ihook, self._item.config.hook)}.values():
                for name, told in told_instead.items():
                    before = vars(hooks).get(name)
                    setattr(hooks, name, told)
                    undoing.callback(_put_back, hooks, name, before)
            yield

    def _note_part(self, *, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed_parts.append(report.nodeid)

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Prepare a turn; afterwards take away what pytest keeps of it."""
        item = self._item
        lists = [vars(item)[name] for name in _LISTS if name in vars(item)]
        lengths = list(map(len, lists))
        set_up = [
            (fixture, fixture.cached_result, len(fixture._finalizers))
            for fixture in self._all_fixtures()
            if fixture.cached_result is not None
        ]
        function = vars(item).get("_obj")
        if self._doctest_globals:
            item.dtest.globs.update(self._doctest_globals)
        self._failed_parts.clear()
        try:
            yield
        finally:
            for kept, length in zip(lists, lengths, strict=True):
                del kept[length:]
            for fixture, result, length in set_up:
                if fixture.cached_result is result:  # else it was torn down, or set up anew: these are its own
                    del fixture._finalizers[length:]
            self._bring_back(function)
            self._forget_failed_parts()
            if self._doctest_globals:
                item.dtest.globs.update(self._doctest_globals)

    def _bring_back(self, function: object) -> None:
        """Undo what is done to the test's function: plug-ins wrap it, a method belongs to the instance of one turn."""
        item = self._item
        vars(item).pop("_instance", None)
        vars(item).pop("_obj", None)
        if function is not None and not isinstance(item.parent, pytest.Class):
            item._obj = function
        vars(item).pop("_excinfo", None)  # what a unittest raised, which the next report would show

    def _all_fixtures(self) -> list[Any]:
        """Return the fixtures of the whole suite: a test may ask for any of them while it runs."""
        manager = vars(self._item.session._fixturemanager)
        info = getattr(self._item, "_fixtureinfo", None)
        several = [] if info is None else list(info.name2fixturedefs.values())
        for name in _OF_FIXTURES:
            for found in manager.get(name, {}).values():
                several += found.values() if isinstance(found, dict) else [found]
        return list({id(one): one for some in several for one in some if hasattr(one, "_finalizers")}.values())

    def _forget_failed_parts(self) -> None:
        """Take back what pytest notes of subtests that fail: the test would fail with them at its end."""
        try:
            from _pytest.subtests import failed_subtests_key  # noqa: PLC0415 - from pytest 9 on
        except ImportError:
            return
        noted = self._item.config.stash.get(failed_subtests_key, {})
        for test in self._failed_parts:
            noted.pop(test, None)
        noted.pop(getattr(self._item, "id", None), None)


def _how_it_ended(report: pytest.TestReport) -> str:
    """Return in a few words what *report* says of a turn that did not pass; empty where it did."""
    if hasattr(report, "wasxfail"):
        return "it is expected to fail"
    if report.passed:
        return ""
    if report.skipped:
        return "it is skipped"
    words = "the test fails" if report.when == "call" else f"its {report.when} fails"
    crash = getattr(report.longrepr, "reprcrash", None)  # a doctest has none
    said = crash.message.strip().splitlines() if crash is not None else ()
    return f"{words}: {said[0][:120]}" if said else words


def _tell_nobody(**_what: object) -> None:
    """Stand for a hook that is not called."""


def _put_back(hooks: Any, name: str, before: object) -> None:
    if before is None:
        delattr(hooks, name)
    else:
        setattr(hooks, name, before)
