"""Run the code a few more times: traced for lines, under memray, or without native caches.

The counting runs are over and recorded when this begins: tracing costs several times the run, and is paid only where
there is something to find. Each leak gets the line that *keeps* (during which its holder got a new entry) and the line
that *makes* (on whose stack the new entries were allocated). What only a cycle keeps gets the line that *closes* it
(after which the references lead back to where they began), behind the line that asked for a copy if one was under way.
"""

from __future__ import annotations

import itertools
import linecache
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from leaklab.check.other_threads import thread_words
from leaklab.check.process_leaks import arrival_lines
from leaklab.check.steps import Ran, RunRequest
from leaklab.check.traced_runs import earlier_key, later_key, survivors_by_leak, threads_point, watch_places
from leaklab.collect.allocation_lines import Made, Makers, StorageLines
from leaklab.collect.arrival_lines import Line
from leaklab.collect.census import DisturbedError
from leaklab.collect.change_lines import LineWatch
from leaklab.collect.cycle_lines import ClosingWatch, CycleShape
from leaklab.collect.measurement import Measurement
from leaklab.collect.native_lines import NativeGrowth, NativeTraces
from leaklab.collect.object_traces import FEW_FRAMES, python_traces
from leaklab.explain.groups import LeakAddress
from leaklab.explain.idioms.advice import with_line
from leaklab.heap.source_lines import CellNames, LineWriter, Origin, find_line, origin_of
from leaklab.model import Leak
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.model.sentences import is_expression
from leaklab.runtime.gc_control import collect_quietly
from leaklab.text import format_bytes

_N_WATCHED, _N_TRACED, _N_CLOSING = 2, 3, 2
"""So many runs of each kind for leaks that leave something in every run; fewer once every leak has its line."""
_MAX_EACH = 64
_LONG_SECONDS = 10.0
"""After so many seconds of runs that look for lines, no more are made for what leaks in some runs only."""
MAX_TRACED_RUNS = 3 * _MAX_EACH
_N_LINES = 2
_LEAST_SECONDS_BETWEEN, _MOST_SECONDS_BETWEEN = 0.2, 0.5
_FEWEST = 0.25
"""A line that did less than this share of what was seen is not named."""


@dataclass(frozen=True, slots=True)
class FoundLines:
    """What the traced runs told.

    Attributes:
        sites: For a leak's fingerprint its lines, the one that keeps first.
        notes: What was in the way, one sentence each.
        keeping: For a leak's fingerprint the lines that keep, as code objects have them: file name and number.
        making: The same for the lines that make.
    """

    sites: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    keeping: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    making: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


NOTHING = FoundLines({})


def whose(filename: str) -> bool | None:
    """Return True for the user's code, False for a library's, None for leaklab's own.

    What was generated as a string and left no source (every ``namedtuple`` is) has no line to show: a library's.
    """
    origin = origin_of(filename)
    if origin is Origin.LEAKLAB:
        return None
    return origin is Origin.USER and not (filename.startswith("<") and not linecache.getlines(filename))


def find_lines(
    measurement: Measurement,
    leaks: Sequence[Leak],
    addresses: Sequence[LeakAddress],
    namespace: dict[str, Any] | None,
    *,
    busy: Sequence[str] = (),
    cell_name: CellNames,
    seconds_left: float,
    in_loop: bool = False,
) -> Generator[int, Ran, FoundLines]:
    """Run the code again, traced, and name the lines of *leaks*.

    Args:
        measurement: The one that found the leaks; its figures must have been read. No phase is open.
        leaks: What to look for; native memory is left out.
        addresses: Where they are kept.
        namespace: The user's variables.
        busy: Names of other threads that have run since the check began.
        cell_name: What the notebook calls its cells.
        seconds_left: No run starts after so many seconds of running.
        in_loop: Whether a run is a stretch of a loop that goes on: its running functions are traced, tracemalloc is
            left alone where the lines that keep are known, and no dispatch mode is entered, which a block of the
            user's could end.
    """
    wanted = [leak for leak in leaks if leak.path.steps or leak.unit in ("objects", CHILDREN, DESCRIPTORS)]
    if not wanted:
        return NOTHING
    if seconds_left <= 0:
        return FoundLines({}, ("no time was left (-t) for a traced run: the lines that leak are not named",))
    search = _Search(measurement, wanted, addresses, namespace, busy, in_loop=in_loop)
    yield from search.run(seconds_left)
    return search.result(LineWriter(cell_name))


