"""Try the proposals: run the program changed, beside the unchanged one, and say what that did.

Everything is measured against the same runs without a change, made at the same time or just before. Where a program has
several leaks, a change that ends one of them stays in place while the next is worked on: what is offered is what held
together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType

from leaklab.cure.behaviour import (
    Behaviour,
    harm_of,
    idle_words,
    other_gradient,
    other_print,
    pointless_cache,
    same_gradients,
)
from leaklab.cure.edits import NotTriedError, are_apart, merged
from leaklab.cure.judging import judge_trial, remaining, shows, trial_words
from leaklab.cure.live import evaluate
from leaklab.cure.new_kernel import names_missing
from leaklab.cure.source import Proposal
from leaklab.cure.trial_runs import (
    Asked,
    Means,
    Trial,
    TrialResult,
    TrialRuns,
    changes_of,
)
from leaklab.model import Leak
from leaklab.model.cure import Cure, CureOutcome

_N_REHEARSALS = 2
_N_PARTS = 2
"""So many runs, in trials, one rehearsal has: what fills up in the first of them is full in the second."""
_MAX_TRIED = 4
"""So many proposals of one leak are tried."""
_MAX_SHOWN = 5
_BETTER = (CureOutcome.CURED, CureOutcome.LESSENED)
_BEST_FIRST = (
    CureOutcome.CURED, CureOutcome.LESSENED, CureOutcome.NOT_TRIED, CureOutcome.NO_EFFECT, CureOutcome.HARMFUL,
)  # fmt: skip


def try_cures(proposed: Sequence[tuple[Leak, Sequence[Proposal]]], means: Means) -> Asked[dict[str, tuple[Cure, ...]]]:
    """Run the program with the changes proposed for each leak, the largest leak first.

    Args:
        proposed: The leaks with their proposals, best first.
        means: What trials need.

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
class _Answer:
    """What is known of one proposal.

    Attributes:
        costs: Whether it costs what the program is there for.
        raised: Whether the changed code raised.
        prints: Whether it prints something else, which may be what the leak was for: others are tried all the same.
    """

    proposal: Proposal
    outcome: CureOutcome
    evidence: str
    result: TrialResult | None = None
    costs: bool = False
    raised: bool = False
    prints: bool = False

    def cure(self) -> Cure:
        return Cure(self.proposal.words, self.proposal.changes, self.outcome, self.evidence)


@dataclass(slots=True)
class _OfLeak:
    """What was tried for one leak, and what is still to be tried."""

    answers: list[_Answer]
    todo: list[Proposal]
    n_tried: int = 0

    def next_ones(self) -> Iterator[Proposal]:
        """Yield what is tried next, in order."""
        return (one for number, one in enumerate(self.todo) if may_be_tried(one) and number < _MAX_TRIED)


