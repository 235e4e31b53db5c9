"""The first code of leaklab in a program that was not prepared: import leaklab there, and hand the question over.

It is sent as text, and runs in a dict of its own on any Python from 3.10 on. It imports the standard library alone, and
lets nothing out that it raises.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

_Pages = tuple[int, int] | None
_KIND_AND_OTHERS, _FOLDER = 0o170077, 0o040000


def enter(question: Any, pages: _Pages, in_thread: bool) -> None:
    """Answer *question* of `leaklab.programs.attaching`: here, or *in_thread* where the main thread sleeps.

    Args:
        question: A `Question`, which came as text.
        pages: Where the text of this code stands in memory, and how many bytes; None if it came as a file.
        in_thread: Whether a thread is started for it.
    """
    if os.getpid() != question["pid"]:
        return  # a child, which was forked off while the call was pending
    if not in_thread:
        frame = sys._getframe(1).f_back  # of the code around this one; before it the program
        _work(question, pages, None if frame is None else frame.f_back)
        return
    import threading

    threading.Thread(target=_work, args=(question, pages), name="leaklab attach", daemon=True).start()


def _work(question: Any, pages: _Pages, frame: FrameType | None = None) -> None:
    try:
        _free(pages)
        if not _is_ours(question["folder"]) or not _is_first(question["folder"], in_thread=frame is None):
            return  # nobody waits any more
        _load(question)
        from leaklab.programs.in_process import answer

        if frame is None:
            import threading

            frame = sys._current_frames().get(threading.main_thread().ident or 0)
        answer(question, frame)
    except KeyboardInterrupt:  # meant for the program
        import _thread

        _write(question["folder"], "error", "the program was interrupted by Ctrl-C meanwhile: ask again")
        _thread.interrupt_main()
    except BaseException as error:  # noqa: BLE001 - the program is not to fail of a question
        _write(question["folder"], "error", _words_of(error))
    finally:
        del frame


class _ImportingError(Exception):
    """The program is in the middle of importing a package that leaklab needs, or looks into."""


def _words_of(error: BaseException) -> str:
    pid, python = os.getpid(), sys.executable
    if isinstance(error, _ImportingError):
        return f"process {pid} is just importing {error}: ask again when it has done that"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("leaklab."):
        return (
            f"process {pid} has a leaklab that is too old for attach: install this version there ({python} -m pip "
            "install -U leaklab)"
        )
    if isinstance(error, ModuleNotFoundError):
        return (
            f"process {pid} cannot import {error.name}, which leaklab needs, and the one of this leaklab does not fit:"
            f" install leaklab there ({python} -m pip install leaklab), or run leaklab with that Python"
        )
    if type(error).__module__ == "leaklab.errors":
        return str(error)
    return f"process {pid} could not answer: {type(error).__name__}: {error}"


def _free(pages: _Pages) -> None:
    if pages is not None:
        import ctypes

        ctypes.CDLL(None).munmap(ctypes.c_void_p(pages[0]), ctypes.c_size_t(pages[1]))


def _is_ours(folder: str) -> bool:
    """Return whether *folder* is there, and nobody but this user may write to it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and status.st_mode & _KIND_AND_OTHERS == _FOLDER


def _is_first(folder: str, *, in_thread: bool) -> bool:
    """Return whether this question was not taken before: a call may be pending besides."""
    try:
        handle = os.open(os.path.join(folder, "taken"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return False
    os.write(handle, b"by a thread" if in_thread else b"by the main thread")
    os.close(handle)
    return True


def _write(folder: str, name: str, text: str) -> None:
    try:
        handle = os.open(os.path.join(folder, f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.rename(os.path.join(folder, f".{name}"), os.path.join(folder, name))
    except OSError:
        pass  # nobody waits any more


def _load(question: Any) -> None:
    """Import what leaklab needs, each from where this program would find it, else from where the asker has it.

    A package of the asker fits the same Python only; `sys.path` stays as it is.
    """
    import contextlib
    import warnings

    for name in ("torch", *(name for name, *_ in question["packages"])):
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            raise _ImportingError(name)
    is_same = question["python"] == [sys.implementation.cache_tag, getattr(sys, "abiflags", "")]
    before = _blas_libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, parent, is_pure in question["packages"]:
            _import(name, parent if is_same or is_pure else None)
        import leaklab.programs.in_process
        from leaklab.errors import NotEnoughMemoryError

        with contextlib.suppress(NotEnoughMemoryError):  # there is an answer without it
            import leaklab.runtime.sparse_graphs  # noqa: F401 - later it would leave its threads, and filters of warnings
    _end_threads_of(_blas_libraries() - before)


def _import(name: str, parent: str | None) -> None:
    import importlib
    import importlib.machinery
    import importlib.util

    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        spec = None if parent is None else importlib.machinery.PathFinder.find_spec(name, [parent])
        if error.name != name or spec is None or spec.loader is None:
            raise
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise


def _blas_libraries() -> set[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    except OSError:
        return set()


def _end_threads_of(libraries: set[str]) -> None:
    """End the idle threads of linear algebra that has just come in; it starts them anew if it is used."""
    if libraries:
        import ctypes

        for path in libraries:
            end = getattr(ctypes.CDLL(path), "blas_thread_shutdown_", None)
            if end is not None:
                end()