class _Search:
    """One traced pass."""

    def __init__(
        self,
        measurement: Measurement,
        leaks: list[Leak],
        addresses: Sequence[LeakAddress],
        namespace: dict[str, Any] | None,
        busy: Sequence[str],
        *,
        in_loop: bool,
    ) -> None:
        self._busy = busy
        self._in_loop = in_loop
        self._measurement = measurement
        self._leaks = leaks
        self._namespace = namespace
        self._n_before = measurement.n_runs
        self._makers = Makers(whose, StorageLines(whose))
        self._keeps: dict[str, Counter[Line]] = {}
        self._makes: dict[str, Counter[Line]] = defaultdict(Counter)
        self._makes_elsewhere: dict[str, Counter[Line]] = defaultdict(Counter)
        self._grows_anyway: set[str] = set()
        self._closes: dict[str, Counter[Line]] = {}
        self._asks: dict[str, Counter[Line]] = {}
        self._notes: list[str] = []
        self._n_runs = 0
        self._seconds = 0.0
        self._failure = ""
        prints = {leak.fingerprint for leak in leaks}
        wanted = [address for address in addresses if address.fingerprint in prints]
        self._points = watch_places(measurement, wanted, namespace)
        of_threads = [threads_point(leak.fingerprint) for leak in leaks if leak.path.root.startswith("thread ")]
        self._points += [point for point in of_threads if point is not None]

    def run(self, seconds_left: float) -> Generator[int, Ran, None]:
        """Make the traced runs, look at what they left, and where cycles keep it, watch how these are closed."""
        with self._phase():
            yield from self._watched_runs(seconds_left)
            if self._in_loop and not self._missing:
                return
            storages = nullcontext(True) if self._in_loop else self._makers.storages.noted()  # noqa: FBT003 - is exact
            with python_traces() as n_frames, storages as is_exact:
                yield from self._traced_runs(seconds_left)
                missing = self._missing
                made = self._makers.made_by_survivor(self._measurement, self._n_before) if missing else {}
        self._say_how_exact(n_frames, is_exact=is_exact)
        if made:
            found = survivors_by_leak(self._measurement, self._n_before, self._namespace, made, missing)
            for fingerprint, places in found.made.items():
                # What was seen to come into a watched place in each run is said again, and by all that is there.
                self._makes.pop(fingerprint, None)
                self._makes_elsewhere.pop(fingerprint, None)
                self._note_made(fingerprint, places)
            made.clear()
            yield from self._closing_runs(found.shapes, seconds_left)

    @contextmanager
    def _phase(self) -> Iterator[None]:
        """Open a phase of the measurement; afterwards nothing of the user's is held."""
        if self._measurement.collects:
            # Only a full one empties the lists of free objects, and what comes from those has no trace of who made it.
            collect_quietly()
        self._measurement.open_phase()
        try:
            yield
        finally:
            self._points.clear()
            self._measurement.abandon()

    @property
    def _missing(self) -> set[str]:
        """The leaks of which no line is known that keeps."""
        return {leak.fingerprint for leak in self._leaks if leak.fingerprint not in self._keeps}

    def _watched_runs(self, seconds_left: float) -> Generator[int, Ran, None]:
        """Run with a trace function that looks for the lines that keep."""
        if sys.gettrace() is not None:
            self._notes.append(
                "a tracer is installed (a debugger, coverage) and was kept: the lines named are those that made the "
                "objects, not those that keep them"
            )
            return
        arrivals = arrival_lines(self._leaks)
        watch = LineWatch(self._points, whose, arrivals)
        self._keeps = watch.lines
        places = {point.fingerprint for point in self._points}.union(*(each.fingerprints for each in arrivals))
        watched = places & {leak.fingerprint for leak in self._leaks}
        for number in itertools.count():
            if not self._wanted(watched - watch.lines.keys(), _N_WATCHED, number) or self._is_over(seconds_left):
                break
            with watch.installed(running_too=self._in_loop):
                ran = yield self._start()
            self._finish(ran)
            self._watch_between(ran[0])
        for fingerprint in self._grows_anyway:  # whatever line ran meanwhile has nothing to do with it
            watch.lines.pop(fingerprint, None)
        for fingerprint in watched:
            if (first := earlier_key(fingerprint)) in watch.lines:
                watch.lines[fingerprint] = watch.lines.pop(first)
            if (last := later_key(fingerprint)) in watch.lines:
                watch.lines.setdefault(fingerprint, watch.lines[last])

    def _watch_between(self, seconds: float) -> None:
        """Where other threads run, wait about as long as a run takes: what grows now is their doing."""
        if not self._busy or self._failure:
            return
        before = [point.token() for point in self._points]
        time.sleep(min(max(seconds, _LEAST_SECONDS_BETWEEN), _MOST_SECONDS_BETWEEN))
        self._grows_anyway |= {
            point.fingerprint for point, token in zip(self._points, before, strict=True) if point.has_changed(token)
        }

    def _closing_runs(self, shapes: Sequence[CycleShape], seconds_left: float) -> Generator[int, Ran, None]:
        """Run with a trace function that looks for the lines that close cycles of *shapes*."""
        if not shapes or sys.gettrace() is not None:
            return
        watch = ClosingWatch(shapes, whose)
        wanted = {shape.fingerprint for shape in shapes}
        with self._phase():
            for number in itertools.count():
                if not self._wanted(wanted - watch.lines.keys(), _N_CLOSING, number) or self._is_over(seconds_left):
                    break
                with watch.installed(running_too=self._in_loop):
                    ran = yield self._start()
                self._finish(ran)
        self._closes, self._asks = watch.lines, watch.asked

    def _traced_runs(self, seconds_left: float) -> Generator[int, Ran, None]:
        """Run with tracemalloc and a dispatch mode, which tell the lines that make."""
        for number in itertools.count():
            if (number and not self._wanted(self._missing, _N_TRACED, number)) or self._is_over(seconds_left):
                return
            before = [point.token() for point in self._points]
            ran = yield self._start()
            self._finish(ran)
            for point, token in zip(self._points, before, strict=True):
                made = self._makers.made_of(point.new_entries(token, point.token()))
                self._note_made(point.fingerprint, Counter(made))

    def _note_made(self, fingerprint: str, places: Counter[Made]) -> None:
        for made, count in places.items():
            (self._makes_elsewhere if made.is_elsewhere else self._makes)[fingerprint][made.line] += count

    def _wanted(self, fingerprints: Collection[str], n_runs: int, n_made: int) -> bool:
        """Return whether one of the leaks *fingerprints* needs a run more than *n_made*.

        It takes *n_runs* for what leaks in every run, and for what leaks in some runs only as many more as its period
        has, as long as they are quick.
        """
        periods = [_period(leak) for leak in self._leaks if leak.fingerprint in fingerprints]
        wanted = min(max(periods, default=1 - n_runs) - 1 + n_runs, _MAX_EACH)
        return n_made < (wanted if self._seconds < _LONG_SECONDS else min(wanted, n_runs))

    def _is_over(self, seconds_left: float) -> bool:
        return bool(self._failure) or self._seconds >= seconds_left

    def _start(self) -> int:
        self._measurement.start_run()
        return self._measurement.n_runs + 1

    def _finish(self, ran: Ran) -> None:
        seconds, self._failure = ran
        self._n_runs += 1
        self._seconds += seconds
        try:
            self._measurement.finish_run(seconds)
        except DisturbedError as disturbed:
            self._failure = f"the collector's objects {disturbed.how}"
        if self._failure:
            self._notes.append(
                f"run {self._n_runs} of those that look for lines ended with {self._failure}: the lines that leak are "
                "not, or not all, named"
            )

    def _say_how_exact(self, n_frames: int, *, is_exact: bool) -> None:
        if n_frames < FEW_FRAMES:
            self._notes.append(
                f"tracemalloc was running and kept its setting of {n_frames} frame{'s' * (n_frames > 1)}: objects made "
                "inside libraries could not be followed to your line"
            )
        if not is_exact:
            self._notes.append(
                "torch.compile was used, which a dispatch mode would disturb: the lines that made tensors are those "
                "that made their Python objects"
            )

    def result(self, writer: LineWriter) -> FoundLines:
        """Return the lines in words."""
        sites = {leak.fingerprint: self._words_of(leak, writer) for leak in self._leaks}
        unknown = [leak.what for leak in self._leaks if not sites[leak.fingerprint]]
        if unknown and not self._notes:
            self._notes.append(f"no line of your code was found that makes or keeps: {'; '.join(unknown[:3])}")
        for leak in self._leaks:
            if leak.fingerprint in self._grows_anyway:
                self._notes.append(
                    f"{leak.holder} grows while the code does not run, too: {self._other_thread} fills it"
                )
        if not self._in_loop:  # there, nothing was run that would not have been
            self._notes.append(f"the code was run {self._n_runs} more times, traced, to find the lines that leak")
        keeping = self._numbers(writer, self._keeps, self._asks, self._closes)
        making = self._numbers(writer, self._makes, self._makes_elsewhere)
        return FoundLines(sites, tuple(self._notes), keeping, making)

    def _numbers(self, writer: LineWriter, *found: dict[str, Counter[Line]]) -> dict[str, tuple[tuple[str, int], ...]]:
        numbers: dict[str, tuple[tuple[str, int], ...]] = {}
        for leak in self._leaks:
            chief = (_chief(lines.get(leak.fingerprint, Counter()), writer) for lines in found)
            numbers[leak.fingerprint] = tuple(dict.fromkeys(line[:2] for lines in chief for line in lines))
        return numbers

    @property
    def _other_thread(self) -> str:
        return thread_words(self._busy) if len(self._busy) == 1 else "another thread"

    def _words_of(self, leak: Leak, writer: LineWriter) -> tuple[str, ...]:
        words: dict[tuple[str, int], str] = {}
        for lines, does in (
            (self._keeps, _DOES.get(leak.unit, "keeps it") if not leak.path.steps else "keeps it"),
            (self._asks, "copies it"),
            (self._closes, "closes the cycle"),
            (self._makes, "makes it"),
            (self._makes_elsewhere, f"makes it, in {self._other_thread}"),
        ):
            for line in _chief(lines.get(leak.fingerprint, Counter()), writer):
                words.setdefault(line[:2], f"{writer.write(*line)}  # {does}")
        return tuple(words.values())


