"""Run one test of pytest again and again: its setup, its body, its teardown; what wider fixtures made stays.

pytest itself keeps something of every turn. Each turn is cleaned of that here, else every test with a fixture of the
module's would leak: a finalizer is added to every wider fixture that a narrower one has asked for (pytest#4871).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_PER_TURN = ("_report_sections", "_instance")


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
        self._wider = _Wider(item)

    def run(self) -> None:
        """Run the test once.

        Raises:
            NotRepeatableError: if it is skipped, or raises anything.
        """
        with self._cleaned(), self._unless_passed("the test"):
            hook = self._item.ihook
            hook.pytest_runtest_setup(item=self._item)
            hook.pytest_runtest_call(item=self._item)

    def variables(self) -> dict[str, Any] | None:
        """Return the variables among which holders are looked for first, after a turn.

        What the test's wider fixtures returned, by their names; those of the test's module where it uses none.
        """
        values: dict[str, Any] = {}
        for fixture in self._wider_fixtures():
            result = getattr(fixture, "cached_result", None)
            if result is not None and result[2] is None and fixture.scope != "function":
                values[fixture.argname] = result[0]
        return values or getattr(getattr(self._item, "module", None), "__dict__", None)

    @contextmanager
    def _unless_passed(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
            raise
        except BaseException as error:  # noqa: BLE001 - pytest's own outcomes are no Exceptions
            name = type(error).__name__
            msg = "it is skipped" if name == "Skipped" else f"{what} raised {name}"
            raise NotRepeatableError(msg) from None

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Prepare a turn; afterwards tear the test down, and take away what pytest keeps of it."""
        item = self._item
        if hasattr(item, "_request") and not item._request:
            item._initrequest()
        wider = self._wider_fixtures()
        lengths = [len(fixture._finalizers) for fixture in wider]
        try:
            yield
        finally:
            with self._unless_passed("its teardown"):
                self._tell_that_it_passed()
                item.ihook.pytest_runtest_teardown(item=item, nextitem=self._wider)
            for fixture, length in zip(wider, lengths, strict=True):
                del fixture._finalizers[length:]
            self._forget()

    def _wider_fixtures(self) -> list[Any]:
        info = getattr(self._item, "_fixtureinfo", None)
        definitions = {} if info is None else info.name2fixturedefs
        return [one for several in definitions.values() for one in several if hasattr(one, "_finalizers")]

    def _tell_that_it_passed(self) -> None:
        """Set what the fixture ``tmp_path`` reads in its teardown, which a report would have set."""
        from _pytest.tmpdir import tmppath_result_key  # noqa: PLC0415 - no public name

        self._item.stash[tmppath_result_key] = {"setup": True, "call": True}

    def _forget(self) -> None:
        item = self._item
        if hasattr(item, "_request"):
            item._request, item.funcargs = False, None
        item._report_sections.clear()
        vars(item).pop("_instance", None)
