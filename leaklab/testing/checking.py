"""Check one test as a whole, and put what was found into words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from leaklab.check.api import leakcheck
from leaklab.errors import CheckRunningError
from leaklab.explain.leaks.groups import is_told_apart
from leaklab.heap.paths import fingerprint
from leaklab.model import Leak, Outcome, Settings
from leaklab.model.paths import path_of_script
from leaklab.model.sentences import growth_sentence, site_words
from leaklab.render.advice import patch_text
from leaklab.reports.check import LeakReport
from leaklab.runtime.ours import as_the_users
from leaklab.testing.baseline import KnownLeak
from leaklab.testing.code_hosts import PlacedLeak
from leaklab.testing.outcome import CheckedTest, not_checked
from leaklab.testing.repeating import Turns

_PLAIN = frozenset({"dict", "list", "tuple", "set", "frozenset", "collections"})
_FOR_SUITES = frozenset(
    f"_pytest.{name}" for name in ("config", "doctest", "fixtures", "main", "nodes", "python", "stash", "unittest")
)
"""Where pytest's own objects are that a suite gives its own things to: the configuration, tests, fixtures."""


def whole_check(
    turns: Turns,
    *,
    settings: Settings,
    baseline: Mapping[str, KnownLeak],
    known: str,
    told: Mapping[str, str],
    plugins: Collection[str],
) -> CheckedTest:
    """Check the turns of a test.

    Args:
        turns: Of the test.
        settings: How to check.
        baseline: Leaks that do not count unless they are much worse, by their fingerprints.
        known: Why a leak of this test is accepted; empty if it is not.
        told: The leaks that have been explained in this suite, by their fingerprints, and the test that each was of.
        plugins: Packages of pytest's plug-ins.

    Raises:
        NotRepeatableError: if a turn does not pass.
    """
    turns.run()  # the wider fixtures are there then
    check = partial(leakcheck, turns.run, namespace=turns.variables(plugins), settings=settings)
    try:
        with as_the_users(turns.file):
            report = check(known=(*told, *baseline))
            if _worse(_by_fingerprint(report.leaks), baseline):  # how it has become so is a question of its own
                report, told = check(), {}
    except CheckRunningError as error:
        return not_checked(str(error))
    return judge_report(report, baseline, known, plugins, told)


def judge_report(
    report: LeakReport,
    baseline: Mapping[str, KnownLeak],
    known: str = "",
    plugins: Collection[str] = (),
    told: Mapping[str, str] = MappingProxyType({}),
) -> CheckedTest:
    """Say which of the leaks in *report* count.

    Args:
        report: Of a test that was run repeatedly, or of a function that it gave to the fixture.
        baseline: Leaks that do not count unless they are much worse, by their fingerprints.
        known: Why a leak is accepted; empty if it is not.
        plugins: Packages of pytest's plug-ins: what they keep for themselves of each test does not count.
        told: The leaks that have been explained before, by their fingerprints, and the test that each was of.
    """
    report = _in_words_of_a_script(report)
    leaks = report.leaks if report.leaked else ()
    of_plugins = [leak for leak in leaks if kept_by_plugin(leak, plugins)]
    own = [leak for leak in leaks if leak not in of_plugins]
    found = _by_fingerprint(leaks)
    worse = _worse(found, baseline)
    new = [leak for leak in own if leak.fingerprint not in baseline or leak.fingerprint in worse]
    notes = [f"a pytest plug-in keeps objects of every run: {growth_sentence(leak)}" for leak in of_plugins]
    if own and not new:
        notes.append("leaks as the baseline says")
    elif new and known:
        notes.append(f"leaked (known): {known}")
    elif report.verdict.outcome is Outcome.INCONCLUSIVE or (report.record.settings.min_bytes and report.record.noted):
        notes.append(str(report.verdict))
    counts = bool(new) and not known
    return CheckedTest(
        note="\n".join(notes),
        text=_text_of(new, worse, told) if counts else "",
        whole=str(report) if counts and any(leak.fingerprint not in told for leak in new) else "",
        placed=tuple(astuple(_placed(leak)) for leak in new) if counts else (),
        fingerprints=found,
        explains=tuple({leak.fingerprint for leak in leaks if is_told_apart(leak.path)}),
        record_json=report.to_json() if report.leaked else "",
        properties=_properties(report),
        is_of_plugins=bool(leaks) and not own,
    )


