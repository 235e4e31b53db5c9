"""Run one test of pytest again and again: its setup, its body, its teardown; what wider fixtures made stays.

Each turn goes the way on which pytest itself runs a test that is run again, so that plug-ins find what they expect;
but nobody is told of its reports. pytest keeps something of every turn. Each turn is cleaned of that, else every test
with a fixture of the module's would leak: a finalizer is added to every wider fixture that a narrower one has asked
for (pytest#4871).
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

from leaklab.testing.bounded_caches import BoundedCaches
from leaklab.testing.reports import hooks_replaced

_OF_FIXTURES = ("_arg2node2fixturedefs", "_arg2nodeid2fixturedefs", "_arg2fixturedefs")  # the last before pytest 9
_LONGEST_REASON = 120
_OF_HYPOTHESIS = "_hypothesis_internal_use_settings"
"""The attribute of a function that Hypothesis runs where its settings are."""


class NotRepeatableError(Exception):
    """A turn did not end as a test that passes; the message says how."""


class _NoWarning:
    """Stands for pytest's hooks where the warnings of a turn are to be told."""

    @property
    def pytest_warning_recorded(self) -> _NoWarning:
        return self

    def call_historic(self, **_what: object) -> None:
        """Tell nobody."""


class Turns:
    """The turns of one test, after the one that pytest itself has made.

    What plug-ins see is a suite in which the test stands several times: the next test is a twin of this one, with the
    same parents, and after the last turn the one that pytest will run next. Wider fixtures that pytest has torn down
    already are set up anew for the turns, and torn down after the last.

    Args:
        item: The test; a function, a method, a doctest. It has not been run yet.
        nextitem: What pytest runs next; None after the last test.

    Attributes:
        file: The path of the test's module.
        caches: Those that are emptied after each turn; None for none.
    """

    def __init__(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self.caches: BoundedCaches | None = None
        self._item: Any = item
        self.file = str(item.path)
        self._nextitem = nextitem
        doctest = getattr(item, "dtest", None)
        self._doctest_globals: dict[str, Any] = {} if doctest is None else dict(doctest.globs)
        self._function = vars(item).get("_obj")
        self._failed_parts: list[str] = []
        self._n_turns = 1
        self._kept_by_plugins: list[Any] = []

    def run(self) -> None:
        """Run the test once.

        Raises:
            NotRepeatableError: if it is skipped, or raises anything.
        """
        self._n_turns += 1
        ended = self._turn(self._twin)
        if self.caches is not None:
            self.caches.empty()
        if ended:
            msg = f"not repeatable: in run {self._n_turns} {ended}"
            raise NotRepeatableError(msg)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Make turns inside; afterwards what pytest has set up is as before."""
        session = self._item.session
        stops = session.shouldstop, session.shouldfail
        self._bring_back()
        self._twin = copy(self._item)
        self._kept_by_plugins = _kept_by_plugins(self._item.config)
        parents = self._item.listchain()[:-1]
        stays = self._nextitem is not None and self._nextitem.listchain()[: len(parents)] == parents
        try:
            yield
        finally:
            _go_on(session, stops)
            if not stays:
                with suppress(Exception):
                    self._turn(self._nextitem)
            with suppress(Exception):
                session._setupstate.teardown_exact(self._nextitem)  # nothing is left to do, unless a hook has failed
            _go_on(session, stops)
            del self._twin

    def _turn(self, nextitem: Any) -> str:
        """Run the test once; return how it ended, in a few words, empty if it passed."""
        try:
            with self._cleaned(), self._untold(), self._warnings_caught(), _any_instance_allowed(self._function):
                reports = runtestprotocol(self._item, log=False, nextitem=nextitem)
        except pytest.exit.Exception as ended:
            return f"it ends the session: {ended}"
        parts = "one of its subtests fails" if self._failed_parts else ""
        return next(filter(None, map(_how_it_ended, reports)), parts)

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
        with hooks_replaced(
            self._item,
            {"pytest_runtest_logreport": self._note_part, "pytest_exception_interact": _tell_nobody},
        ):
            yield

    @contextmanager
    def _warnings_caught(self) -> Iterator[None]:
        """Filter warnings as pytest does for this test, and tell nobody of them."""
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings(record=True))
            if self._item.config.pluginmanager.has_plugin("warnings"):
                caught = catch_warnings_for_item(self._item.config, _NoWarning(), "runtest", self._item)
                stack.enter_context(caught)
            yield

    def _note_part(self, *, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed_parts.append(report.nodeid)

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Prepare a turn; afterwards take away what pytest keeps of it."""
        item = self._item
        # Of pytest itself, such as `_report_sections`, and of plug-ins, which count on their own way of running a test.
        kept_by_all = (*vars(item).values(), *self._kept_by_plugins)
        lists = [value for value in kept_by_all if type(value) is list]
        lengths = list(map(len, lists))
        tables = [(value, set(value)) for value in kept_by_all if type(value) is dict]
        set_up = [
            (fixture, fixture.cached_result, len(fixture._finalizers))
            for fixture in self._all_fixtures()
            if fixture.cached_result is not None
        ]
        self._failed_parts.clear()
        folders = set(sys.path_importer_cache)
        try:
            yield
        finally:
            _forget_folders(folders)
            for kept, length in zip(lists, lengths, strict=True):
                del kept[length:]
            for table, keys in tables:
                for key in [one for one in table if one not in keys]:
                    del table[key]
            for fixture, result, length in set_up:
                if fixture.cached_result is result:  # else it was torn down, or set up anew: these are its own
                    del fixture._finalizers[length:]
            self._bring_back()
            self._forget_failed_parts()

    def _bring_back(self) -> None:
        """Undo what is done to the test's function: plug-ins wrap it, a method belongs to the instance of one turn."""
        item, function = self._item, self._function
        if self._doctest_globals:
            item.dtest.globs.update(self._doctest_globals)
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


def plugin_packages(config: pytest.Config) -> frozenset[str]:
    """Return the packages of the plug-ins that were installed, not those of the suite itself."""
    modules = (plugin for plugin, _distribution in config.pluginmanager.list_plugin_distinfo())
    return frozenset(getattr(module, "__name__", "").partition(".")[0] for module in modules)


@contextmanager
def _any_instance_allowed(function: object) -> Iterator[None]:
    """Let Hypothesis run a method on another instance than the first, and put its settings back after the turn.

    It fails a method that is run on several instances, as the test might belong to several classes. For parametrized
    tests its plug-in allows that itself, by new settings in each turn that keep those of the turn before.
    """
    wrapped = getattr(function, "__func__", function)
    settings: Any = getattr(wrapped, _OF_HYPOTHESIS, None)
    checks = getattr(sys.modules.get("hypothesis"), "HealthCheck", None)
    check = getattr(checks, "differing_executors", None)  # older ones have no such check
    if settings is None or check is None:
        yield
        return
    suppressed = {check, *settings.suppress_health_check}
    setattr(wrapped, _OF_HYPOTHESIS, type(settings)(parent=settings, suppress_health_check=suppressed))
    try:
        yield
    finally:
        setattr(wrapped, _OF_HYPOTHESIS, settings)


def _kept_by_plugins(config: Any) -> list[Any]:
    """Return the lists and dicts in which installed plug-ins note something of each test, such as its results.

    They are attributes of what a plug-in has registered, or has put on the configuration. pytest notes in lists which
    plug-ins were ever registered.
    """
    packages = plugin_packages(config)
    objects = [*config.pluginmanager.get_plugins(), *vars(config).values()]
    found: dict[int, Any] = {}
    for thing in objects:
        kind = type(thing)
        if str(kind.__module__).partition(".")[0] in packages and kind.__dictoffset__:
            found.update((id(value), value) for value in vars(thing).values() if type(value) in (list, dict))
    histories = (getattr(hook, "_call_history", None) for hook in vars(config.hook).values())
    found.update((id(history), history) for history in histories if type(history) is list)
    return list(found.values())


def _forget_folders(before: Collection[str]) -> None:
    """Let the interpreter forget temporary folders that it has imported from: each turn has others."""
    temporary = tempfile.gettempdir() + os.sep
    for path in [one for one in sys.path_importer_cache if one not in before and one.startswith(temporary)]:
        del sys.path_importer_cache[path]


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
    return f"{words}: {_cut(said[0])}" if said else words


def _cut(reason: str) -> str:
    """Return *reason*, a long one up to the end of a word; of a word that is as long by itself, its beginning."""
    if len(reason) <= _LONGEST_REASON:
        return reason
    start, _, word = reason[: _LONGEST_REASON + 1].rpartition(" ")
    return f"{start if len(word) < len(start) else reason[:_LONGEST_REASON]} ..."


def _go_on(session: Any, stops: tuple[bool | str, bool | str]) -> None:
    """Undo what a turn did to end the session, which pytest from 8 on lets nobody undo by the public names."""
    for name, value in zip(("shouldstop", "shouldfail"), stops, strict=True):
        setattr(session, f"_{name}" if f"_{name}" in vars(session) else name, value)


def _tell_nobody(**_what: object) -> None:
    """Stand for a hook that is not called."""
