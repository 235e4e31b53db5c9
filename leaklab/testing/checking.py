"""Check one test, and put what was found into words.

A test that leaves no object behind needs no whole check; that is told within milliseconds.
"""

from __future__ import annotations

import re
import sys
import time
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from leaklab.check.api import leakcheck
from leaklab.errors import CheckRunningError
from leaklab.measure.census import DisturbedError
from leaklab.measure.measurement import Cohorts, choose_baseline
from leaklab.model import Leak, Outcome, Settings
from leaklab.model.sentences import growth_sentence
from leaklab.render.advice import patch_text
from leaklab.reports.check import LeakReport
from leaklab.runtime.gc_control import collect_quietly, user_has_frozen, user_lets_collect
from leaklab.testing.repeating import NotRepeatableError, Turns

_N_WARMUPS, _N_RUNS = 2, 4


def leaves_something(run: Callable[[], object]) -> bool:
    """Run a few times; return whether each of the last but one left objects that live at the end.

    True also where that cannot be told, as where the test freezes the collector's objects, and where each run leaves
    more blocks of Python's memory in use: arrays of numpy, numbers and texts are not listed by the collector.
    """
    collects = user_lets_collect()
    taker = choose_baseline(user_froze=user_has_frozen(), cell_freezes=False, collects=collects)
    cohorts = Cohorts(_N_WARMUPS + _N_RUNS)
    cohorts.start_phase()
    # Older garbage is frozen with all else: to collect it would take longer than the runs of most tests.
    taker.begin()
    try:
        for _ in range(_N_WARMUPS + _N_RUNS):
            taker.mark()
            run()
            census = taker.take()
            cohorts.add(census)
        cohorts.keep_alive_ones(census.addresses, census.kinds)
        return all(cohorts.sizes()[_N_WARMUPS:-1]) or _takes_blocks(run, collects=collects)
    except DisturbedError:
        return True
    finally:
        taker.end()


def _takes_blocks(run: Callable[[], object], *, collects: bool) -> bool:
    """Run a few times more; return whether each run leaves more blocks of Python's memory in use."""
    levels = array("q", bytes(8 * (_N_RUNS + 1)))  # made beforehand: a list would take blocks of its own
    for number in range(_N_RUNS + 1):
        if number:
            run()
        if collects:
            collect_quietly()
        levels[number] = sys.getallocatedblocks()
    return all(after > before for before, after in pairwise(levels))


_PLAIN = frozenset({"dict", "list", "tuple", "set", "frozenset", "collections"})
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)\b")


@dataclass(frozen=True, slots=True)
class CheckedTest:
    """What checking a test told.

    Attributes:
        report: None where no whole check was made.
        note: What the reader should know, in a sentence; empty if nothing.
        known: Reasons why the leak does not count; empty if it does.
        new: The leaks that count.
    """

    report: LeakReport | None = None
    note: str = ""
    known: str = ""
    new: Sequence[Leak] = ()
    properties: list[tuple[str, object]] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether the test is to fail."""
        return bool(self.new) and not self.known

    @property
    def fingerprints(self) -> dict[str, str]:
        """Each leak's fingerprint, with what it is in words."""
        leaks = self.report.leaks if self.report is not None and self.report.leaked else ()
        return {leak.fingerprint: growth_sentence(leak) for leak in leaks}

    @property
    def record_json(self) -> str:
        """The record of a test that leaks; empty for others."""
        return self.report.to_json() if self.report is not None and self.report.leaked else ""

    @property
    def text(self) -> str:
        """What failed: for each leak the place, the rate, the line and the change that was tried; then the report."""
        lines = []
        for leak in self.new:
            lines += [f"LEAKED  {growth_sentence(leak)}", *(f"    {site}" for site in leak.sites)]
            patch = patch_text(leak)
            if patch:
                lines += ["    this change was tried, and ends it:", *(f"    {line}" for line in patch.splitlines())]
            lines += [f"    fingerprint {leak.fingerprint}", ""]
        return "\n".join([*lines, str(self.report)])

    @property
    def annotations(self) -> str:
        """The leaks as commands for GitHub, each on the line that keeps."""
        return "\n".join(annotation_of(leak) for leak in self.new)


def check_item(
    item: pytest.Item,
    *,
    settings: Settings,
    screened: bool,
    baseline: Mapping[str, str],
    known: str = "",
) -> CheckedTest:
    """Run *item* repeatedly.

    Args:
        item: The test.
        settings: How to check; its name becomes that of the test.
        screened: Whether a few runs may show that a whole check is not needed.
        baseline: Fingerprints of leaks that do not count.
        known: Why a leak of this test is accepted; empty if it is not.
    """
    started = time.perf_counter()
    checked = _check(item, replace(settings, name=item.name), screened=screened, baseline=baseline, known=known)
    checked.properties.append(("leaklab_seconds", f"{time.perf_counter() - started:.2f}"))
    return checked


