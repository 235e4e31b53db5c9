"""Ask a running program that was not prepared: bring leaklab into it, and take what it answers."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from leaklab.errors import LeaklabError
from leaklab.programs import entry
from leaklab.programs.entering import CODE, entrance_to, refuse_shared_folder
from leaklab.programs.question import ANSWER, BY_MAIN_THREAD, ERROR, TAKEN, Question
from leaklab.reports.loop import MonitorReport
from leaklab.reports.process import ProcessReport
from leaklab.version import __version__

_PREFIX = "leaklab_attach_"
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 1.0
"""After so long without being taken a question is brought once more, if the main thread sleeps by then."""
_COMPILED = ("numpy", "scipy", "psutil", "msgspec", "markupsafe")
_PURE = ("lazy_loader", "leaklab")
"""They fit any Python."""


def attach(
    pid: int, act: str = "look", *, max_seconds: float, named: str = "", total_steps: int | None = None
) -> ProcessReport | MonitorReport | None:
    """Bring leaklab into process *pid* where it is not there yet, let it *act* there, and return what it answers.

    Args:
        pid: A process of this user, on this machine.
        act: ``look``: take what `leaklab ask` takes; ``watch``: begin to watch its loop; ``stop``: end that.
        max_seconds: How long to wait.
        named: With ``watch``, the function whose calls are the steps, ``module:function``; empty to find the loop.
        total_steps: With ``watch``, the steps of the whole loop.

    Returns:
        A `ProcessReport` of ``look``, a `MonitorReport` of ``stop``, None of ``watch``.

    Raises:
        LeaklabError: if that cannot be; the message is one sentence that says what to do.
    """
    until = time.monotonic() + max_seconds
    entrance = entrance_to(pid)
    with _folder() as folder:
        question = Question(
            pid=pid,
            version=__version__,
            folder=str(folder),
            act=act,
            named=named,
            total_steps=total_steps,
            python=[sys.implementation.cache_tag, getattr(sys, "abiflags", "")],
            packages=list(_packages()),
        )
        source = f"{Path(entry.__file__).read_text(encoding='utf-8')}\nenter({question!r}, pages, in_thread)\n"
        entrance.bring(source, entry.__file__, folder, until)
        while not _is_answered(entrance.pid, folder, min(until, time.monotonic() + _PATIENCE_SECONDS)):
            if time.monotonic() > until:
                raise LeaklabError(_too_late(pid, max_seconds, is_taken=(folder / TAKEN).exists()))
            if not (folder / TAKEN).exists():  # it may have fallen asleep before it came to that
                entrance.bring_to_sleeper(source, entry.__file__, folder, until)
        words = (folder / ANSWER).read_text(encoding="utf-8")
    if act == "watch":
        return None
    return ProcessReport.from_json(words) if act == "look" else MonitorReport.from_json(words)


def _packages() -> Iterator[tuple[str, str | None, bool]]:
    """Yield what leaklab needs, in the order of the imports; not torch, which a program has for itself, or has not."""
    for name in (*_COMPILED, *_PURE):
        spec = importlib.util.find_spec(name)
        home = None if spec is None or spec.origin is None else Path(spec.origin).parents[1]  # all of them are folders
        yield name, None if home is None else str(home), name in _PURE


@contextmanager
def _folder() -> Iterator[Path]:
    """Lend a folder that only this user may look into; a question that nobody has taken is withdrawn at the end."""
    refuse_shared_folder(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # of mode 0700
    try:
        yield folder
    finally:
        code, taken = folder / CODE, folder / TAKEN
        if code.exists() and not (taken.exists() and taken.read_bytes() == BY_MAIN_THREAD):
            # The interpreter will still open it: it is to find nothing to do, and to tidy up.
            remove = f"__import__('shutil').rmtree({str(folder)!r}, ignore_errors=True)\n"
            code.write_text(remove, encoding="utf-8")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _is_answered(pid: int, folder: Path, until: float) -> bool:
    """Wait for the answer; return whether it came in time.

    Raises:
        LeaklabError: if there is none, or the process has ended.
    """
    while not (folder / ANSWER).exists():
        if (folder / ERROR).exists():
            raise LeaklabError((folder / ERROR).read_text(encoding="utf-8"))
        if not _runs(pid):
            msg = f"process {pid} ended before it answered"
            raise LeaklabError(msg)
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _too_late(pid: int, max_seconds: float, *, is_taken: bool) -> str:
    if is_taken:
        return (
            f"process {pid} did not answer within {max_seconds:g} s, and is still at work: it has very many objects, "
            "or little memory; give it more time with --timeout"
        )
    return (
        f"process {pid} did not answer within {max_seconds:g} s: its main thread runs C code, and answers between two "
        "lines of Python only; ask again when that call has returned, or give it more time with --timeout (nothing was "
        "loaded, and the question is withdrawn)"
    )
