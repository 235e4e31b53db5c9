"""Run the code a few more times, traced, to find the lines that leak.

The counting runs are over and recorded when this begins: tracing costs several times the run, and is paid only where
there is something to find. Each leak gets the line that *keeps* (during which its holder got a new entry) and the line
that *makes* (on whose stack the new entries were allocated). What only a cycle keeps gets the line that *closes* it
(after which the references lead back to where they began), behind the line that asked for a copy if one was under way.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from leaklab.check.findings import Explained, FoundLines, Places
from leaklab.check.process_leaks import arrival_lines
from leaklab.check.session import SLOW_SECONDS, CheckSession, Ran, thread_words
from leaklab.check.stacks import named_stacks
from leaklab.check.traced_runs import (
    MAX_EACH,
    TracedRuns,
    earlier_key,
    later_key,
    survivors_by_leak,
    threads_point,
    watch_places,
)
from leaklab.explain.idioms.advice import with_line
from leaklab.explain.leaks.groups import LeakAddress
from leaklab.heap.source_lines import LineWriter, find_line
from leaklab.lines.allocation import Made, Makers
from leaklab.lines.arrival import Line
from leaklab.lines.change import LineWatch
from leaklab.lines.cycle import ClosingWatch, CycleShape
from leaklab.lines.storages import Stack, StorageLines
from leaklab.model import Leak, Status
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.model.sentences import is_expression
from leaklab.runtime.ours import Origin, origin_of
from leaklab.runtime.python_traces import FEW_FRAMES, python_traces
from leaklab.text import unit_words

_N_WATCHED, _N_TRACED, _N_CLOSING = 2, 3, 2
"""So many runs of each kind for leaks that leave something in every run; fewer once every leak has its line."""
MAX_TRACED_RUNS = 3 * MAX_EACH
_APART_SECONDS = 0.05
"""Of a run that takes longer, operations and Python's objects are noted in runs of their own: while tracemalloc is on,
to note an operation takes seventeen times as long."""
_NOTING_SECONDS, _MOST_NOTING_SECONDS = 4.0, 60.0
"""So long the operations of a run are noted, or twice as long as it takes, but never longer than that."""
_N_LINES = 2
_LEAST_SECONDS_BETWEEN, _MOST_SECONDS_BETWEEN = 0.2, 0.5
_FEWEST = 0.25
"""A line that did less than this share of what was seen is not named."""


def whose(filename: str) -> bool | None:
    """Return True for the user's code, False for a library's, None for leaklab's own.

    What was generated as a string and left no source (every ``namedtuple`` is) has no line to show: a library's.
    """
    origin = origin_of(filename)
    if origin is Origin.LEAKLAB:
        return None
    return origin is Origin.USER and not (filename.startswith("<") and not linecache.getlines(filename))


def find_lines(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Run the code again, traced, and name the lines of what leaks; of all that grows, where the settings want that.

    No phase of the measurement may be open, and its figures must have been read.

    In a loop that goes on, its running functions are traced, tracemalloc is left alone where the lines that keep are
    known, and no dispatch mode is entered, which a block of the user's could end.
    """
    leaks = (*explained.leaks, *explained.bounded) if session.settings.sites else explained.leaks
    wanted = [leak for leak in leaks if leak.path.steps or leak.unit in ("objects", CHILDREN, DESCRIPTORS)]
    if session.settings.sites is False or session.failure or not wanted:
        return explained
    if session.seconds_left <= 0:
        note = "no time was left for a traced run, which finds the lines that leak: allow more with -t"
        return replace(explained, later_notes=(*explained.later_notes, note))
    prints = {leak.fingerprint for leak in wanted}
    addresses = [address for address in explained.addresses if address.fingerprint in prints]
    runs = TracedRuns(session, wanted)
    keeping = _KeepingLines(runs, addresses, session.clocks.busy())
    making = _MakingLines(runs, keeping)
    try:
        with runs.phase():
            if session.run_seconds > SLOW_SECONDS and not session.in_loop:  # one run for both
                yield from making.runs(with_keeping=True)
                yield from keeping.runs()
            else:
                yield from keeping.runs()
                if keeping.missing or not session.in_loop:
                    yield from making.runs()
            if making.is_apart and keeping.missing:
                yield from making.runs(of_objects=True)
    finally:
        keeping.points.clear()  # they hold objects of the user's
    making.name_by_survivor()
    closing = _ClosingLines(runs, making.shapes)
    yield from closing.runs()
    found, notes = _found(runs, keeping, making, closing, LineWriter(session.cell_name))
    return replace(explained, lines=(*explained.lines, found), later_notes=(*explained.later_notes, *notes))


