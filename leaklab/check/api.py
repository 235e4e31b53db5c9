"""The check of a function, for scripts and tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from types import FunctionType
from typing import Any, cast

from leaklab.check.cures import TrialsBeside
from leaklab.check.pipeline import check_steps
from leaklab.check.runner import Finished, drive, isolated_steps, without_own_frames
from leaklab.check.trying import Checked, FunctionReference, Rerun, change_steps, written_proposal
from leaklab.errors import ChangeError, LeakFound, RankError
from leaklab.heap.source_lines import running_cell_name
from leaklab.model import Check, Settings
from leaklab.model.cure import Cure
from leaklab.model.sentences import Progress
from leaklab.ranks.agreement import Agreement
from leaklab.render.json import redacted
from leaklab.reports.check import LeakReport


def leakcheck(
    function: Callable[[], object],
    *,
    runs: int | None = None,
    warmup: int = 1,
    seconds: float = 60.0,
    name: str = "",
    namespace: dict[str, Any] | None = None,
    sites: bool | None = None,
    native: bool = False,
    setup: Callable[[], object] | None = None,
    summaries: bool = True,
    redact: bool = False,
    fail_on_leak: bool = False,
    settings: Settings | None = None,
    cure: bool | None = None,
    isolated: bool = False,
    group: Any = None,
    group_timeout: float = 300.0,
    min_bytes: int = 0,
    on_progress: Callable[[Progress], object] | None = None,
    known: Collection[str] = (),
) -> LeakReport:
    """Run *function* repeatedly and say whether it leaks, what grows, and who holds it.

    Args:
        function: Called without arguments; what it returns is dropped.
        runs: Upper limit of measured runs, at least 5; fewer are made where that answers. By default the cost of a run
            decides: up to 1,000 of a cell of a millisecond, up to 40 of one of a second.
        warmup: Runs before measuring.
        seconds: No new run starts after this many seconds of running; those that a verdict needs, five, or eight while
            a question is open, may take as long again, and the traced ones come after them.
        name: A name for this check, shown in its report.
        namespace: The variables among which holders are looked for first; by default the globals of *function*.
        sites: Whether to call *function* a few more times, traced, to name the lines that leak; None: if it leaks.
        native: Whether to call it a few more times under memray, to name the C or C++ code that leaks.
        setup: Called once before everything else, not measured; what it returns is dropped.
        summaries: Whether short summaries of values (shapes, lengths) may appear in the report.
        redact: Whether to hide summaries, keys, strings and folders of your data in the report.
        fail_on_leak: Whether to raise `LeakFound` if the function leaks.
        settings: How to check, as a record, such as ``report.record.settings`` of an earlier check; instead of *runs*,
            *warmup*, *seconds*, *name*, *sites*, *native*, *summaries*, *cure* and *min_bytes*.
        cure: Whether to call *function* a few more times with changes in memory that would end a leak; None: if it
            leaks and a call takes no longer than three seconds or can be made in a copy of the process, and in a
            *group* only if asked for. True also gives these calls all the time that *seconds* leaves.
        isolated: Whether *function* is called only once in this process, and all other times in a copy of it (Linux, no
            accelerator in use): its variables are afterwards as after one call. Not in a *group*.
        group: The ranks that check together, a ``torch.distributed.ProcessGroup``, or True for all of the job. Each of
            them has to call this; they agree before each call of *function*, and the first gathers what all found.
        group_timeout: So many seconds a rank waits for the others before the check is ended.
        min_bytes: What leaks fewer bytes per call is told in the notes, and is no leak of the verdict. Threads,
            callbacks, hooks, file descriptors and child processes that pile up are leaks however small.
        on_progress: Called with a `leaklab.Progress` when something is known before the report is: what grows so far,
            where a call takes long; the verdict, before the lines are looked for; the lines, before changes are tried.
            ``on_progress=print`` shows all of it. Not called if *isolated*.
        known: Fingerprints of leaks that an earlier check has explained. Where there is no other leak, fewer calls
            are made, and neither the lines nor a change are looked for again. Not in a *group*.

    Returns:
        The report of this process; on the first rank of *group* its attribute ``ranks`` is the report on all of them.

    Raises:
        LeakFound: if *fail_on_leak* is set and the function leaks, on any rank of *group*; the report is its attribute
            ``leaklab_report``.
        RankError: if *group* cannot check together, or another rank of it fails or cannot be reached any more; the
            partial report is its attribute ``leaklab_report``.
        TypeError: if *function* cannot be called, if calling it would run nothing (coroutine functions, generator
            functions), if another argument is of the wrong type, or if *settings* is given beside what it replaces.
        ValueError: if the settings allow no verdict, or if *isolated* or *known* is wanted in a *group*.
        LeaklabError: if another check is under way in this process, be it the one that calls *function*.
        MissingExtraError: if *native* is wanted and memray is not installed.
        BaseException: whatever *function* raises, with the partial report as its attribute ``leaklab_report``.
    """
    __tracebackhide__ = True
    _refuse_what_runs_nothing(function)
    _refuse_wrong_types(
        runs=runs,
        warmup=warmup,
        seconds=seconds,
        name=name,
        namespace=namespace,
        sites=sites,
        native=native,
        setup=setup,
        summaries=summaries,
        redact=redact,
        fail_on_leak=fail_on_leak,
        settings=settings,
        cure=cure,
        isolated=isolated,
        min_bytes=min_bytes,
        on_progress=on_progress,
        known=known,
    )
    if isolated and group:
        msg = "isolated and group exclude each other: ranks that check together run in their own processes"
        raise ValueError(msg)
    if known and group:
        msg = "known and group exclude each other: ranks that check together look for the lines together"
        raise ValueError(msg)
    if setup is not None:
        _refuse_what_runs_nothing(setup)
    wanted = Settings(runs, warmup, seconds, name, summaries, sites, native, cure, min_bytes=min_bytes)
    if settings is not None and wanted != Settings():
        msg = (
            "settings holds runs, warmup, seconds, name, sites, native, summaries, cure and min_bytes already; "
            "change them there: dataclasses.replace(settings, max_runs=24)"
        )
        raise TypeError(msg)
    variables = _globals_of(function) if namespace is None else namespace
    rerun = Rerun(functools.partial(_found_again, FunctionReference(function)))

    if group is None or group is False:
        if setup is not None:
            setup()
        make_steps = functools.partial(
            check_steps,
            settings or wanted,
            variables,
            running_cell_name,
            _python_function(function),
            called=function,
            known=known,
            on_progress=None if isolated else on_progress,
        )
        steps = isolated_steps(make_steps) if isolated else make_steps()
        # Not named here: what the function raises would be in a cycle with this frame.
        return _finish(drive(steps, lambda _number: function()), None, rerun, redact=redact, fail_on_leak=fail_on_leak)
    with Agreement(group, group_timeout) as agreement:
        if setup is not None:
            setup()
        steps = check_steps(
            settings or wanted,
            variables,
            running_cell_name,
            _python_function(function),
            called=function,
            among_ranks=True,
            on_progress=on_progress,
        )
        return _finish(
            drive(agreement.agreed(steps), lambda _number: function()),
            agreement,
            rerun,
            redact=redact,
            fail_on_leak=fail_on_leak,
        )


def try_change(
    report: LeakReport,
    change: str,
    function: Callable[[], object] | None = None,
    *,
    seconds: float = 300.0,
    namespace: dict[str, Any] | None = None,
) -> Cure:
    """Run what a check has run with a change of your own, beside the code as it is, and say what the change does.

    The trial is that of the changes that a check thinks of itself: eight runs as the code is, eight with the change, in
    copies of the process where that can be. Nothing of it stays, and no file is written.

    Args:
        report: Of the check that found the leak, made in this process.
        change: A unified diff of the cell, of other cells and of files; or the new source of the cell, or of functions
            and classes.
        function: What to run, where the function that was checked is gone: a lambda with variables of its own, a
            partial. It must be given for a report that was loaded.
        seconds: What the trial may take.
        namespace: The variables among which functions and classes are looked for first; by default those of the check's
            code.

    Returns:
        The change with its outcome and its evidence; ``str()`` says both in one line.

    Raises:
        ChangeError: if *change* is no text, does not fit the code, is no Python or changes nothing, if nothing is known
            that could be run, or if the report has no leak.
        TypeError: if another argument is of the wrong type.
        CheckRunningError: if a check is under way in this process.
    """
    __tracebackhide__ = True
    _refuse_wrong_types(report=report, seconds=seconds, namespace=namespace)
    if not report.leaks:
        msg = f"the report has no leak that a change could end: {report.verdict}"
        raise ChangeError(msg)
    if function is not None:
        _refuse_what_runs_nothing(function)
        checked: Checked | None = _checked(function, namespace)
    else:
        checked = None if report._rerun is None else report._rerun.find()  # noqa: SLF001 - kept there for this
    if checked is None:
        msg = "the report has no code to run again: give a function, try_change(report, change, function)"
        raise ChangeError(msg)
    if namespace is not None:
        checked = replace(checked, namespace=namespace)
    try:
        if getattr(checked.code, "awaits", False):
            msg = "the cell uses await, which works in the notebook only: use %%leakcheck --try there"
            raise ChangeError(msg)
        proposal = written_proposal(change, checked)
        finished = drive(change_steps(report.record, proposal, checked, seconds), checked.run)
        if finished.error is not None:
            raise without_own_frames(finished.error)
        return finished.check.leaks[0].cures[0]
    finally:
        checked.close()


def _checked(function: Callable[[], object], namespace: dict[str, Any] | None = None) -> Checked:
    variables = _globals_of(function) if namespace is None else namespace
    return Checked(lambda _number: function(), _python_function(function), variables, running_cell_name)


def _found_again(reference: FunctionReference) -> Checked | None:
    function = reference()
    return None if function is None else _checked(function)


def report_on(
    check: Check,
    agreement: Agreement | None,
    *,
    redact: bool,
    rerun: Rerun | None = None,
    trials: TrialsBeside | None = None,
) -> LeakReport:
    """Return the report on *check*; where ranks have agreed on it, they hand in what they found.

    Args:
        check: What was measured.
        agreement: Of the ranks that checked together; None for a check of this process alone.
        redact: Whether the user's data are to be hidden.
        rerun: Runs what was checked again.
        trials: What still adds to the record.
    """
    if redact:
        check = redacted(check)
    if agreement is None:
        return LeakReport(check if trials is None else cast("Any", trials), None, rerun)
    check = agreement.noted(check)
    return LeakReport(check, agreement.gathered(check))


def refuse_leak(report: LeakReport, leaking: str = "") -> None:
    """Raise what ``fail_on_leak`` asks for.

    Args:
        report: Of this process.
        leaking: Which ranks leak, where several checked together; empty if none does.

    Raises:
        LeakFound: if the verdict is a leak, or another rank leaks; *report* is its attribute ``leaklab_report``.
    """
    __tracebackhide__ = True
    if report.leaked or leaking:
        _raise_with(report, LeakFound(str(report.verdict) if report.leaked else leaking))


def refuse_end(report: LeakReport, agreement: Agreement | None) -> None:
    """Raise what ended the check on all ranks, if something did.

    Raises:
        RankError: with *report* as its attribute ``leaklab_report``.
    """
    __tracebackhide__ = True
    if agreement is not None and agreement.ended:
        _raise_with(report, RankError(f"{agreement.ended}: the check ended on all ranks"))


def _raise_with(report: LeakReport, error: LeakFound | RankError) -> None:
    __tracebackhide__ = True
    error.leaklab_report = report
    try:
        raise error
    finally:
        del error  # it would be in a cycle with this frame, and keep what the frames above it hold


def _finish(
    finished: Finished, agreement: Agreement | None, rerun: Rerun, *, redact: bool, fail_on_leak: bool
) -> LeakReport:
    """Return the report, or raise what the function raised, or what is to be raised because of the verdict."""
    __tracebackhide__ = True
    report = report_on(finished.check, agreement, redact=redact, rerun=rerun)
    try:
        if finished.error is not None:
            with suppress(Exception):  # an exception's class may refuse new attributes in any way
                finished.error.leaklab_report = report  # type: ignore[attr-defined]  # for whoever catches it
            raise without_own_frames(finished.error)
    finally:
        # This frame will be part of the error's traceback: without the name there is no cycle of the two.
        del finished
    refuse_end(report, agreement)
    if fail_on_leak:
        refuse_leak(report, "" if agreement is None else agreement.leaking)
    return report


def _refuse_what_runs_nothing(function: object) -> None:
    if not callable(function):
        msg = f"leakcheck needs a function to call, not {type(function).__name__}"
        raise TypeError(msg)
    called = function.func if isinstance(function, functools.partial) else function
    candidates = (called, type(called).__call__)
    if any(map(inspect.iscoroutinefunction, candidates)):
        msg = "leakcheck calls a plain function; wrap the coroutine: lambda: asyncio.run(work())"
        raise TypeError(msg)
    if any(inspect.isgeneratorfunction(c) or inspect.isasyncgenfunction(c) for c in candidates):
        msg = "calling a generator function runs none of its code; wrap it: lambda: list(work())"
        raise TypeError(msg)


def _refuse_wrong_types(**arguments: object) -> None:
    """Name the first argument of a wrong type before anything runs."""
    wanted: dict[str, tuple[Any, str]] = {
        "runs": ((int, type(None)), "a whole number"),
        "warmup": (int, "a whole number"),
        "min_bytes": (int, "a whole number of bytes"),
        "seconds": ((int, float), "a number of seconds"),
        "name": (str, "a str"),
        "namespace": ((dict, type(None)), "a dict of variables"),
        "sites": ((bool, type(None)), "True, False or None"),
        "cure": ((bool, type(None)), "True, False or None"),
        "setup": ((Callable, type(None)), "a function without arguments"),
        "known": ((frozenset, list, set, tuple), "a set of fingerprints"),
        "on_progress": ((Callable, type(None)), "a function of one argument"),
        "settings": ((Settings, type(None)), "a leaklab.Settings"),
        "report": (LeakReport, "the leaklab.LeakReport of a check"),
    }
    for name, value in arguments.items():
        types, words = wanted.get(name, (bool, "True or False"))
        if not isinstance(value, types):
            msg = f"{name} must be {words}, not {type(value).__name__}"
            raise TypeError(msg)


def _python_function(function: Callable[[], object]) -> FunctionType | None:
    """Return the function behind *function*, a partial, a method or what a decorator wraps; None if it is C code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if isinstance(function, FunctionType) else None


def _globals_of(function: Callable[[], object]) -> dict[str, Any] | None:
    """Return the global variables of *function*, of what a partial or a decorator wraps, or of a ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    for candidate in (function, type(function).__call__):
        names = getattr(candidate, "__globals__", None)
        if isinstance(names, dict):
            return names
    return None
