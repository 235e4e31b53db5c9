"""Name the C or C++ functions that leave memory behind, by a few more runs under memray."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager

from leaklab.checking.siting import Ran, Sited, whose
from leaklab.collect.native_sites import NativeGrowth, NativeTraces
from leaklab.explain.source.lines import CellNames, LineWriter
from leaklab.model import Leak
from leaklab.words import format_bytes

_N_NATIVE, _N_NATIVE_LINES = 3, 3


class Repeated(int):
    """The number of a run that is to be made several times, inside a context manager.

    Attributes:
        around: Entered in the very function that runs the code.
        times: How often.
    """

    around: AbstractContextManager[None]
    times: int

    def __new__(cls, number: int, around: AbstractContextManager[None], times: int) -> Repeated:  # noqa: PYI034 - Self came with 3.11
        """Return *number* with what goes with it."""
        self = super().__new__(cls, number)
        self.around, self.times = around, times
        return self


def find_native_sites(
    leaks: Sequence[Leak], *, next_run: int, cell_name: CellNames, seconds_left: float
) -> Generator[int, Ran, Sited]:
    """Run the code again under memray, and name the C or C++ functions that leave memory behind.

    Args:
        leaks: Those of native memory get their sites; where there is none, what was found is a note.
        next_run: Number of the next run.
        cell_name: What the notebook calls its cells.
        seconds_left: No run starts after so many seconds of running.
    """
    if seconds_left <= 0:
        return Sited({}, ("--native: no time was left (-t) for runs under memray",))
    traces = NativeTraces(whose, _N_NATIVE)
    _seconds, failure = yield Repeated(next_run, traces, _N_NATIVE)
    if problem := traces.problem or (failure and f"the code raised {failure}"):
        return Sited({}, (f"--native: memray could not track {_N_NATIVE} runs: {problem}",))
    words = tuple(_native_words(growth, LineWriter(cell_name)) for growth in traces.growths[:_N_NATIVE_LINES])
    native = [leak.fingerprint for leak in leaks if leak.cause == "native"]
    notes = [f"--native: the code was run {_N_NATIVE} more times under memray"]
    if not native or not words:
        found = "; ".join(words) or "nothing that every run leaves was allocated by C or C++ code"
        notes.append(f"--native: {found}")
    return Sited(dict.fromkeys(native, words) if words else {}, tuple(notes))


def _native_words(growth: NativeGrowth, writer: LineWriter) -> str:
    place = "outside of your code"
    if growth.line is not None:
        filename, number, function = growth.line
        place = writer.write(*writer.statement(filename, number), function)
    return f"{place}  # {format_bytes(growth.bytes_per_run)} per run by {growth.function or 'an unnamed function'}"