_DOES = {DESCRIPTORS: "opens it", CHILDREN: "starts it"}


def _period(leak: Leak) -> int:
    """Return every how many runs *leak* leaves something, at most."""
    if leak.unit not in ("objects", DESCRIPTORS, CHILDREN) or not any(leak.kept):
        # Of what grows in place only the pace is known, and that from two moments: the next time may be late.
        return math.ceil(2 / leak.count_per_run) if 0 < leak.count_per_run < 1 else 1
    born = [-1, *(run for run, count in enumerate(leak.kept) if count)]
    return max(after - before for before, after in pairwise(born))


def _chief(lines: Counter[Line], writer: LineWriter) -> list[Line]:
    """Return the statements that did most, most active first."""
    statements: Counter[tuple[str, int]] = Counter()
    names: dict[tuple[str, int], str] = {}
    for (filename, number, function), count in lines.items():
        statement = writer.statement(filename, writer.in_file(filename, number, function))
        statements[statement] += count
        names.setdefault(statement, function)
    fewest = _FEWEST * max(statements.values(), default=0)
    return [(*statement, names[statement]) for statement, count in statements.most_common(_N_LINES) if count >= fewest]


def with_lines(leaks: tuple[Leak, ...], found: Sequence[FoundLines]) -> tuple[Leak, ...]:
    """Return *leaks* with the lines that were found for them; the advice names the first, or one found by its text."""
    return tuple(
        _with_sites(leak, tuple(line for lines in found for line in lines.sites.get(leak.fingerprint, ())))
        for leak in leaks
    )


