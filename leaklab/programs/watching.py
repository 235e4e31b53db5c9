"""Watch the loop of a program from its first line to whatever ends it, and say then what was found."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from leaklab.files import say_on_stderr
from leaklab.loop.clocks import hearing
from leaklab.loop.inside import BlockWatch
from leaklab.loop.running import room_for_last_words
from leaklab.process.signal_hook import SignalHook, is_main_thread
from leaklab.programs.running import FILE, MainProgram

if TYPE_CHECKING:
    from typing_extensions import Self

    from leaklab.model.loop import StateChange

_NAME_ONE = "name the function that is called again and again: --step module:function"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a program is watched.

    Attributes:
        report: The file that the report is written to as well.
        total_steps: Steps of the whole loop; None if nobody knows.
        fails_on_leak: Whether the exit status is 1 where a leak is certain and the program itself has ended with 0.
        is_quiet: Whether nothing is said but what leaks, at the end.
        writes_at_death: Whether leaklab has a handler of SIGTERM already, which says who held the memory.
    """

    report: Path | None = None
    total_steps: int | None = None
    fails_on_leak: bool = False
    is_quiet: bool = False
    writes_at_death: bool = False


def run_watched(program: MainProgram, options: WatchOptions, named: str) -> int:
    """Run *program* in this process to its end, and watch its loop; what it raises passes through.

    Args:
        program: It is run once.
        options: How.
        named: The function whose calls are the steps; empty to find the loop.
    """
    watch = ProgramWatch(program.variables, options, named)
    with watch:
        program.run(watch.hearing)
    return int(watch.fails)