class _Trials:
    """All trials of one check."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._runs = TrialRuns(means)
        self._end = time.perf_counter() + means.seconds
        self._answers: dict[str, list[_Answer]] = {}
        self._unchanged, self._reference = Trial(is_control=True), TrialResult()
        self._kept: tuple[Proposal, ...] = ()  # end a leak, and stay in place for the trials of the others
        self._stopped = means.obstacle
        self._ended_by: _Answer | None = None
        self._repeated: Behaviour | None = None

    def close(self) -> None:
        """Let go of everything of the user's."""
        self._runs.close()

    def cures(self) -> dict[str, tuple[Cure, ...]]:
        """Return what was found."""
        return {
            fingerprint: tuple(one.cure() for one in sorted(answers, key=_rank))[:_MAX_SHOWN]
            for fingerprint, answers in self._answers.items()
            if answers
        }

    def of_all(self, proposed: Sequence[tuple[Leak, Sequence[Proposal]]]) -> Asked[None]:
        """Try what is proposed for the leaks.

        One change that lessens is looked for per leak, and stays in place for the next leak: where each leak has its
        change, nothing is left. Other changes of the same leaks are tried after that only.
        """
        leaks = [_OfLeak(self._answers.setdefault(one.fingerprint, []), list(todo)) for one, todo in proposed]
        first = [one for leak in leaks for one in leak.next_ones()]
        if not self._stopped and first:
            yield from self._measure_unchanged(first)
        for leak in leaks:
            yield from self._of_leak(leak, is_only=len(leaks) == 1)
        for leak in leaks:
            yield from self._rest_of_leak(leak)
        yield from self._all_together(leaks)
        for leak in leaks if self._ended_by is not None else ():
            if all(one.outcome is not CureOutcome.CURED for one in leak.answers):
                leak.answers.append(self._ended_too(leak.answers))

    def _measure_unchanged(self, next_ones: Sequence[Proposal]) -> Asked[None]:
        runs, started = self._runs, time.perf_counter()
        unchanged = Trial(tuple(one for one in next_ones if one.again), is_control=True)
        yield from runs.begin_children([unchanged, *(Trial((one,)) for one in next_ones)])
        self._unchanged = unchanged
        self._reference = result = yield from runs.of(unchanged)
        if runs.in_children and not result.ended_by and (result.gain is None or not shows(result.gain)):
            if self._means.is_copy:
                self._stopped = "this leak does not appear in a copy of the process: --cure tries it in your notebook"
                return
            # In a child it is another program: it may need a thread or a connection that only this process has.
            runs.end_children()
            runs.in_children = False
            runs.longest = 0.0
            self._end += time.perf_counter() - started
            self._reference = result = yield from runs.of(unchanged)
        if result.ended_by:
            self._stopped = f"the trials were ended by {result.ended_by}"
        elif result.failure:
            self._stopped = f"the code raised {result.failure} when it was run again"
        elif result.refused and next_ones[0].again:
            self._stopped = result.refused
        elif result.gain is not None and not shows(result.gain):
            self._stopped = f"{2 * self._means.n_half} runs are too few to see this leak"

    def _ended_too(self, mine: list[_Answer]) -> _Answer:
        assert self._ended_by is not None  # noqa: S101 - asked for then only
        owner = next(each for each in self._answers.values() if mine is each or self._ended_by in each)
        where = "below" if owner is mine else "above"
        words = f"The change for the leak {where} also ends this one: {self._ended_by.proposal.words}"
        return _Answer(Proposal(words), CureOutcome.CURED, self._ended_by.evidence)

    def _of_leak(self, leak: _OfLeak, *, is_only: bool) -> Asked[None]:
        """Try the proposals of *leak* until one ends everything, or, unless this leak *is_only*, lessens it."""
        while self._ended_by is None and leak.todo:
            proposal = leak.todo[0]
            if not self._stopped and self._reference.gain is not None and leak.n_tried < _MAX_TRIED:
                following = [Trial((*self._kept, one)) for one in leak.next_ones() if not self._refusal(one)]
                yield from self._runs.begin_children(following)
            del leak.todo[0]
            if not may_be_tried(proposal):
                why = proposal.not_tried or "it does not change a line"
                leak.answers.append(_Answer(proposal, CureOutcome.NOT_TRIED, why))
                continue
            if leak.n_tried >= _MAX_TRIED:
                continue
            answer = yield from self._try(proposal)
            leak.answers.append(answer)
            leak.n_tried += answer.outcome is not CureOutcome.NOT_TRIED
            if answer.outcome is CureOutcome.CURED and not answer.prints:
                self._end_all(answer)
            elif answer.outcome is CureOutcome.LESSENED and not is_only and not answer.costs:
                self._kept = (*self._kept, proposal)
                return
        cured = [one for one in leak.answers if one.outcome is CureOutcome.CURED]
        if cured and self._ended_by is None:
            self._end_all(cured[0])

    def _rest_of_leak(self, leak: _OfLeak) -> Asked[None]:
        """Try what is left for *leak*, and the two best of its changes together."""
        if self._ended_by is not None:
            return
        mine = [one.proposal for one in leak.answers if self._is_kept(one)]
        self._kept = tuple(one for one in self._kept if all(one is not other for other in mine))
        yield from self._of_leak(leak, is_only=True)
        lessening = sorted(
            (one for one in leak.answers if one.outcome is CureOutcome.LESSENED and not one.costs), key=self._remaining
        )
        if len(lessening) > 1 and self._ended_by is None:
            both = joined(lessening[0].proposal, lessening[1].proposal)
            if both is not None and both.changes != lessening[0].proposal.changes:
                leak.answers.append((yield from self._try(both)))
                if leak.answers[-1].outcome is CureOutcome.CURED:
                    self._end_all(leak.answers[-1])
        if lessening and self._ended_by is None:
            self._kept = (*self._kept, lessening[0].proposal)

    def _all_together(self, leaks: Sequence[_OfLeak]) -> Asked[None]:
        """Try one change for each leak, all at once, where no single one had an effect: one object may be in all.

        Or where one alone raises: of two lists that are read side by side both must be emptied.
        """
        best = [min(tried, key=_rank).proposal for leak in leaks if (tried := [*filter(_may_join, leak.answers)])]
        if self._ended_by is not None or len(best) < len(leaks) or len(leaks) == 1:
            return
        together: Proposal | None = best[0]
        for one in best[1:]:
            together = None if together is None else joined(together, one)
        if together is None or all(any(one is kept for kept in self._kept) for one in best):
            return
        if any(together.changes == one.changes for one in best):
            return  # one change for all, which has been tried
        self._kept = ()
        answer = yield from self._try(together)
        if answer.outcome is CureOutcome.CURED:
            leaks[0].answers.append(answer)
            self._end_all(answer)

    def _is_kept(self, answer: _Answer) -> bool:
        return any(answer.proposal is kept for kept in self._kept)

    def _remaining(self, one: _Answer) -> float:
        reference = self._reference.gain
        after = None if one.result is None else one.result.gain
        return 1.0 if reference is None or after is None else remaining(reference, after)

    def _end_all(self, ending: _Answer) -> None:
        """Note that nothing grows any more: what was kept in place has its share in that.

        Where two changes write different things into one line, nobody can make one after the other: they are offered as
        one.
        """
        self._ended_by = ending
        for one in [one for answers in self._answers.values() for one in answers if self._is_kept(one)]:
            if are_apart(one.proposal.changes, ending.proposal.changes):
                one.outcome = CureOutcome.CURED
                one.evidence += "; with the changes for the other leaks, nothing is left behind"
            elif (both := joined(one.proposal, ending.proposal)) is not None:
                ending.proposal = both

    def _try(self, proposal: Proposal) -> Asked[_Answer]:
        """Run with *proposal*, beside what is kept in place."""
        if refusal := self._refusal(proposal):
            return _Answer(proposal, CureOutcome.NOT_TRIED, refusal)
        beside = (*self._kept, proposal)
        result = yield from self._runs.of(Trial(beside))
        if self._outcome(result) is CureOutcome.HARMFUL:
            result = yield from self._rehearsed(beside)
        if result.ended_by:
            self._stopped = f"a trial was ended by {result.ended_by}"
            return _Answer(proposal, CureOutcome.NOT_TRIED, self._stopped)
        if result.refused:
            return _Answer(proposal, CureOutcome.NOT_TRIED, result.refused)
        if result.failure:
            if not self._runs.in_children:
                yield from self._run_unchanged()
            return _Answer(proposal, CureOutcome.HARMFUL, f"the changed code raises {result.failure}", raised=True)
        return (yield from self._judged(proposal, result, beside))

    def _refusal(self, proposal: Proposal) -> str:
        """Return why *proposal* is not tried; empty if it is."""
        if self._stopped or self._reference.gain is None:
            return self._stopped
        if not (self._runs.is_at_work(Trial((*self._kept, proposal))) or self._has_time()):
            options = (
                ("-t 300", "seconds=300") if self._means.is_written else ("--cure -t 300", "cure=True, seconds=300")
            )
            return "no time was left: {} ({}) gives more".format(*options)
        missing = names_missing(proposal.changes, self._means.program)
        return f"in a new kernel, the first run would read `{missing[0]}` before it exists" if missing else ""

    def _has_time(self) -> bool:
        return time.perf_counter() + self._runs.longest <= self._end

    def _outcome(self, result: TrialResult) -> CureOutcome | None:
        """Return what the figures say; None where there are none."""
        if self._reference.gain is None or result.gain is None:
            return None
        return judge_trial(self._reference.gain, result.gain)

    def _rehearsed(self, beside: tuple[Proposal, ...]) -> Asked[TrialResult]:
        """Run again what seems to let more grow, next to the unchanged code over as many runs with the same data kept.

        What turns over (a ring, a cache, a pool) comes and goes between two looks, and what a trial keeps of the
        user's data is not freed: only what grows in every rehearsal, and not without the change, is harm.
        """
        trial, control = Trial(beside, n_parts=_N_PARTS), Trial(beside, is_control=True, n_parts=_N_PARTS)
        result = TrialResult()
        for _ in range(_N_REHEARSALS):
            if not self._has_time():
                return TrialResult(refused="the trial showed new growth, and no time was left to repeat it")
            yield from self._runs.begin_children([control, trial])
            unchanged = yield from self._runs.of(control)
            result = yield from self._runs.of(trial)
            if result.gain is None or unchanged.gain is None or self._reference.gain is None:
                return result if result.gain is None else unchanged
            result.gain = result.gain.without(unchanged.gain, self._reference.gain)
            if self._outcome(result) is not CureOutcome.HARMFUL:
                break
        return result

    def _judged(self, proposal: Proposal, result: TrialResult, beside: Sequence[Proposal]) -> Asked[_Answer]:
        """Say what came of *proposal*."""
        before, after = self._reference.behaviour, result.behaviour
        assert self._reference.gain is not None  # noqa: S101 - no failure
        assert result.gain is not None  # noqa: S101
        assert before is not None  # noqa: S101
        assert after is not None  # noqa: S101
        words = trial_words(self._reference.gain, result.gain, result.n_runs, self._means.reported_bytes)
        begun = [name for one in beside for name in one.begun] if self._runs.in_children else []
        added = {name: self._is_wrapped(name) for name in begun}
        harm = harm_of(before, after, changes_of(beside), may_lose_graphs=not all(added.values()))
        if harm := harm or idle_words(before, after):
            return _Answer(proposal, CureOutcome.HARMFUL, f"{words}, but {harm}")
        outcome = judge_trial(self._reference.gain, result.gain)
        cost = pointless_cache(before, after, self._means.n_runs) or next(
            (one.drops for one in beside if one.drops), ""
        )
        other = other_gradient(before, after) if self._runs.in_children else ""
        if other and not cost and outcome in _BETTER and not any(one.cuts_history for one in beside):
            # Whoever has written a change may mean that, to cut a graph that goes on from run to run: it is told.
            cost = other if (yield from self._is_repeatable(before, other_gradient)) else ""
        prints = other_print(before, after) if outcome in _BETTER else ""
        if prints:
            prints = prints if (yield from self._is_repeatable(before, other_print)) else ""
            words += f", but it then {prints}" if prints else ""
        if outcome is CureOutcome.HARMFUL:
            words += ", but something else grows"
        elif cost and outcome in _BETTER:
            outcome = CureOutcome.LESSENED
            words += f"{'; ' if prints else ', but '}{cost}"
        elif any(one.has_gradient for one in after.parameters.values()):
            is_same = self._runs.in_children and same_gradients(before, after)
            words += "; same gradients" if is_same else "; the same parameters get gradients"
        for name, is_wrapped in added.items():
            words += f"; `{name}` began without the {'wrappers' if is_wrapped else 'graph'} of earlier runs"
        if proposal.again:
            words += f"; {' and '.join(map(self._means.program.named, proposal.again))} run again first"
        return _Answer(proposal, outcome, words, result, costs=bool(cost), prints=bool(prints))

    def _is_wrapped(self, name: str) -> bool:
        return type(evaluate(name, self._means.program.namespace)) is FunctionType

    def _is_repeatable(self, before: Behaviour, other: Callable[[Behaviour, Behaviour], str]) -> Asked[bool]:
        """Return whether the unchanged program does in another copy what it did *before*, as *other* compares that."""
        if self._repeated is None and not self._has_time():
            return True
        if self._repeated is None:
            self._repeated = (yield from self._runs.of(self._unchanged)).behaviour
        return self._repeated is not None and not other(before, self._repeated)

    def _run_unchanged(self) -> Asked[None]:
        """Run as the user's code is, after a trial that failed: if that fails now, nothing more can be tried."""
        failure = yield from self._runs.unchanged()
        if failure:
            self._stopped = f"the unchanged code raised {failure} after a trial that failed"