def _check(
    item: pytest.Item, settings: Settings, *, screened: bool, baseline: Mapping[str, str], known: str
) -> CheckedTest:
    turns = Turns(item)
    try:
        if screened and not leaves_something(turns.run):
            return _without_report("clean", "the quick test found no leak")
        turns.run()  # the wider fixtures are there then
        plugins = plugin_packages(item.config)
        variables = turns.variables(plugins)
        report = leakcheck(turns.run, namespace=variables, settings=settings)
    except NotRepeatableError as error:
        return _without_report(str(error).partition(":")[0], str(error))
    except CheckRunningError as error:
        return _without_report("not checked", str(error))
    return judge_report(report, baseline, known, plugins)


def judge_report(
    report: LeakReport, baseline: Collection[str], known: str = "", plugins: Collection[str] = ()
) -> CheckedTest:
    """Say which of the leaks in *report* count.

    Args:
        report: Of a test that was run repeatedly, or of a function that it gave to the fixture.
        baseline: Fingerprints of leaks that do not count.
        known: Why a leak is accepted; empty if it is not.
        plugins: Packages of pytest's plug-ins: what they keep for themselves of each test does not count.
    """
    leaks = report.leaks if report.leaked else ()
    of_plugins = [leak for leak in leaks if kept_by_plugin(leak, plugins)]
    own = [leak for leak in leaks if leak not in of_plugins]
    new = [leak for leak in own if leak.fingerprint not in baseline]
    notes = [f"a pytest plug-in keeps objects of every run: {growth_sentence(leak)}" for leak in of_plugins]
    if own and not new:
        notes.append("leaks as the baseline says")
    elif new and known:
        notes.append(f"leaked (known): {known}")
    elif report.verdict.outcome is Outcome.INCONCLUSIVE or (report.record.settings.min_bytes and report.record.noted):
        notes.append(str(report.verdict))
    return CheckedTest(report, "\n".join(notes), known, tuple(new), _properties(report))


def plugin_packages(config: pytest.Config) -> frozenset[str]:
    """Return the packages of the plug-ins that were installed, not those of the suite itself."""
    modules = (plugin for plugin, _distribution in config.pluginmanager.list_plugin_distinfo())
    return frozenset(getattr(module, "__name__", "").partition(".")[0] for module in modules)


def kept_by_plugin(leak: Leak, plugins: Collection[str]) -> bool:
    """Return whether *leak* is found through an object of pytest's only, in what one of *plugins* keeps for itself.

    Such are the results that a benchmark notes: they are there once where the test is run once.
    """
    packages = [step.kind.partition(".")[0] for step in leak.path.steps[:-1]]
    owner = next((one for one in reversed(packages) if one not in _PLAIN), "")
    return "_pytest" in packages and owner in plugins


def _without_report(outcome: str, note: str) -> CheckedTest:
    return CheckedTest(note=note, properties=[("leaklab_outcome", outcome)])


def _properties(report: LeakReport) -> list[tuple[str, object]]:
    fingerprints = " ".join(leak.fingerprint for leak in report.leaks) if report.leaked else ""
    return [
        ("leaklab_outcome", report.verdict.outcome.value),
        ("leaklab_bytes_per_run", f"{report.verdict.bytes_per_run:.0f}"),
        ("leaklab_fingerprints", fingerprints),
    ]


def annotation_of(leak: Leak) -> str:
    """Return the command that puts *leak* on its line in a pull request."""
    place = next((match for site in leak.sites if (match := _PLACE.match(site))), None)
    where = "" if place is None else f" file={_escaped(place['file'])},line={place['line']},title=leak"
    return f"::error{where}::{_escaped(growth_sentence(leak))}"


def _escaped(text: str) -> str:
    """Return *text* as a value of a workflow command."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
        text = text.replace(character, code)
    return text


def write_page(path: Path, records: Sequence[tuple[str, str]]) -> None:
    """Write one page of the tests that leak: their names, and their records as JSON."""
    from leaklab.model.check import KeptCheck, NotebookChecks  # noqa: PLC0415 - only where a page is wanted
    from leaklab.reports.notebook import NotebookReport  # noqa: PLC0415

    checks = tuple(KeptCheck(LeakReport.from_json(record).record, test) for test, record in records)
    NotebookReport(NotebookChecks("Tests that leak", checks)).save(path)