class ProgramWatch:
    """Watches the loop of this process's program inside of a ``with`` block, used once.

    At its end, whatever that is, the report is written to stderr, and to the file if there is one. SIGTERM ends the
    program as it would without the watch, and the report comes first; a handler of the program's own has its place.
    """

    def __init__(self, variables: dict[str, Any], options: WatchOptions, named: str = "") -> None:
        self._options = options
        rank = os.environ.get("RANK", "") if os.environ.get("WORLD_SIZE", "1") != "1" else ""
        self._name = f"rank {rank}" if rank else ""
        self._report = _with_ending(options.report, self._name)
        self._pid = os.getpid()
        self._block = BlockWatch(
            self._name,
            variables,
            total_steps=options.total_steps,
            on_change=None if options.is_quiet else self._tell,
            any_thread=True,
            named=named,
            in_worker=self._in_worker,
        )
        self._is_concluded = False
        self.fails = False

    def __enter__(self) -> Self:
        self._block.__enter__()
        atexit.register(self._end_late)
        if is_main_thread() and (signal.getsignal(signal.SIGTERM) is signal.SIG_DFL or self._options.writes_at_death):
            SignalHook(signal.SIGTERM, lambda _frame: self._conclude("SIGTERM"), when=self._block.when_idle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None or (kind is SystemExit and getattr(error, "code", 1) in (None, 0)):
            if not self._block.is_elsewhere:  # else the loop goes on in another thread, until the interpreter ends
                self._conclude("")
            return
        failure = f"exit status {getattr(error, 'code', 1)}" if kind is SystemExit else kind.__name__
        with ExitStack() as counted, room_for_last_words(failure):
            if self._block.n_steps:
                from leaklab.heap.running import count_as_running  # noqa: PLC0415 - as in BlockWatch

                counted.enter_context(count_as_running(traceback))
            self._conclude(failure)
        _hide_own_frames(traceback)

    def hearing(self, function: Any) -> Any:
        """Return what stands in for *function*, whose calls are the steps."""
        return hearing(function, self._block.note_named)

    def _in_worker(self) -> None:
        """Watch this child by itself: a server has forked it off to answer requests."""
        self._pid = os.getpid()
        self._name = f"worker {self._pid}"
        self._report = _with_ending(self._options.report, self._name)
        self._block.rename(self._name)

    def _end_late(self) -> None:
        """Conclude when all threads have ended; nobody asks for an exit status any more."""
        self._conclude("")
        if self.fails and os.getpid() == self._pid:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _conclude(self, failure: str) -> None:
        if self._is_concluded or os.getpid() != self._pid:
            return
        self._is_concluded = True
        atexit.unregister(self._end_late)
        try:
            self._block.end(failure)
            self._say_result()
        except Exception as error:  # noqa: BLE001 - the program is not to fail because of its watch
            say_on_stderr(f"leaklab watch: there is no report: {type(error).__name__}: {error}\n")

    def _say_result(self) -> None:
        quiet = self._options.is_quiet
        if not self._block.clock:
            if not quiet:
                beside = f"\nleaklab watch: {words}" if (words := _unwatched_words()) else ""
                say_on_stderr(f"leaklab watch, process {self._pid}: {self._block.missing}; {_NAME_ONE}{beside}\n")
            if self._report is None:
                return
        report = self._block.report()
        self.fails = self._options.fails_on_leak and report.leaked
        if not quiet or report.record.places:
            say_on_stderr(f"leaklab watch, process {self._pid}\n{str(report).rstrip()}\n")
        if self._report is not None:
            report.save(self._report)
            say_on_stderr(f"leaklab watch: written to {self._report}\n")
        if not quiet and (words := _unwatched_words()):
            say_on_stderr(f"leaklab watch: {words}\n")
        if self.fails:
            say_on_stderr("leaklab watch: a leak is certain (--fail-on-leak)\n")

    def _tell(self, change: StateChange) -> None:
        name = f" {self._name}" if self._name else ""
        alarm = " ALARM" if change.is_alarm else ""
        say_on_stderr(f"leaklab watch{name}, step {change.step:,}:{alarm} {change.state.value}: {change.words}\n")


_LEAST_SECONDS = 1.0


def _unwatched_words() -> str:
    """Say that other processes did much of the work, if they did: those that have ended by now."""
    spent = os.times()
    own, of_children = spent.user + spent.system, spent.children_user + spent.children_system
    if of_children < max(_LEAST_SECONDS, own / 2):
        return ""
    from leaklab.text import format_seconds  # noqa: PLC0415 - as in BlockWatch

    return (
        f"processes that the program started took {format_seconds(of_children)} of the processor and were not watched "
        "(where they are the workers of a pool, `leaklab.watch_calls` does that)"
    )


def _hide_own_frames(traceback: TracebackType | None) -> None:
    """Let the traceback that the interpreter prints begin in the program, as it would without a watch, and end there.

    Ctrl-C may have come while a step was counted.
    """
    while traceback is not None and traceback.tb_frame.f_code.co_filename != FILE:
        traceback = traceback.tb_next
    while traceback is not None and _is_machinery(traceback.tb_frame):
        traceback = traceback.tb_next
    before, shown = sys.excepthook, _of_program(traceback)

    def excepthook(kind: type[BaseException], error: BaseException, _whole: TracebackType | None) -> Any:
        error.__traceback__ = shown
        return before(kind, error, shown)

    sys.excepthook = excepthook


def _of_program(traceback: TracebackType | None) -> TracebackType | None:
    """Return *traceback* without the functions of the watch."""
    own = f"{Path(FILE).parents[1]}{os.sep}"
    places: list[TracebackType] = []
    while traceback is not None:
        places += [] if traceback.tb_frame.f_code.co_filename.startswith(own) else [traceback]
        traceback = traceback.tb_next
    for place, after in pairwise((*places, None)):
        place.tb_next = after  # type: ignore[union-attr]  # only the last is None
    return places[0] if places else None


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name == FILE or "runpy" in name


def _with_ending(file: Path | None, words: str) -> Path | None:
    return file.with_stem(f"{file.stem}_{words.replace(' ', '_')}") if file is not None and words else file
