"""The plug-in for pytest: ``@pytest.mark.leakcheck`` on a test, the fixture, or ``--leakcheck`` for a whole suite.

pytest runs a test as ever. If it passes, it is run repeatedly, in a copy of the process where that can be, and where it
leaks, pytest's report becomes a failure, whose text is the leak: the place, the rate, the line, the change. This module
is imported by every run of pytest where leaklab is installed: it imports nothing of leaklab's until a test is to be
checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leaklab.model import Settings
    from leaklab.testing.apart import Repeats
    from leaklab.testing.baseline import KnownLeak
    from leaklab.testing.fixture import Leakcheck
    from leaklab.testing.outcome import CheckedTest, Tally
    from leaklab.testing.repeating import Turns
    from leaklab.testing.reports import HeldReports

_NAME = "leakcheck"
_REGISTERED = "leaklab-leakcheck"
_ARGUMENTS = frozenset({"known", "min_bytes", "runs", "seconds", "warmup"})
_MODES = ("marked", "all", "none")
_SECONDS = 20.0
_WITHOUT_CHECKS = ("setuponly", "setupplan", "trace", "collectonly")
"""With these of pytest's options tests are not run as ever, or stop for somebody to look at them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and ini keys of the same names."""
    group = parser.getgroup("leakcheck", "memory leaks (leaklab)")
    group.addoption(
        "--leakcheck",
        nargs="?",
        const="all",
        choices=_MODES,
        metavar="WHICH",
        help="which tests are run repeatedly, and fail if they leak: 'marked' (the default) with the marker, 'all', "
        "or 'none'; without a value: all. Write it with = or after the files",
    )
    group.addoption(
        "--leakcheck-runs",
        type=int,
        metavar="N",
        help="measure at most N runs of a test, 5 or more (default: as many as its cost allows)",
    )
    group.addoption(
        "--leakcheck-seconds",
        type=float,
        metavar="S",
        help=f"start no new run of a test after S seconds of running (default {_SECONDS:.0f})",
    )
    group.addoption(
        "--leakcheck-min-bytes",
        metavar="SIZE",
        help=(
            "smaller leaks do not fail the test (bytes per run, e.g. 1KiB); growing numbers of threads and "
            "callbacks always do"
        ),
    )
    group.addoption(
        "--leakcheck-baseline", metavar="FILE", help="leaks that are known: those listed in FILE do not fail"
    )
    group.addoption(
        "--leakcheck-update-baseline",
        action="store_true",
        help="write the leaks that are found to the file of --leakcheck-baseline; they do not fail",
    )
    group.addoption(
        "--leakcheck-strict",
        action="store_true",
        help="fail if more than a tenth of the tests that pass could not be checked",
    )
    group.addoption("--leakcheck-sarif", metavar="FILE", help="write the leaks that fail tests as SARIF 2.1.0")
    group.addoption(
        "--leakcheck-gitlab",
        metavar="FILE",
        help="write them as a code quality report, which GitLab shows in a merge request",
    )
    group.addoption(
        "--leakcheck-html", metavar="FILE", help="write one page with the whole reports of the tests that leak"
    )
    parser.addini("leakcheck", "which tests are checked for leaks: marked, all or none", default="marked")
    parser.addini("leakcheck_min_bytes", "leaks of fewer bytes per run do not fail, e.g. 1KiB", default="0")
    parser.addini("leakcheck_baseline", "file of the leaks that are known", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and what checks."""
    config.addinivalue_line(
        "markers",
        "leakcheck(runs=None, warmup=2, seconds=20, known='', min_bytes=0): run the test repeatedly; fail if it leaks, "
        "unless known says why that is accepted",
    )
    config.pluginmanager.register(LeakcheckPlugin(config), _REGISTERED)


@pytest.fixture
def leakcheck(request: pytest.FixtureRequest) -> Leakcheck:
    """Give what checks a function: ``leakcheck(step)`` runs it repeatedly, and fails with the report if it leaks."""
    plugin: Any = request.config.pluginmanager.get_plugin(_REGISTERED)
    made: Leakcheck = plugin.make_fixture(request.node)
    return made


class LeakcheckPlugin:
    """Checks tests, and adds what was found to their reports.

    Args:
        config: Of this run of pytest.

    Raises:
        UsageError: if an option allows no check.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._mode = config.getoption("--leakcheck") or config.getini("leakcheck")
        if self._mode not in _MODES:
            msg = f"leakcheck must be marked, all or none, not {self._mode!r}"
            raise pytest.UsageError(msg)
        if any(config.getoption(name, default=False) for name in _WITHOUT_CHECKS):
            self._mode = "none"
        path = config.getoption("--leakcheck-baseline") or config.getini("leakcheck_baseline")
        self._baseline = None if not path else Path(config.rootpath, path)
        self._updates = bool(config.getoption("--leakcheck-update-baseline"))
        if self._updates and self._baseline is None:
            msg = "--leakcheck-update-baseline needs the file to write: --leakcheck-baseline=FILE"
            raise pytest.UsageError(msg)
        given = {name: config.getoption(f"--leakcheck-{name}") for name in ("runs", "seconds")}
        self._options = {name: value for name, value in given.items() if value is not None}
        if problem := _problem_with(self._options):
            msg = f"--leakcheck-runs or --leakcheck-seconds: {problem}"
            raise pytest.UsageError(msg)
        self._options["min_bytes"] = _size(
            config.getoption("--leakcheck-min-bytes") or config.getini("leakcheck_min_bytes")
        )
        self._known: dict[str, dict[str, KnownLeak]] | None = None
        self._repeats: Repeats | None = None
        self._asked: list[CheckedTest] = []
        self._found: dict[str, dict[str, tuple[str, float, float]]] = {}
        self._told: dict[str, str] = {}
        self._records: list[tuple[str, str]] = []
        self._placed: list[tuple[str | int, ...]] = []

    def make_fixture(self, item: pytest.Item) -> Leakcheck:
        """Return what the fixture is for *item*."""
        from leaklab.testing.fixture import Leakcheck  # noqa: PLC0415

        def note(checked: CheckedTest) -> None:
            self._asked.append(checked)
            item.user_properties += checked.properties

        limits = {"runs": None, "seconds": _SECONDS, **self._options}
        off, baseline, file = self._mode == "none", self._known_of(item.nodeid), str(item.path)
        return Leakcheck(**limits, baseline=baseline, accepts=self._updates, file=file, off=off, note=note)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a marker that allows no check, before any test runs."""
        for item in items:
            marker = item.get_closest_marker(_NAME)
            if marker is None:
                continue
            if marker.args or not marker.kwargs.keys() <= _ARGUMENTS:
                given = ", ".join([*map(repr, marker.args), *sorted(marker.kwargs.keys() - _ARGUMENTS)])
                msg = f"{item.nodeid}: leakcheck takes {', '.join(sorted(_ARGUMENTS))}, each by its name, not {given}"
                raise pytest.UsageError(msg)
            if problem := _problem_with(marker.kwargs):
                msg = f"{item.nodeid}: @pytest.mark.leakcheck: {problem}"
                raise pytest.UsageError(msg)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, None]:
        """Let pytest run *item* as ever; if it passes, check it before that is told.

        Outside of all other plug-ins: their time limits and their like have ended when the repeated runs begin.
        """
        self._asked.clear()
        marker = item.get_closest_marker(_NAME)
        asks_itself = _NAME in getattr(item, "fixturenames", ())
        if self._mode == "none" or asks_itself or (marker is None and self._mode != "all"):
            yield
            return
        from leaklab.testing.repeating import Turns  # noqa: PLC0415 - only where wanted
        from leaklab.testing.reports import HeldReports  # noqa: PLC0415

        turns, held = Turns(item, nextitem), HeldReports(item)
        started = time.perf_counter()
        try:
            with held.holding():
                outcome = yield
            ended = outcome.excinfo is not None or item.session.shouldstop or item.session.shouldfail
            if held.passed is not None and not ended:
                options = {**self._options, **({} if marker is None else marker.kwargs)}
                seconds = time.perf_counter() - started
                self._add_checked(held, self._check(turns, item, options, seconds, screened=marker is None))
        finally:
            held.give_out()

    def _check(
        self, turns: Turns, item: pytest.Item, options: Mapping[str, Any], seconds: float, *, screened: bool
    ) -> CheckedTest:
        if self._repeats is None:
            from leaklab.testing.apart import Repeats  # noqa: PLC0415 - only where wanted

            self._repeats = Repeats()
        return self._repeats.check(
            turns,
            settings=replace(_settings(options), name=item.name),
            seconds=seconds,
            screened=screened,
            baseline=self._known_of(item.nodeid),
            known=options.get("known", ""),
            told=self._told,
            config=self._config,
        )

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool | None:
        """Let no timer of pytest-timeout end this process because of a repeated run."""
        is_ours = self._repeats is not None and self._repeats.are_here and settings.method == "thread"
        return True if is_ours else None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Add to the report of a test what the functions that it gave to the fixture told."""
        outcome = yield
        if call.when == "call" and self._asked:
            self._add_asked(outcome.get_result(), call)

    def _add_checked(self, held: HeldReports, checked: CheckedTest) -> None:
        """Add what running the test repeatedly told."""
        report: Any = held.passed
        report.leaklab_found = dict(checked.fingerprints)  # plain: xdist carries these
        report.leaklab_records = [checked.record_json]
        held.add_properties(checked.properties)
        for fingerprint in checked.explains if checked.fails or checked.is_of_plugins else ():
            self._told.setdefault(fingerprint, report.nodeid)
        if checked.fails and not self._updates:
            _let_fail(report, checked, self._config)
        elif checked.note:
            report.sections.append(("leakcheck", checked.note))

    def _add_asked(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Add what the functions that the test gave to the fixture told; the last one may have failed it."""
        from leaklab.testing.fixture import LeakedError  # noqa: PLC0415 - loaded, as the fixture was used

        found = {print_: leak for checked in self._asked for print_, leak in checked.fingerprints.items()}
        report.leaklab_found = found  # type: ignore[attr-defined]
        report.leaklab_records = [checked.record_json for checked in self._asked]  # type: ignore[attr-defined]
        if report.outcome == "failed" and call.excinfo is not None and call.excinfo.errisinstance(LeakedError):
            _let_fail(report, self._asked[-1], self._config)
        else:
            notes = [checked.note for checked in self._asked if checked.note]
            report.sections += [("leakcheck", note) for note in notes]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was found; of several processes the one that reports has them all."""
        if report.when == "call" and hasattr(report, "leaklab_found"):
            self._found[report.nodeid] = report.leaklab_found
            self._records += [(report.nodeid, record) for record in report.leaklab_records if record]
            self._placed += getattr(report, "leaklab_placed", ())

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        """Return the letter and the word for a test that leaks."""
        if getattr(report, "leaklab_leaked", False) and report.when == "call" and report.failed:
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
        tally = self._tally()
        if tally is not None and tally.summary:
            terminalreporter.write_line(tally.summary)
        for test, fingerprint in self._stale():
            terminalreporter.write_line(f"leakcheck: {test} no longer has the leak {fingerprint} of the baseline")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Write what was asked for, in the process that reports; the last line tells what could not be checked."""
        if hasattr(self._config, "workerinput"):
            yield
            return
        tally = self._tally()
        too_many = "" if tally is None else tally.too_many_unchecked
        fails = bool(too_many) and self._config.getoption("--leakcheck-strict")
        if fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        failure = self._write()
        if failure and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        yield
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if failure and terminal is not None:
            terminal.write_line(f"leakcheck: {failure}")
        if too_many and terminal is not None:
            terminal.write_line(too_many + ("; --leakcheck-strict fails" if fails else ""))

    def _tally(self) -> Tally | None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or self._mode == "none":
            return None
        from leaklab.testing.outcome import Tally  # noqa: PLC0415

        return Tally(report for reports in terminal.stats.values() for report in reports)

    def _write(self) -> str:
        """Write the files that are wanted; return why one could not be written, empty if all could."""
        option = self._config.getoption
        wanted = (
            (self._updates, self._write_baseline),
            (option("--leakcheck-sarif") or option("--leakcheck-gitlab"), self._write_for_hosts),
            (option("--leakcheck-html") and self._records, self._write_page),
        )
        writing = () if option("collectonly") else (write for is_wanted, write in wanted if is_wanted)
        return "; ".join(filter(None, map(_failure_of, writing)))

    def _write_baseline(self) -> None:
        from leaklab.testing.baseline import KnownLeak, write_baseline  # noqa: PLC0415

        if self._baseline is not None:
            found = {
                test: {print_: KnownLeak(*leak) for print_, leak in leaks.items()}
                for test, leaks in self._found.items()
            }
            write_baseline(self._baseline, {**(self._known or {}), **found})

    def _write_for_hosts(self) -> None:
        from leaklab.testing.code_hosts import PlacedLeak, write_files  # noqa: PLC0415

        leaks: list[PlacedLeak] = [PlacedLeak(*fields) for fields in self._placed]  # type: ignore[arg-type]
        write_files(leaks, self._file("--leakcheck-gitlab"), self._file("--leakcheck-sarif"))

    def _write_page(self) -> None:
        from leaklab.testing.checking import write_page  # noqa: PLC0415

        if page := self._file("--leakcheck-html"):
            write_page(page, self._records)

    def _file(self, option: str) -> Path | None:
        return Path(self._config.rootpath, name) if (name := self._config.getoption(option)) else None

    def _known_of(self, test: str) -> dict[str, KnownLeak]:
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


def _failure_of(write: Callable[[], None]) -> str:
    """Write a file; return why that failed, empty if not."""
    from leaklab.errors import ReportError  # noqa: PLC0415 - only where something is written

    try:
        write()
    except ReportError as error:
        return str(error)
    return ""


def _size(words: str) -> int:
    """Return the bytes that *words* say; a checked suite alone imports what reads other words than ``0``."""
    if words == "0":
        return 0
    from leaklab.text import read_bytes_words  # noqa: PLC0415

    try:
        return read_bytes_words(words)
    except ValueError as error:
        msg = f"leakcheck-min-bytes: {error}"
        raise pytest.UsageError(msg) from None


def _problem_with(options: Mapping[str, Any]) -> str:
    """Return why no check is possible with *options*; empty if one is."""
    if not options:
        return ""
    wanted: dict[str, tuple[Any, str]] = {
        "runs": ((int, type(None)), "a whole number"),
        "warmup": (int, "a whole number"),
        "seconds": ((int, float), "a number"),
        "known": (str, "a reason in words"),
        "min_bytes": (int, "a whole number of bytes"),
    }
    for name, value in options.items():
        types, words = wanted[name]
        if not isinstance(value, types):
            return f"{name} must be {words}, not {value!r}"
    try:
        _settings(options)
    except ValueError as error:
        return str(error)
    return ""


def _settings(options: Mapping[str, Any]) -> Settings:
    """Return how a test with these options is checked."""
    from leaklab.model import Settings  # noqa: PLC0415

    seconds, min_bytes = options.get("seconds", _SECONDS), options.get("min_bytes", 0)
    return Settings(options.get("runs"), options.get("warmup", 2), seconds, min_bytes=min_bytes)


def _let_fail(report: Any, checked: CheckedTest, config: pytest.Config) -> None:
    """Make *report* one of a test that leaks."""
    from leaklab.testing.code_hosts import PlacedLeak, github_command  # noqa: PLC0415 - only where something leaks

    report.outcome = "failed"
    report.longrepr = checked.in_full if config.getoption("verbose") > 1 else checked.text
    file, line, _name = report.location
    where = config.rootpath, (file, (line or 0) + 1)
    leaks = [PlacedLeak(*fields).within(*where) for fields in checked.placed]  # type: ignore[arg-type]
    report.leaklab_leaked = True
    report.leaklab_placed = list(map(astuple, leaks))
    if os.environ.get("GITHUB_ACTIONS"):
        report.sections.append(("leaklab annotations", "\n".join(map(github_command, leaks))))
