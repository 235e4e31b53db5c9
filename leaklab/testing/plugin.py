"""The plug-in for pytest: ``@pytest.mark.leakcheck`` on a test, or ``--leakcheck`` for a whole suite.

A marked test is run repeatedly before pytest runs it once more and reports; where it leaks, that report is a failure,
and its text is the leak: the place, the rate, the line, the change. This module is imported by every run of pytest
where leaklab is installed: it imports nothing of leaklab's until a test is to be checked.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leaklab.testing.checking import CheckedTest

_MARKER = "leakcheck"
_ARGUMENTS = frozenset({"known", "runs", "seconds", "warmup"})
_SECONDS = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and ini keys of the same names."""
    group = parser.getgroup("leakcheck", "memory leaks (leaklab)")
    group.addoption(
        "--leakcheck",
        nargs="?",
        const="all",
        choices=("marked", "all", "none"),
        help="check marked tests only (the default), all tests, or none",
    )
    group.addoption("--leakcheck-runs", type=int, help="upper limit of measured runs of a test")
    group.addoption("--leakcheck-seconds", type=float, help=f"time limit of a test's runs (default {_SECONDS:.0f})")
    group.addoption("--leakcheck-baseline", metavar="FILE", help="leaks that are known, and do not fail")
    group.addoption(
        "--leakcheck-update-baseline",
        action="store_true",
        help="write the leaks found to the baseline instead of failing",
    )
    group.addoption("--leakcheck-html", metavar="FILE", help="write the reports of tests that leak to a page")
    parser.addini("leakcheck", "marked, all or none", default="marked")
    parser.addini("leakcheck_baseline", "file of the leaks that are known", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and what checks."""
    config.addinivalue_line(
        "markers",
        "leakcheck(runs=None, warmup=2, seconds=20, known=''): run the test repeatedly; fail if it leaks, unless known "
        "says why that is accepted",
    )
    config.pluginmanager.register(LeakcheckPlugin(config), "leaklab-leakcheck")


class LeakcheckPlugin:
    """Checks tests, and adds what was found to their reports.

    Args:
        config: Of this run of pytest.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._mode = config.getoption("--leakcheck") or config.getini("leakcheck")
        if self._mode not in ("marked", "all", "none"):
            msg = f"leakcheck must be marked, all or none, not {self._mode!r}"
            raise pytest.UsageError(msg)
        path = config.getoption("--leakcheck-baseline") or config.getini("leakcheck_baseline")
        self._baseline = None if not path else Path(config.rootpath, path)
        self._updates = bool(config.getoption("--leakcheck-update-baseline"))
        if self._updates and self._baseline is None:
            msg = "--leakcheck-update-baseline needs the file to write: --leakcheck-baseline=FILE"
            raise pytest.UsageError(msg)
        self._known: dict[str, dict[str, str]] | None = None
        self._current: CheckedTest | None = None
        self._found: dict[str, dict[str, str]] = {}
        self._records: list[tuple[str, str]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a marker with an argument that nobody knows, before any test runs."""
        for item in items:
            marker = item.get_closest_marker(_MARKER)
            if marker is not None and (marker.args or not marker.kwargs.keys() <= _ARGUMENTS):
                given = ", ".join([*map(repr, marker.args), *sorted(marker.kwargs.keys() - _ARGUMENTS)])
                msg = f"{item.nodeid}: leakcheck takes {', '.join(sorted(_ARGUMENTS))}, each by its name, not {given}"
                raise pytest.UsageError(msg)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Check *item* before pytest runs it."""
        self._current = None
        marker = item.get_closest_marker(_MARKER)
        if self._mode == "none" or (marker is None and self._mode != "all"):
            return
        from leaklab.testing.checking import check_item  # noqa: PLC0415 - imports torch's watchers only where wanted

        options: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
        options.setdefault("runs", self._config.getoption("--leakcheck-runs"))
        options.setdefault("seconds", self._config.getoption("--leakcheck-seconds") or _SECONDS)
        accepted = self._known_of(item.nodeid)
        self._current = check_item(item, screened=marker is None, baseline=accepted, **options)
        item.user_properties += self._current.properties  # of the item: JUnit reads them with its teardown

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Turn the report of a test that passes, and leaks, into a failure."""
        outcome = yield
        checked = self._current
        report: pytest.TestReport = outcome.get_result()
        if checked is None or call.when != "call":
            return
        report.leaklab_found = checked.fingerprints  # type: ignore[attr-defined]  # plain: xdist carries these
        report.leaklab_record = checked.record_json  # type: ignore[attr-defined]
        if report.outcome == "passed" and checked.fails and not self._updates:
            report.outcome = "failed"
            report.longrepr = checked.text
            report.leaklab_leaked = True  # type: ignore[attr-defined]
            if os.environ.get("GITHUB_ACTIONS"):
                report.sections.append(("leaklab annotations", checked.annotations))
        elif checked.note:
            report.sections.append(("leakcheck", checked.note))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was found; of several processes the one that reports has them all."""
        if report.when == "call" and hasattr(report, "leaklab_found"):
            self._found[report.nodeid] = report.leaklab_found
            if report.leaklab_record:
                self._records.append((report.nodeid, report.leaklab_record))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        """Return the letter and the word for a test that leaks."""
        if getattr(report, "leaklab_leaked", False) and report.when == "call":
            return "leaked", "L", "LEAKED"
        return None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the leaks, place and line first; then what the baseline has too much."""
        leaked = terminalreporter.stats.get("leaked", [])
        if leaked:
            terminalreporter.section("LEAKED", sep="=")
            for report in leaked:
                terminalreporter.section(report.head_line or report.nodeid, sep="_")
                terminalreporter.write_line(str(report.longrepr))
                for _name, text in (s for s in report.sections if s[0] == "leaklab annotations"):
                    terminalreporter.write_line(text)
        for test, fingerprint in self._stale():
            terminalreporter.write_line(f"leakcheck: the baseline's {fingerprint} of {test} was not found any more")

    def pytest_sessionfinish(self) -> None:
        """Write what was asked for, in the process that reports."""
        if hasattr(self._config, "workerinput"):
            return
        if self._updates and self._baseline is not None:
            from leaklab.testing.baseline import write_baseline  # noqa: PLC0415

            write_baseline(self._baseline, {**(self._known or {}), **self._found})
        page = self._config.getoption("--leakcheck-html")
        if page and self._records:
            from leaklab.testing.checking import write_page  # noqa: PLC0415

            write_page(Path(self._config.rootpath, page), self._records)

    def _known_of(self, test: str) -> dict[str, str]:
        if self._known is None:
            self._known = {}
            if self._baseline is not None and (self._baseline.exists() or not self._updates):
                from leaklab.errors import ReportError  # noqa: PLC0415
                from leaklab.testing.baseline import read_baseline  # noqa: PLC0415

                try:
                    self._known = read_baseline(self._baseline)
                except ReportError as error:
                    raise pytest.UsageError(str(error)) from None
        return self._known.get(test, {})

    def _stale(self) -> list[tuple[str, str]]:
        if self._baseline is None or self._updates or not self._found:
            return []
        self._known_of("")  # of several processes the one that reports has not asked yet
        known = self._known or {}
        from leaklab.testing.baseline import stale_entries  # noqa: PLC0415

        return stale_entries(known, self._found)