def _in_words_of_a_script(report: LeakReport) -> LeakReport:
    """Return *report* without a notebook: the variables that it looks at first are those of a module, or fixtures."""
    record = report.record
    leaks, bounded = (
        tuple(replace(leak, path=path_of_script(leak.path)) for leak in found)
        for found in (record.leaks, record.bounded)
    )
    return LeakReport(replace(record, leaks=leaks, bounded=bounded))


def _by_fingerprint(leaks: Sequence[Leak]) -> dict[str, tuple[str, float, float]]:
    """Return what a baseline holds of *leaks*; those with one fingerprint are one leak of it."""
    found: dict[str, tuple[str, float, float]] = {}
    for leak in leaks:
        words, n_bytes, count = found.get(leak.fingerprint, (growth_sentence(leak), 0.0, 0.0))
        found[leak.fingerprint] = words, n_bytes + leak.bytes_per_run, count + leak.count_per_run
    return found


def _worse(found: Mapping[str, tuple[str, float, float]], baseline: Mapping[str, KnownLeak]) -> dict[str, str]:
    """Return how much worse than in *baseline* those of the leaks *found* are that are much worse."""
    return {
        print_: words
        for print_, before in baseline.items()
        if print_ in found and (words := before.worse(KnownLeak(*found[print_])))
    }


def _text_of(leaks: Sequence[Leak], worse: Mapping[str, str], told: Mapping[str, str]) -> str:
    """Return for each leak the place, the rate, the line and the change that was tried.

    Of leaks that were *told* with another test, that test instead: one leak of a library may be in hundreds of tests.
    """
    lines = []
    for leak in leaks:
        lines += [f"LEAKED  {growth_sentence(leak)}", *(f"    {site_words(site)}" for site in leak.sites)]
        if leak.fingerprint in worse:
            lines.append(f"    known, but much worse: {worse[leak.fingerprint]}")
        patch = patch_text(leak)
        if patch:
            lines += ["    this change was tried, and ends it:", *(f"    {line}" for line in patch.splitlines())]
        if leak.fingerprint in told:
            lines.append(f"    explained with {told[leak.fingerprint]}")
        lines += [f"    fingerprint {leak.fingerprint}", ""]
    return "\n".join(lines)


def _placed(leak: Leak) -> PlacedLeak:
    """Return *leak* as hosts of code get it, which want a fingerprint for each: its line's text may tell it apart."""
    placed = PlacedLeak.of(leak)
    if is_told_apart(leak.path) or not placed.line:
        return placed
    without_number = leak.sites[0].replace(f":{placed.line}", "", 1)
    return replace(placed, fingerprint=fingerprint([leak.fingerprint, without_number]))


def kept_by_plugin(leak: Leak, plugins: Collection[str]) -> bool:
    """Return whether *leak* is what pytest keeps for itself, or one of *plugins* that only pytest's objects lead to.

    Such are the results that a benchmark notes, and the properties of the whole suite in JUnit's file: they are there
    once where the test is run once.
    """
    kinds = [step.kind for step in leak.path.steps[:-1]]
    owner = next((one for one in reversed(kinds) if one.partition(".")[0] not in _PLAIN), "")
    package, module = owner.partition(".")[0], owner.rpartition(".")[0]
    if package == "_pytest":
        return module not in _FOR_SUITES
    if module == "pluggy._hooks":  # what was ever registered, for those who come later
        return True
    return package in plugins and any(one.startswith("_pytest.") for one in kinds)


def _properties(report: LeakReport) -> list[tuple[str, object]]:
    fingerprints = " ".join(leak.fingerprint for leak in report.leaks) if report.leaked else ""
    return [
        ("leaklab_outcome", report.verdict.outcome.value),
        ("leaklab_bytes_per_run", f"{report.verdict.bytes_per_run:.0f}"),
        ("leaklab_fingerprints", fingerprints),
    ]


def write_page(path: Path, records: Sequence[tuple[str, str]]) -> None:
    """Write one page of the tests that leak: their names, and their records as JSON."""
    from leaklab.model.check import KeptCheck, NotebookChecks  # noqa: PLC0415 - only where a page is wanted
    from leaklab.reports.notebook import NotebookReport  # noqa: PLC0415

    checks = tuple(KeptCheck(LeakReport.from_json(record).record, test) for test, record in records)
    NotebookReport(NotebookChecks("Tests that leak", checks)).save(path)
