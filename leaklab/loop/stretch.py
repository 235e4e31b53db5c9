"""Check a stretch of a loop that goes on: nothing is repeated, a run is the next steps of the loop.

The variables among which holders are looked for first are held weakly between the checks.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from leaklab.check.line_search import with_lines
from leaklab.check.pipeline import check_steps
from leaklab.decide.length_readings import GrowthWitness
from leaklab.heap.source_lines import running_cell_name
from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.level_history import HolderLengths, KnownPlace, LengthsAfterRuns
from leaklab.model import Check, Leak, Outcome, Settings
from leaklab.model.check import Verdict
from leaklab.model.paths import path_of_script
from leaklab.model.sentences import RUNS, Progress, quoted
from leaklab.runtime.gc_control import collect_quietly, user_lets_collect
from leaklab.runtime.objects import is_script
from leaklab.text import format_bytes, unit_words

_AsTold: TypeAlias = Callable[[Iterable[Leak]], tuple[Leak, ...]]
_MOST_RUNS = 40
_NO_LIMIT = 1e9
"""Seconds: the loop takes the time it takes, and how often it is checked is decided by what checks cost."""
_COLLECTED_BYTES, _COLLECTED_OBJECTS = 2**20, 10_000
"""Cyclic garbage that is worth a word."""


def collect_before_checks(step: int) -> str:
    """Collect cyclic garbage; return what had piled up by *step*, empty if that is little or the user does not collect.

    The checks collect it, and would hide that nobody else does.
    """
    if not user_lets_collect():
        return ""
    before = native_heap_bytes()
    n_objects = collect_quietly()
    after = native_heap_bytes()
    freed = max(before - after, 0) if before is not None and after is not None else 0
    if freed < _COLLECTED_BYTES and n_objects < _COLLECTED_OBJECTS:
        return ""
    return (
        f"a garbage collection at step {step:,} freed {unit_words(n_objects, 'objects')} of cyclic garbage "
        f"({format_bytes(freed)}) that Python's own collections had not freed yet"
    )


_SEEN_PHASES, _TOLD_PHASES, _SURE_PHASES, _MOST_PHASES = 1, 2, 3, 5


class DoublingRuns:
    """How many runs a check of a loop makes: it looks at twice the steps, at four times, at eight times.

    What still grows there as it did at first is no warm-up. At four times the check is over where nothing grows, or
    where that can be seen by the length of a container later on. What cannot be decided at eight times, as what happens
    once an epoch, is followed twice as far, and once more.

    Args:
        lengths: Is told the places that grow.
        n_first: Runs until the loop has twice the steps; 0 where as many runs are to be made as of any check.

    Attributes:
        has_ended: Whether the loop has ended.
        native_bytes: What malloc hands out in a run for the places that grow, wherever the data of their tensors lie.
        endless: Places, by their fingerprints, of which nothing in the code could end the growth.
    """

    def __init__(self, lengths: HolderLengths, n_first: int) -> None:
        self._lengths, self._n_first = lengths, n_first
        self.has_ended = False
        self.native_bytes = 0.0
        self.endless = frozenset[str]()
        self._noted: tuple[str, ...] = ()
        self._gone_before: set[str] = set()

    @property
    def most_runs(self) -> int:
        """Room for so many is needed."""
        return self._n_first * (2**_MOST_PHASES - 1) or _MOST_RUNS

    def note(self, places: Iterable[KnownPlace], native_bytes: float, lengths: LengthsAfterRuns) -> None:
        """Hear of the places that grow."""
        places = tuple(places)
        self._noted = tuple(place.fingerprint for place in places)
        self._gone_before.difference_update(self._noted)
        self._lengths.note(places, lengths)
        self.native_bytes = native_bytes

    def note_endless(self, fingerprints: Collection[str]) -> None:
        """Hear which of them nothing in the code could end."""
        self.endless = frozenset(fingerprints)

    def gone(self, fingerprints: set[str]) -> set[str]:
        """Return which of the places that grew, by their fingerprints, went with the loop, and not before its end."""
        return self._lengths.gone(fingerprints) - self._gone_before

    @property
    def lengths(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """How long the containers of the places were after some runs, by fingerprint."""
        return self._lengths.seen

    @property
    def has_collected(self) -> bool:
        """Whether all garbage has just been collected, as before the first check."""
        return bool(self._n_first)

    def next_phase(self, phases_done: int, runs_done: int, *, is_open: bool, is_settled: bool) -> int | None:
        """Return the number of runs of the next phase, 0 if the check is over; None: as many as of any check."""
        if not self._n_first:
            return None
        wanted = _MOST_PHASES if is_open else _TOLD_PHASES if is_settled else _SURE_PHASES
        return 0 if phases_done >= wanted else runs_done + self._n_first

    def end_phase(self, phases_done: int) -> None:
        """Note which places are gone while the loop goes on, behind the look that was told last."""
        if self._n_first and phases_done > _TOLD_PHASES and not self.has_ended:
            self._gone_before |= self._lengths.gone(self._noted)

    def tells_after(self, phases_done: int) -> bool:
        """Return whether what grows is to be told already: at four times the steps; at twice it is noted."""
        return bool(self._n_first) and phases_done in (_SEEN_PHASES, _TOLD_PHASES)

    def is_early(self, n_runs: int) -> bool:
        """Return whether what grows after *n_runs* runs may be a warm-up: of twice the steps."""
        return n_runs <= self._n_first


class LoopStretch:
    """One check, which the loop's steps drive; used once: `begin`, then `advance` at each `next_step`.

    Args:
        name: What the user calls the loop.
        steps_per_run: So many steps are one run.
        namespace: The variables among which holders are looked for first.
        lengths: Is told the places that grow.
        n_first: Runs until the loop has twice the steps, for a check that looks at doubling steps; else 0.
        with_lines: Whether to trace some runs for the lines of what leaks.

    Attributes:
        growing: What the check has said to grow since this was read last.
        seen: What grew at twice the steps. It may be a warm-up, and is a word at the end of a loop that takes it along.
    """

    def __init__(
        self,
        name: str,
        steps_per_run: int,
        namespace: dict[str, Any] | None,
        lengths: HolderLengths,
        *,
        n_first: int = 0,
        with_lines: bool = True,
    ) -> None:
        self.steps_per_run = steps_per_run
        self.first_step = self.next_step = 0
        self.growing: list[Leak] = []
        self.seen: list[Leak] = []
        self._runs = DoublingRuns(lengths, n_first)
        self._as_told: _AsTold = _leaks_of_script if is_script(namespace) else tuple
        settings = Settings(
            self._runs.most_runs,
            n_warmups=0,
            max_seconds=_NO_LIMIT,
            name=name,
            sites=None if with_lines else False,
            cure=False,
        )
        self._steps = check_steps(
            settings,
            namespace,
            running_cell_name,
            in_loop=self._runs,
            on_progress=_into(self.growing, self.seen, self._runs.is_early, self._as_told),
        )
        self._started = 0.0

    @property
    def native_bytes_per_step(self) -> float:
        """What malloc hands out for the places that were found to grow."""
        return self._runs.native_bytes / self.steps_per_run

    @property
    def witness(self) -> GrowthWitness:
        """What was seen of the places besides their leaks."""
        first, steps = self.first_step, self.steps_per_run
        at_steps = {
            fingerprint: tuple((first + run * steps, length) for run, length in series)
            for fingerprint, series in self._runs.lengths.items()
        }
        return GrowthWitness(at_steps, self._runs.endless)

    def begin(self, step: int) -> None:
        """Take the heap as it is after *step* for the baseline.

        Raises:
            CheckRunningError: if another check is under way in this process.
        """
        self.first_step = step
        next(self._steps)
        self._go_on(step)

    def advance(self, step: int) -> Check | None:
        """Take in that the run ended after *step*; return the record once the check has ended, else None."""
        return self._send(step, "")

    def end_early(self, step: int, reason: str) -> Check | None:
        """End the check in the middle of a run; return what was found until then, None if that is nothing."""
        self._runs.has_ended = True
        return self._send(step, reason)

    def lost(self, check: Check | None, known: set[str]) -> list[Leak]:
        """Return what of `seen` went with the loop, so that its last *check* could not find it: nothing refutes it.

        What has been told, by the fingerprints *known*, is left out. No step is left to trace: a line is named where
        the code has only one that adds to such a place.
        """
        found = set() if check is None else {leak.fingerprint for leak in check.leaks}
        gone = self._runs.gone({leak.fingerprint for leak in self.seen} - known - found)
        return list(with_lines(tuple(leak for leak in self.seen if leak.fingerprint in gone), ()))

    def close(self) -> None:
        """End the check without asking what it found; the collector has its objects back."""
        self._steps.close()

    def _send(self, step: int, failure: str) -> Check | None:
        try:
            self._steps.send((time.perf_counter() - self._started, failure))
        except StopIteration as stop:
            check: Check = stop.value
            leaks, bounded, noted = map(self._as_told, (check.leaks, check.bounded, check.noted))
            return replace(check, leaks=leaks, bounded=bounded, noted=noted)
        self._go_on(step)
        return None

    def _go_on(self, step: int) -> None:
        self.next_step = step + self.steps_per_run
        self._started = time.perf_counter()


def left_by_all(check: Check) -> list[Leak]:
    """Return what each run of *check*, too few to judge, has left something of; that of the last one may be in use."""
    return [leak for leak in check.noted if len(leak.kept) > _FEWEST_ALIKE and all(leak.kept[:-1])]


def without_their_memory(check: Check, lost: Sequence[Leak]) -> Check:
    """Return *check* without native memory that nothing holds, where the objects that are *lost* had most of it.

    Of what is lost no check can say that nothing piled up.
    """
    n_bytes = sum(leak.bytes_per_run for leak in lost)
    leaks = tuple(leak for leak in check.leaks if leak.cause != _NATIVE or n_bytes < _MOST_OF_IT * leak.bytes_per_run)
    if not lost:
        return check
    words = f"{quoted(lost[0].holder)} grew and was gone when the loop ended"
    is_answered = bool(leaks) or check.verdict.outcome is Outcome.INCONCLUSIVE
    verdict = check.verdict if is_answered else Verdict(Outcome.INCONCLUSIVE, words, check.verdict.n_runs)
    return replace(check, leaks=leaks, verdict=verdict)


def not_clean(check: Check, holder: str) -> Check:
    """Return *check*, which the end of the loop has cut, without its all-clear if *holder* has been emptied meanwhile.

    What was in there was counted as gone, or as having come to a limit.
    """
    if not holder or check.verdict.outcome not in (Outcome.CLEAN, Outcome.BOUNDED):
        return check
    words = f"{quoted(holder)} had been emptied when the loop ended"
    return replace(check, verdict=Verdict(Outcome.INCONCLUSIVE, words, check.verdict.n_runs))


_NATIVE, _MOST_OF_IT = "native", 0.5
_FEWEST_ALIKE = 3
"""So many runs that all left something are worth a word at the end of a loop, "growing": not a verdict."""


def _leaks_of_script(leaks: Iterable[Leak]) -> tuple[Leak, ...]:
    """Return *leaks* in words for a program that is no notebook; their fingerprints stay."""
    return tuple(replace(leak, path=path_of_script(leak.path)) for leak in leaks)


def _into(
    growing: list[Leak], seen: list[Leak], is_early: Callable[[int], bool], as_told: _AsTold
) -> Callable[[Progress], None]:
    """Return what notes what a check under way says to grow; it holds nothing else of the stretch."""

    def tell(progress: Progress) -> None:
        if progress.stage == RUNS:
            if is_early(progress.n_runs):
                seen[:] = as_told(progress.growing)
                return
            growing[:] = as_told(progress.growing)
            prints = {leak.fingerprint for leak in growing}  # what does not grow any more was a warm-up
            seen[:] = [leak for leak in seen if leak.fingerprint in prints]

    return tell


class Roots:
    """Objects by the names they shall have in what is reported, or a namespace that lives as long as the program.

    Args:
        namespace: Global variables; None to look in modules and functions only.
        named: Objects that stand in its place; held weakly.

    Raises:
        TypeError: if one of *named* cannot be referred to weakly.
    """

    def __init__(self, namespace: dict[str, Any] | None, named: Mapping[str, object] | None) -> None:
        self._namespace = namespace
        self._named = {name: _weakly(name, root) for name, root in (named or {}).items()}

    def variables(self) -> dict[str, Any] | None:
        """Return the variables that are alive now."""
        if not self._named:
            return self._namespace
        alive = ((name, reference()) for name, reference in self._named.items())
        return {name: root for name, root in alive if root is not None}


def _weakly(name: str, root: object) -> weakref.ref[Any]:
    try:
        return weakref.ref(root)
    except TypeError:
        kind = type(root).__name__
        msg = f"the root {name!r} is a {kind}, which cannot be referred to weakly: give the object that has it"
        raise TypeError(msg) from None
