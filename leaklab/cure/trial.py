"""Try the candidates: run the program changed, measure what grows, judge, and bring everything back.

Everything is measured against the same runs without a change, made just before. Where a program has several leaks, a
change that ends one of them stays in place while the next is worked on: what is offered is what held together.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass

from leaklab.cure.applying import ReplaceableCell, applied
from leaklab.cure.candidate import Candidate, Finding, Program
from leaklab.cure.edits import NotTriedError
from leaklab.cure.judging import is_settling, judge_trial, remaining, shows, trial_words
from leaklab.cure.keeping import KeptData
from leaklab.cure.levels import Gain, Heap, LevelReader
from leaklab.cure.restoring import to_the_end
from leaklab.cure.training import Behaviour, Observer, harm_of
from leaklab.errors import ENDS
from leaklab.model.cure import Change, Cure, CureOutcome

Ran = tuple[float, str]
"""How one run went: its seconds, and the name of what it raised."""
N_HALF = 3
_PARTS = (1, 1, N_HALF, N_HALF)
"""Two warm-up runs, then two halves."""
N_RUNS = sum(_PARTS)
_MAX_TRIED = 4
"""So many candidates of one leak are tried."""
_MAX_TOLD = 5
_BEST_FIRST = (
    CureOutcome.CURED, CureOutcome.LESSENED, CureOutcome.NOT_TRIED, CureOutcome.NO_EFFECT, CureOutcome.HARMFUL,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Means:
    """What trials need of the check.

    Attributes:
        program: The user's.
        cell: What is checked, if it is a cell.
        heap: Lends the heap.
        collects: Whether garbage is collected before a level is read.
        addresses: Of the objects on the paths of the leaks.
        next_run: Number of the next run.
        seconds: What all trials together may take.
        obstacle: Why nothing is to be tried, one clause; empty if trials are wanted.
    """

    program: Program
    cell: ReplaceableCell | None
    heap: Heap
    collects: bool
    addresses: Collection[int]
    next_run: int
    seconds: float
    obstacle: str = ""


def try_cures(
    proposed: Sequence[tuple[Finding, Sequence[Candidate]]], means: Means
) -> Generator[int, Ran, dict[str, tuple[Cure, ...]]]:
    """Run the program with the changes proposed for each leak, the largest leak first.

    Args:
        proposed: The leaks with their candidates, best first.
        means: What trials need.

    Yields:
        The numbers of the runs to make.

    Returns:
        For the fingerprint of a leak its cures, best first.
    """
    trials = _Trials(means)
    try:
        yield from trials.of_all(proposed)
    finally:
        trials.close()
    return trials.cures()


@dataclass(slots=True)
class _Told:
    """What is known of one candidate."""

    candidate: Candidate
    outcome: CureOutcome
    evidence: str
    gain: Gain | None = None

    def cure(self) -> Cure:
        return Cure(self.candidate.words, self.candidate.changes, self.outcome, self.evidence)


@dataclass(slots=True)
class _TrialResult:
    """How a program ran, changed or not."""

    gain: Gain | None = None
    behaviour: Behaviour | None = None
    failure: str = ""
    n_runs: int = N_RUNS


class _Trials:
    """All trials of one check."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._number = means.next_run
        self._end = time.perf_counter() + means.seconds
        self._longest = 0.0
        self._told: dict[str, list[_Told]] = {}
        self._reference = _TrialResult()
        self._kept: tuple[Candidate, ...] = ()  # end a leak, and stay in place for the trials of the others
        self._stopped = means.obstacle
        self._has_ended = False
        self._observer = Observer(means.heap, means.program.namespace)

    def close(self) -> None:
        """Let go of everything of the user's."""
        del self._observer

    def cures(self) -> dict[str, tuple[Cure, ...]]:
        """Return what was found."""
        return {
            fingerprint: tuple(one.cure() for one in sorted(told, key=lambda one: _BEST_FIRST.index(one.outcome)))[
                :_MAX_TOLD
            ]
            for fingerprint, told in self._told.items()
            if told
        }

    def of_all(self, proposed: Sequence[tuple[Finding, Sequence[Candidate]]]) -> Generator[int, Ran, None]:
        """Try what is proposed for one leak after the other."""
        if not self._stopped and any(
            _may_be_tried(candidate) for _finding, candidates in proposed for candidate in candidates
        ):
            yield from self._measure_unchanged()
        for finding, candidates in proposed:
            told = self._told.setdefault(finding.leak.fingerprint, [])
            if self._has_ended:
                told.append(self._ended_too())
                continue
            yield from self._of_leak(candidates, told, is_only=len(proposed) == 1)

    def _measure_unchanged(self) -> Generator[int, Ran, None]:
        self._reference = yield from self._runs(())
        if self._reference.failure:
            self._stopped = f"the code raised {self._reference.failure} when it was run again"
        elif self._reference.gain is not None and not shows(self._reference.gain):
            self._stopped = f"{2 * N_HALF} runs are too few to see this leak"

    def _ended_too(self) -> _Told:
        first = next(one for told in self._told.values() for one in told if one.outcome is CureOutcome.CURED)
        words = f"The change for the leak above ends this one, too: {first.candidate.words}"
        return _Told(Candidate(words), CureOutcome.CURED, first.evidence)

    def _of_leak(
        self, candidates: Sequence[Candidate], told: list[_Told], *, is_only: bool
    ) -> Generator[int, Ran, None]:
        n_tried = 0
        for candidate in candidates:
            if not _may_be_tried(candidate):
                told.append(_Told(candidate, CureOutcome.NOT_TRIED, candidate.not_tried or "it is no change of a line"))
                continue
            if n_tried >= _MAX_TRIED:
                continue
            told.append((yield from self._try(candidate)))
            n_tried += told[-1].outcome is not CureOutcome.NOT_TRIED
            if told[-1].outcome is CureOutcome.CURED:
                self._end_all()
                return
        lessening = sorted((one for one in told if one.outcome is CureOutcome.LESSENED), key=self._remaining)
        if len(lessening) > 1:
            both = _joined(lessening[0].candidate, lessening[1].candidate)
            if both is not None:
                told.append((yield from self._try(both)))
                if told[-1].outcome is CureOutcome.CURED:
                    self._end_all()
                    return
        if lessening and not is_only:
            self._kept = (*self._kept, lessening[0].candidate)

    def _remaining(self, one: _Told) -> float:
        reference = self._reference.gain
        return 1.0 if reference is None or one.gain is None else remaining(reference, one.gain)

    def _end_all(self) -> None:
        """Note that nothing grows any more: what was kept in place has its share in that."""
        self._has_ended = True
        for one in (one for told in self._told.values() for one in told):
            if any(one.candidate is kept for kept in self._kept):
                one.outcome = CureOutcome.CURED
                one.evidence += "; nothing is left with the changes for the other leaks"

    def _try(self, candidate: Candidate) -> Generator[int, Ran, _Told]:
        """Run with *candidate*, beside what is kept in place."""
        reference = self._reference
        if not self._stopped and time.perf_counter() + self._longest > self._end:
            self._stopped = "no time was left: --cure -t 300 (cure=True, seconds=300) gives more"
        if self._stopped or reference.gain is None or reference.behaviour is None:
            return _Told(candidate, CureOutcome.NOT_TRIED, self._stopped)
        changes = tuple(change for one in (*self._kept, candidate) for change in one.changes)
        try:
            result = yield from self._runs(changes, (*self._kept, candidate))
        except NotTriedError as refused:
            return _Told(candidate, CureOutcome.NOT_TRIED, str(refused))
        if result.failure in ENDS:
            self._stopped = f"a trial was ended by {result.failure}"
            return _Told(candidate, CureOutcome.NOT_TRIED, self._stopped)
        if result.failure:
            yield from self._run_unchanged()
            return _Told(candidate, CureOutcome.HARMFUL, f"the changed code raises {result.failure}")
        assert result.gain is not None  # noqa: S101 - there was no failure
        assert result.behaviour is not None  # noqa: S101
        words = trial_words(reference.gain, result.gain, result.n_runs)
        if harm := harm_of(reference.behaviour, result.behaviour, changes):
            return _Told(candidate, CureOutcome.HARMFUL, f"{words}, but {harm}")
        outcome = judge_trial(reference.gain, result.gain)
        if outcome is CureOutcome.HARMFUL:
            words += ", but more grows"
        elif any(one.has_gradient for one in result.behaviour.parameters.values()):
            words += "; same gradients"
        return _Told(candidate, outcome, words, result.gain)

    def _run_unchanged(self) -> Generator[int, Ran, None]:
        """Run as the user's code is, after a trial that failed: if that fails now, nothing more can be tried."""
        _seconds, failure = yield self._next()
        if failure:
            self._stopped = f"the unchanged code raised {failure} after a trial that failed"

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def _runs(
        self, changes: Sequence[Change], candidates: Sequence[Candidate] = ()
    ) -> Generator[int, Ran, _TrialResult]:
        """Make the runs of one trial; the user's data are as before it.

        Raises:
            NotTriedError: if *changes* cannot be tried.
        """
        started = time.perf_counter()
        means = self._means
        kept = None
        if changes:
            kept = KeptData(means.program.namespace, means.addresses, means.heap)  # type: ignore[arg-type]  # a dict
            kept.keep_all([name for one in candidates for name in one.emptied])
            kept.keep_places([name for one in candidates for name in one.rebound])
        try:
            with applied(changes, means.program, means.cell):
                result = yield from self._measured()
                if changes and result.gain is not None and is_settling(result.gain):
                    result = yield from self._measured()
                    result.n_runs += N_RUNS
                return result
        finally:
            if kept is not None:
                to_the_end(kept.put_back)
            del kept
            self._longest = max(self._longest, time.perf_counter() - started)

    def _measured(self) -> Generator[int, Ran, _TrialResult]:
        reader = LevelReader(self._means.heap, collects=self._means.collects)
        self._observer.begin()
        for n_runs, read in zip(_PARTS, (reader.begin, reader.look, reader.look, reader.look), strict=True):
            for number in range(n_runs):
                _seconds, failure = yield self._next()
                if failure:
                    return _TrialResult(failure=failure)
                if n_runs == N_HALF and not number:
                    reader.note_first_run()
            read()
        return _TrialResult(reader.gain(2 * N_HALF), self._observer.end())


def _may_be_tried(candidate: Candidate) -> bool:
    return bool(candidate.changes) and not candidate.not_tried


def _joined(first: Candidate, second: Candidate) -> Candidate | None:
    """Return both changes as one; None if they concern one line."""
    lines = [{(change.filename, change.line) for change in one.changes} for one in (first, second)]
    if lines[0] & lines[1]:
        return None
    words = f"{first.words.rstrip('.')}, and {second.words[:1].lower()}{second.words[1:]}"
    return Candidate(
        words,
        (*first.changes, *second.changes),
        emptied=(*first.emptied, *second.emptied),
        rebound=(*first.rebound, *second.rebound),
    )
