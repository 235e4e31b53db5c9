"""Let ranks agree, so that none waits in a collective for one that has its answer, or for each of the others in turn.

How many runs a check makes depends on what it finds: a rank that leaks makes more, to name the lines. So each rank
drives its own check, and before each run all of them meet. As long as one wants another run all of them run; whoever
has its answer runs along, and nothing is measured there. Ranks that watch the same loop look at it at the same steps.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Container, Generator
from contextlib import closing, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from leaklab.errors import ENDS, RankError, ReportError
from leaklab.model import Check, Outcome
from leaklab.model.ranks import RankRecord
from leaklab.ranks.gathering import merge
from leaklab.ranks.rank_group import failure_words, named_ranks, rank_group
from leaklab.reports.ranks import RanksReport, rank_to_json
from leaklab.text import unit_words

if TYPE_CHECKING:
    from typing_extensions import Self


Ran = tuple[float, str]
"""How one run went: its seconds, and the name of what it raised."""
Result = TypeVar("Result")
_LAST_SECONDS = 20.0
"""After the end of all, so long is waited for the others: to hear of it, to hand in what they have found until then."""


class ManyRuns(Protocol):
    """A wish for several runs that are made as one."""

    @property
    def number(self) -> int:
        """Number of the first of them."""

    @property
    def times(self) -> int:
        """How many."""


Wish = TypeVar("Wish", bound=ManyRuns)


class Agreement:
    """One check of many ranks, seen from one of them.

    What is raised inside of ``with agreement:`` ends the check on all ranks; that may be entered more than once.

    Args:
        group: A ``torch.distributed.ProcessGroup``, or True for all processes of the job.
        seconds: So long a rank waits for the others before the check is ended.

    Attributes:
        ended: Why the check was ended on all ranks, one sentence; empty if it was not.
        leaking: Which ranks leak, one clause, once all is gathered; empty if none does.

    Raises:
        TypeError: if an argument is of the wrong type.
        ValueError: if *seconds* is not above 0.
        RankError: if there is no such group, or a rank of it does not come.
    """

    def __init__(self, group: object, seconds: float) -> None:
        self.ended = self.leaking = ""
        self._group = rank_group(group, seconds)
        self._n_along = 0
        self._is_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del error, traceback  # they keep what the user's frames hold
        if kind is not None and not (self.ended or self._is_done):
            self._group.give_up(f"ended with {kind.__name__}")

    def agreed(self, steps: Generator[int | Wish, Ran, Result]) -> Generator[int | Wish, Ran, Result]:
        """Yield the runs that *steps* wants, and those that other ranks want, each when all ranks have come to it.

        Where the check ends on all ranks, *steps* is told that its next run failed, with the reason: what it has found
        until then is its result.
        """
        asked = _Asked(steps)
        with closing(steps):
            try:
                yield from self._driven(asked)
            except RankError as lost:
                self.ended = str(lost)
            while not asked.is_over:
                asked.answer((0.0, RankError.__name__))
        return asked.result

    def _driven(self, asked: _Asked[Wish, Result]) -> Generator[int | Wish, Ran, None]:
        """Run until nobody wants another run, or one has failed."""
        asked.begin()
        while True:
            n_runs, takes_part = self._meet(asked)
            if not n_runs:
                return
            n_done = 0
            if takes_part:
                n_done = asked.n_wanted
                ran = yield asked.wish
                asked.answer(ran)
                if ran[1] and (asked.is_over or ran[1] in ENDS):
                    self._fail(ran[1])
                    return
            for _ in range(n_runs - n_done):
                self._n_along += 1
                _seconds, failure = yield asked.last_number + 1
                if failure:
                    self._fail(failure)
                    return

    def _meet(self, asked: _Asked[Wish, Result]) -> tuple[int, bool]:
        """Meet the others; return how many runs all of them make now, and whether they are what this rank wants.

        Several at once wait until nobody wants a single one: who counts single runs must not have others in between.
        """
        one, many, failed = self._group.meet(asked.n_wanted * (not asked.is_many), asked.n_wanted * asked.is_many, 0.0)
        if failed:
            raise RankError(failure_words(self._group.failed_ranks()))
        n_runs = 1 if one else int(many)
        return n_runs, asked.n_wanted > 0 and asked.is_many is not bool(one)

    def _fail(self, name: str) -> None:
        """Tell the others that this rank ended with *name*; those that wait for it elsewhere do not hear it."""
        words = f"ended with {name}"
        self.ended = failure_words({self._group.rank: words})
        self._group.fail(words)
        with suppress(RankError):
            self._group.meet(0.0, 0.0, 1.0, seconds=_LAST_SECONDS)

    def gathered(self, check: Check) -> RanksReport | None:
        """Hand in *check*, what this rank found; return what all of them found on the first rank, elsewhere None."""
        group = self._group
        record = RankRecord(group.rank, len(group.ranks), socket.gethostname(), os.getpid(), error=self.ended)
        try:
            text = rank_to_json(replace(record, check=check))
        except ReportError as error:
            text = rank_to_json(replace(record, error=str(error)))
        self._is_done = True
        group.close()
        found = group.hand_in(text, _LAST_SECONDS if self.ended else None)
        if found is None:
            self.leaking = group.answered()
            return None
        try:
            report = merge([*found.values(), *self._without_answer(found)])
            self.leaking = _leaking_words(report)
        finally:
            group.answer(self.leaking)
        return report

    def _without_answer(self, found: Container[int]) -> list[RankRecord]:
        """Return records of the ranks that are not in *found*."""
        group, failed = self._group, self._group.failed_ranks()
        return [
            RankRecord(
                rank,
                len(group.ranks),
                "",
                0,
                error=failure_words({rank: failed[rank]}) if rank in failed else "it was killed, or did not answer",
            )
            for rank in group.ranks
            if rank not in found
        ]

    def noted(self, check: Check) -> Check:
        """Return *check* with notes on what the agreement of the ranks did to it."""
        along = f"{unit_words(self._n_along, 'unmeasured runs')} followed, because other ranks needed more"
        notes = [f"the check ended on all ranks: {self.ended}"] * bool(self.ended) + [along] * bool(self._n_along)
        return replace(check, notes=(*check.notes, *notes))


def _leaking_words(report: RanksReport) -> str:
    """Return which ranks leak; empty if none does."""
    checks = ((one.rank, one.check) for one in report.record.ranks)
    leaking = [rank for rank, check in checks if check is not None and check.verdict.outcome is Outcome.LEAK]
    return f"{named_ranks(leaking)} {'leaks' if len(leaking) == 1 else 'leak'}" if leaking else ""


class _Asked(Generic[Wish, Result]):
    """What a check wants next.

    Attributes:
        wish: The number of the run that it wants, or a wish for several; the last one if it is over.
        last_number: Of the last run that it wanted.
    """

    result: Result

    def __init__(self, steps: Generator[int | Wish, Ran, Result]) -> None:
        self._steps = steps
        self.wish: int | Wish = 0
        self.is_over = False
        self.last_number = 0

    @property
    def is_many(self) -> bool:
        """Whether several runs are wanted, to be made as one."""
        return not isinstance(self.wish, int)

    @property
    def n_wanted(self) -> int:
        """How many runs are wanted."""
        if self.is_over:
            return 0
        return 1 if isinstance(self.wish, int) else self.wish.times

    def begin(self) -> None:
        """Ask for the first wish."""
        try:
            self._note(next(self._steps))
        except StopIteration as stop:
            self._end(stop.value)

    def answer(self, ran: Ran) -> None:
        """Tell how the run went, and ask for the next wish."""
        try:
            self._note(self._steps.send(ran))
        except StopIteration as stop:
            self._end(stop.value)

    def _note(self, wish: int | Wish) -> None:
        self.wish = wish
        self.last_number = wish if isinstance(wish, int) else wish.number + wish.times - 1

    def _end(self, result: Result) -> None:
        self.is_over, self.result = True, result


_LEAST_STEPS, _SHARE = 23, 50
"""Between two checks the ranks meet after so many steps, later after such a part of the steps so far."""


class LoopSteps:
    """At which steps all ranks look at their loop. Nothing is measured for others: the loop runs on in any case.

    Args:
        group: A ``torch.distributed.ProcessGroup``, or True for all processes of the job.
        seconds: So long a rank waits at a step for the others.
        first_step: Of the first meeting.
        tell: Is told in a sentence that this rank goes on alone, because another does not.

    Attributes:
        next_step: After this step the ranks meet next.

    Raises:
        TypeError: if an argument is of the wrong type.
        ValueError: if *seconds* is not above 0.
        RankError: if there is no such group, or a rank of it does not come.
    """

    def __init__(self, group: object, seconds: float, first_step: int, tell: Callable[[str], None]) -> None:
        self._group = rank_group(group, seconds)
        self.next_step = first_step
        self._steps_per_run = 0
        self._tell = tell
        self._is_alone = False

    def agreed(self, step: int, steps_per_run: int, *, is_checking: bool) -> int:
        """Meet the others, if it is time.

        Args:
            step: Steps so far.
            steps_per_run: How many steps are a run of the check that is to begin on this rank; 0 if none is.
            is_checking: Whether a check is under way on this rank.

        Returns:
            How many steps are a run of the check that begins on all ranks now; 0 if none begins.
        """
        if self._is_alone:
            return steps_per_run
        if step < self.next_step:
            return 0
        try:
            checking, longest = self._group.meet(is_checking, steps_per_run)
        except RankError as lost:
            self._is_alone = True
            self._tell(f"from step {step:,} on, this rank watched its loop alone: {lost}")
            return 0
        if not checking:
            self._steps_per_run = int(longest)
        self.next_step += self._steps_per_run or max(_LEAST_STEPS, self.next_step // _SHARE)
        return 0 if checking else self._steps_per_run

    def leave(self, failure: str) -> None:
        """Meet no more, at the end of the loop or because of *failure*, the name of an exception."""
        self._group.give_up(f"ended with {failure}" if failure else "has left the loop")
