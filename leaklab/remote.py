"""Checks in the workers of other engines: the function that a worker runs, and the answers of all of them as one.

leaklab brings no transport of its own: Ray, Dask, ipyparallel or a folder carry the records home, and `leaklab.merge`
makes one report of them.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

from leaklab.check.api import leakcheck
from leaklab.errors import LeaklabError, ReportError
from leaklab.files import FilePath
from leaklab.model.ranks import RankRecord
from leaklab.ranks.gathering import error_words, merge, record_here, records_in, write_rank
from leaklab.reports.check import LeakReport
from leaklab.reports.loop import MonitorReport
from leaklab.reports.notebook import journal_of
from leaklab.reports.ranks import RanksReport, rank_to_json
from leaklab.text import format_seconds

_NO_CHECK = "it has made no check: run %%leakcheck there first (%load_ext leaklab, then a cell of %%px and %%leakcheck)"


def check(function: Callable[[], object], *, label: str = "", **options: Any) -> str:
    """Check *function* in this process and return what was found as text, for `leaklab.merge` where it was asked for.

    Whatever goes wrong in the check is told in what it returns: the function raised, another check is under way in this
    process. So one worker's error takes no answer from the others.

    Args:
        function: Called without arguments; what it returns is dropped.
        label: What people call this worker; empty for its rank, or its place among the answers.
        options: As for `leaklab.leakcheck`: ``runs``, ``seconds``, ``redact`` and the others. Of a method, the
            *namespace* is its object, as ``self``.

    Returns:
        One line of JSON, 5 to 50 KB: nothing of the user's objects is in it.

    Raises:
        TypeError: if *function* cannot be checked, or an option is of the wrong type.
        ValueError: if the options allow no verdict.
    """
    __tracebackhide__ = True
    report, words = None, ""
    if type(function) is MethodType:  # an actor's: what grows is named by it, and not by the engine's table of actors
        options = {"namespace": {"self": function.__self__}, **options}
    try:
        with _without_samples():
            report = leakcheck(function, **options)
    except Exception as error:
        report = inspect.getattr_static(error, "leaklab_report", None)
        if type(report) is not LeakReport and not isinstance(error, LeaklabError):
            raise  # the call itself was wrong: so it is for every worker
        if not (type(report) is LeakReport and report.leaked and isinstance(error, LeaklabError)):  # fail_on_leak
            words = type(error).__name__ if options.get("redact") else error_words(error)
    record = None if report is None else report.record
    return rank_to_json(record_here(check=record, error=words, label=label))


@contextmanager
def _without_samples() -> Iterator[None]:
    """Let no worker of Dask in this process sample its threads: every 10 ms it keeps what it sees, leaklab's calls too.

    What samples is started again by who stopped it: a check that is refused meanwhile does not find it running.
    """
    found = sys.modules.get("distributed.worker")
    workers = list(getattr(getattr(found, "Worker", None), "_instances", ()))
    stopped = []
    for worker in workers:
        samples = worker.periodic_callbacks.get("profile")
        if samples is not None and samples.is_running():
            worker.loop.add_callback(samples.stop)  # only its own thread may stop it
            stopped.append((worker.loop, samples))
    try:
        yield
    finally:
        for loop, samples in stopped:
            loop.add_callback(samples.start)


def save(report: LeakReport | MonitorReport, folder: FilePath, *, rank: int | None = None) -> Path:
    """Write *report* to ``rank_{n}.json`` in *folder*, with the place of this process, for ``leaklab merge``.

    Args:
        report: Of a check, or of a loop that was watched.
        folder: One that all ranks can write; it is made if it is missing.
        rank: Number of this process; None asks torch.distributed, then the variables RANK and WORLD_SIZE.

    Returns:
        The path of the file.

    Raises:
        ReportError: if the rank is not known, or the file cannot be written.
        TypeError: if *report* is none of the two.
    """
    record = _record_of(report, rank)
    if record is None:
        msg = f"save needs a LeakReport or a MonitorReport, not {type(report).__name__}"
        raise TypeError(msg)
    if record.rank < 0:
        msg = "this process has no rank: give one, leaklab.remote.save(report, folder, rank=0)"
        raise ReportError(msg)
    return write_rank(folder, record)


def gather(view: Any, variable: str = "", *, seconds: float = 60.0) -> RanksReport:
    """Make one report of the last check of each engine of ipyparallel, after ``%%px`` and ``%%leakcheck``.

    Args:
        view: A direct view of the engines, ``client[:]``.
        variable: The variable that holds the report on each engine, as ``%%leakcheck -v report`` stores it; empty for
            the last check that the magic made there.
        seconds: How long engines that are at work are waited for.

    Returns:
        The report. An engine that is gone, too slow, or has made no check is told in it, with the reason.

    Raises:
        TypeError: if *view* is no direct view.
        ReportError: if it has no engine.
    """
    client, targets = getattr(view, "client", None), getattr(view, "targets", None)
    if client is None or targets is None:
        msg = f"gather needs a direct view of engines, client[:], not {type(view).__name__}"
        raise TypeError(msg)
    engines = client.ids if targets == "all" else [targets] if isinstance(targets, int) else list(targets)
    deadline = time.monotonic() + seconds
    asked = [(engine, _asked(client, engine, variable)) for engine in engines]
    return merge([_answered(engine, answer, deadline, seconds) for engine, answer in asked])


def _asked(client: Any, engine: int, variable: str) -> Any:
    """Return what will be the answer of *engine*; its record, where it cannot be asked."""
    try:
        return client[engine].apply_async(last_record, variable)
    except Exception as error:  # noqa: BLE001 - of ipyparallel, for an engine that is gone
        return _silent(engine, f"it cannot be reached: {error_words(error)}")


def _answered(engine: int, asked: Any, deadline: float, seconds: float) -> RankRecord:
    if isinstance(asked, RankRecord):
        return asked
    try:
        text = asked.get(timeout=max(deadline - time.monotonic(), 0.0))
    except TimeoutError:
        return _silent(engine, f"it did not answer within {format_seconds(seconds)}: it may still be at work")
    except Exception as error:  # noqa: BLE001 - of ipyparallel, for an engine that died; or whatever was raised there
        return _silent(engine, error_words(error))
    return replace(records_in(text.encode())[0], rank=engine, world_size=0, label=f"engine {engine}")


def _silent(engine: int, words: str) -> RankRecord:
    return RankRecord(engine, 0, "", 0, f"engine {engine}", error=words)


def last_record(variable: str = "") -> str:
    """Return the last report of this engine as text, as `gather` asks for it.

    Args:
        variable: As for `gather`.
    """
    from IPython import get_ipython  # noqa: PLC0415 - workers of other engines have none

    shell: Any = get_ipython()
    if shell is None:
        return rank_to_json(record_here(error="it runs no IPython"))
    if variable:
        record = _record_of(dict.get(shell.user_ns, variable))
        problem = f"its variable {variable!r} holds no report"
    else:
        journal = journal_of(shell)
        last = None if journal is None else journal.last
        record = None if last is None else record_here(check=last)
        problem = _NO_CHECK
    return rank_to_json(record_here(error=problem) if record is None else record)


def _record_of(report: object, rank: int | None = None) -> RankRecord | None:
    """Return *report* with the place of this process; None if it is no report."""
    if type(report) is LeakReport:
        return record_here(check=report.record, rank=rank)
    if type(report) is MonitorReport:
        return record_here(monitor=report.record, rank=rank)
    return None