def _rank(answer: _Answer) -> tuple[int, bool]:
    return _BEST_FIRST.index(answer.outcome), answer.prints


def _may_join(answer: _Answer) -> bool:
    """Return whether *answer* was run, and may have done no harm but that the changes for other leaks were missing."""
    return answer.raised or (answer.outcome in (*_BETTER, CureOutcome.NO_EFFECT) and not answer.costs)


def may_be_tried(proposal: Proposal) -> bool:
    """Return whether it is a change, and nothing speaks against trying it."""
    return bool(proposal.changes) and not proposal.not_tried


def joined(first: Proposal, second: Proposal) -> Proposal | None:
    """Return both changes as one; None if both are for one container, or write different things into one line.

    A change that is a part of the first is in that already: two leaks may have one change.
    """
    if second.changes and set(second.changes) <= set(first.changes):
        return first
    if set(first.emptied) & set(second.emptied):
        return None
    try:
        changes = merged((*first.changes, *second.changes))
    except NotTriedError:
        return None
    words = f"{first.words.rstrip('.')}, and {second.words[:1].lower()}{second.words[1:]}"
    emptied = (*first.emptied, *second.emptied)
    return Proposal(
        words,
        changes,
        emptied=emptied,
        drops=first.drops or second.drops,
        begun=(*first.begun, *second.begun),
        remade=(*first.remade, *second.remade),
        cuts_history=first.cuts_history or second.cuts_history,
    )