_Lines = dict[str, Counter[Line]]
"""By the fingerprint of a leak, how often each line did it."""


class _KeepingLines:
    """The lines during which holders get new entries.

    Args:
        runs: Makes the runs.
        addresses: Of the holders.
        busy: Names of other threads that have run since the check began.
    """

    def __init__(self, runs: TracedRuns, addresses: Sequence[LeakAddress], busy: Sequence[str]) -> None:
        self._runs, self.busy = runs, busy
        self.points = watch_places(runs.measurement, addresses, runs.session.namespace)
        of_threads = [threads_point(leak.fingerprint) for leak in runs.leaks if leak.path.root.startswith("thread ")]
        self.points += [point for point in of_threads if point is not None]
        self._arrivals = arrival_lines(runs.leaks)
        self._watch = LineWatch(self.points, whose, self._arrivals)
        self._n_made = 0
        self.lines: _Lines = {}
        self.grows_anyway: set[str] = set()

    @property
    def missing(self) -> set[str]:
        """The leaks of which no line is known that keeps."""
        return {leak.fingerprint for leak in self._runs.leaks if leak.fingerprint not in self.lines}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch one run, unless somebody else traces."""
        if sys.gettrace() is not None:
            yield
            return
        with self._watch.installed(running_too=self._runs.session.in_loop):
            yield

    def note_run(self, seconds: float) -> None:
        """Take in that a watched run has ended."""
        self._n_made += 1
        self.lines = self._watch.lines
        self._watch_between(seconds)

    def runs(self) -> Generator[int, Ran, None]:
        """Run with a trace function, as often as a line is missing."""
        runs, watch = self._runs, self._watch
        if sys.gettrace() is not None:
            runs.notes.append(
                "a debugger or coverage tool uses the tracer: the report names the lines that create the objects, "
                "not the lines that keep them"
            )
            return
        self.lines = watch.lines
        places = {point.fingerprint for point in self.points}.union(*(each.fingerprints for each in self._arrivals))
        watched = places & {leak.fingerprint for leak in runs.leaks}
        while runs.goes_on(watched - watch.lines.keys(), _N_WATCHED, self._n_made):
            with self.watched():
                ran = yield runs.start()
            runs.finish(ran)
            self.note_run(ran[0])
        for fingerprint in self.grows_anyway:  # whatever line ran meanwhile has nothing to do with it
            watch.lines.pop(fingerprint, None)
        for leak in runs.leaks if self.busy and runs.session.in_loop else ():
            self._drop_guesses(leak)
        for fingerprint in watched:
            if (first := earlier_key(fingerprint)) in watch.lines:
                watch.lines[fingerprint] = watch.lines.pop(first)
            if (last := later_key(fingerprint)) in watch.lines:
                watch.lines.setdefault(fingerprint, watch.lines[last])

    def _drop_guesses(self, leak: Leak) -> None:
        """Keep only lines that name the place: while another thread adds to it, the loop is at any of its lines."""
        due = [step.reference for step in leak.path.steps if step.status is not Status.LEAKED]
        names = set(re.findall(r"\w+", " ".join(due)))
        writer, lines = LineWriter(self._runs.session.cell_name), self.lines.pop(leak.fingerprint, Counter[Line]())
        words = {line: set(re.findall(r"\w+", writer.write(*line).partition(": ")[2])) for line in lines}
        if named := {line: count for line, count in lines.items() if words[line] & names}:
            self.lines[leak.fingerprint] = Counter(named)

    def _watch_between(self, seconds: float) -> None:
        """Where other threads run, wait about as long as a run takes: what grows now is their doing."""
        if not self.busy or self._runs.failure:
            return
        before = [point.token() for point in self.points]
        time.sleep(min(max(seconds, _LEAST_SECONDS_BETWEEN), _MOST_SECONDS_BETWEEN))
        self.grows_anyway |= {
            point.fingerprint for point, token in zip(self.points, before, strict=True) if point.has_changed(token)
        }


class _MakingLines:
    """The lines that make what leaks: those on whose stack it was allocated.

    Args:
        runs: Makes the runs.
        keeping: Has the holders, and knows of which leaks no line is known that keeps.
    """

    def __init__(self, runs: TracedRuns, keeping: _KeepingLines) -> None:
        self._runs, self._keeping = runs, keeping
        self._makers = Makers(whose, StorageLines(whose))
        self._made: dict[int, Made] = {}
        self.lines: _Lines = defaultdict(Counter)
        self.elsewhere: _Lines = defaultdict(Counter)
        self.sizes: dict[str, Counter[Stack]] = defaultdict(Counter)
        self.shapes: tuple[CycleShape, ...] = ()
        self.is_apart = runs.session.run_seconds > _APART_SECONDS and not runs.session.in_loop

    def runs(self, *, with_keeping: bool = False, of_objects: bool = False) -> Generator[int, Ran, None]:
        """Run with a dispatch mode and with tracemalloc, or with one of them where they are apart.

        Args:
            with_keeping: Whether the first run has a trace function as well.
            of_objects: Whether with tracemalloc alone, for leaks of which storages and holders have told no line.
        """
        runs, keeping, storages = self._runs, self._keeping, self._makers.storages
        of_storages = not (of_objects or runs.session.in_loop)
        made, self._made = self._made, {}
        if of_objects:
            storages.forget()
        with ExitStack() as stack:
            n_frames = None if self.is_apart and of_storages else stack.enter_context(python_traces())
            is_exact = stack.enter_context(storages.noted()) if of_storages else True
            yield from self._runs_inside(with_keeping=with_keeping)
            if keeping.missing:
                self._made = {**made, **self._makers.made_by_survivor(runs.measurement, runs.n_before)}
        self._say_how_exact(n_frames, is_exact=is_exact)

    def _runs_inside(self, *, with_keeping: bool) -> Generator[int, Ran, None]:
        runs, keeping, storages = self._runs, self._keeping, self._makers.storages
        for number in itertools.count():
            # One is made in any case.
            if runs.is_over or (number and not runs.goes_on(keeping.missing, _N_TRACED, number)):
                break
            before = [point.token() for point in keeping.points]
            is_both = with_keeping and not number
            with keeping.watched() if is_both else nullcontext():
                storages.note_for(min(max(_NOTING_SECONDS, 2 * runs.session.run_seconds), _MOST_NOTING_SECONDS))
                ran = yield runs.start()
            runs.finish(ran)
            if is_both:
                keeping.note_run(ran[0])
            for point, token in zip(keeping.points, before, strict=True):
                entries = point.new_entries(token, point.token())
                self._note(point.fingerprint, Counter(self._makers.made_of(entries)))
                if not runs.session.in_loop:  # there, no storage is noted
                    self.sizes[point.fingerprint] += self._makers.allocated_below(entries)

    def name_by_survivor(self) -> None:
        """Name what made the survivors of leaks whose holder no line was seen to fill; note how cycles are closed."""
        runs, made = self._runs, self._made
        if not made:
            return
        session = runs.session
        found = survivors_by_leak(runs.measurement, runs.n_before, session.namespace, made, self._keeping.missing)
        for fingerprint, places in found.made.items():
            # What was seen to come into a watched place in each run is said again, and by all that is there.
            self.lines.pop(fingerprint, None)
            self.elsewhere.pop(fingerprint, None)
            self._note(fingerprint, places)
            self.sizes[fingerprint] = Counter()
            for made_here, count in places.items():
                for stack, n_bytes in made_here.parts:
                    self.sizes[fingerprint][stack] += n_bytes * count
        made.clear()
        self.shapes = found.shapes

    def _note(self, fingerprint: str, places: Counter[Made]) -> None:
        for made, count in places.items():
            (self.elsewhere if made.is_elsewhere else self.lines)[fingerprint][made.line] += count

    def _say_how_exact(self, n_frames: int | None, *, is_exact: bool) -> None:
        if n_frames is not None and n_frames < FEW_FRAMES:
            self._runs.notes.append(
                f"tracemalloc was already running with {n_frames} frame{'s' * (n_frames > 1)}: objects created inside "
                "libraries could not be traced to your line"
            )
        if not is_exact:
            self._runs.notes.append(
                "torch.compile was used, so tensors could not be traced: the report names the lines that created "
                "their Python objects"
            )


class _ClosingLines:
    """The lines that close cycles, and those that asked for the copy in which that happens.

    Args:
        runs: Makes the runs.
        shapes: Of the cycles.
    """

    def __init__(self, runs: TracedRuns, shapes: Sequence[CycleShape]) -> None:
        self._runs, self._shapes = runs, shapes
        self.lines: _Lines = {}
        self.asked: _Lines = {}

    def runs(self) -> Generator[int, Ran, None]:
        """Run with a trace function."""
        runs = self._runs
        if not self._shapes or sys.gettrace() is not None:
            return
        watch = ClosingWatch(self._shapes, whose)
        wanted = {shape.fingerprint for shape in self._shapes}
        with runs.phase():
            for number in itertools.count():
                if not runs.goes_on(wanted - watch.lines.keys(), _N_CLOSING, number):
                    break
                with watch.installed(running_too=runs.session.in_loop):
                    ran = yield runs.start()
                runs.finish(ran)
        self.lines, self.asked = watch.lines, watch.asked


def _found(
    runs: TracedRuns, keeping: _KeepingLines, making: _MakingLines, closing: _ClosingLines, writer: LineWriter
) -> tuple[FoundLines, list[str]]:
    """Return the lines of all searches, and what the reader should know of these."""
    other_thread = thread_words(keeping.busy) if len(keeping.busy) == 1 else "another thread"
    sites = {}
    for leak in runs.leaks:
        searches = (
            (keeping.lines, _DOES.get(leak.unit, "keeps it") if not leak.path.steps else "keeps it"),
            (closing.asked, "copies it"),
            (closing.lines, "closes the cycle"),
            (making.lines, "makes it"),
            (making.elsewhere, f"makes it, in {other_thread}"),
        )
        words: dict[tuple[str, int], str] = {}
        for lines, does in searches:
            for line in _chief(lines.get(leak.fingerprint, Counter()), writer):
                words.setdefault(line[:2], f"{writer.write(*line)}  # {does}")
        sites[leak.fingerprint] = tuple(words.values())
    unknown = [leak.what for leak in runs.leaks if not sites[leak.fingerprint]]
    notes = runs.notes
    if unknown and not notes:
        notes.append(f"no line of your code was found that creates or keeps: {'; '.join(unknown[:3])}")
    for leak in runs.leaks:
        if leak.fingerprint in keeping.grows_anyway:
            notes.append(f"{leak.holder} also grows between runs: {other_thread} adds to it")
    if not runs.session.in_loop:  # there, nothing was run that would not have been
        notes.append(f"the code was run {unit_words(runs.n_runs, 'more times')}, traced, to find the lines that leak")

    def places(*found: _Lines) -> dict[str, Places]:
        chief = {
            leak.fingerprint: [_chief(lines.get(leak.fingerprint, Counter()), writer) for lines in found]
            for leak in runs.leaks
        }
        return {key: tuple(dict.fromkeys(line[:2] for lines in each for line in lines)) for key, each in chief.items()}

    kept = places(keeping.lines, closing.asked, closing.lines)
    stacks = {leak.fingerprint: named_stacks(making.sizes.get(leak.fingerprint, {}), writer) for leak in runs.leaks}
    return FoundLines(sites, kept, places(making.lines, making.elsewhere), stacks), notes


_DOES = {DESCRIPTORS: "opens it", CHILDREN: "starts it"}


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
    if all("  # makes it" in site for site in sites):
        # Another thread may have run what keeps it, as an event loop does while a model computes in a worker.
        sites = (*_line_in_text(leak, sites), *sites)
    if not sites:
        return leak
    place, _, does = sites[0].rpartition("  # ")
    return replace(leak, sites=sites, advice=with_line(leak.advice, place.partition(": ")[0], does))


def _line_in_text(leak: Leak, sites: tuple[str, ...]) -> Iterator[str]:
    """Yield the line that keeps *leak*, none of *sites*, where the code has only one that adds to its holder."""
    variable, _, function = leak.holder.partition(" in ")  # `losses in main()`
    is_local = function.endswith("()") and is_expression(variable)
    expression = variable if is_local else leak.holder
    found = find_line(expression, function[:-2] if is_local else "") if is_expression(expression) else None
    if found is None or any(site.startswith((f"{found.place}:", f"{found.place} ")) for site in sites):
        return
    # Beside what was traced, an attribute of the same name may be another object's.
    if not sites or expression.isidentifier() or expression in found.text:
        yield f"{found.place}: {found.text}  # keeps it"