def _with_sites(leak: Leak, sites: tuple[str, ...]) -> Leak:
    if leak.cause == "native" and leak.unit != "objects":  # its lines are of C code
        return replace(leak, sites=sites)
    if sites:
        place, _, does = sites[0].rpartition("  # ")
        return replace(leak, sites=sites, advice=with_line(leak.advice, place.partition(": ")[0], does))
    found = find_line(leak.holder) if is_expression(leak.holder) else None
    if found is None:
        return leak
    line = f"{found.place}: {found.text}  # keeps it"
    return replace(leak, sites=(line,), advice=with_line(leak.advice, found.place))


_N_NATIVE, _N_NATIVE_LINES = 3, 3


def find_native_lines(
    leaks: Sequence[Leak], *, next_run: int, cell_name: CellNames, seconds_left: float
) -> Generator[RunRequest, Ran, FoundLines]:
    """Run the code again under memray, and name the C or C++ functions that leave memory behind.

    Args:
        leaks: Those of native memory get their lines; where there is none, what was found is a note.
        next_run: Number of the next run.
        cell_name: What the notebook calls its cells.
        seconds_left: No run starts after so many seconds of running.
    """
    if seconds_left <= 0:
        return FoundLines({}, ("--native: no time was left (-t) for runs under memray",))
    traces = NativeTraces(whose, _N_NATIVE)
    _seconds, failure = yield RunRequest(next_run, _N_NATIVE, traces)
    if problem := traces.problem or (failure and f"the code raised {failure}"):
        return FoundLines({}, (f"--native: memray could not track {_N_NATIVE} runs: {problem}",))
    words = tuple(_native_words(growth, LineWriter(cell_name)) for growth in traces.growths[:_N_NATIVE_LINES])
    native = [leak.fingerprint for leak in leaks if leak.cause == "native"]
    notes = [f"--native: the code was run {_N_NATIVE} more times under memray"]
    if not native or not words:
        found = "; ".join(words) or "nothing that every run leaves was allocated by C or C++ code"
        notes.append(f"--native: {found}")
    return FoundLines(dict.fromkeys(native, words) if words else {}, tuple(notes))


def _native_words(growth: NativeGrowth, writer: LineWriter) -> str:
    place = "outside of your code"
    if growth.line is not None:
        filename, number, function = growth.line
        place = writer.write(*writer.statement(filename, number), function)
    return f"{place}  # {format_bytes(growth.bytes_per_run)} per run by {growth.function or 'an unnamed function'}"
