"""Ranks that watch the same loop look at it at the same steps, so that none waits for each of the others in turn."""

from __future__ import annotations

from collections.abc import Callable

from leaklab.errors import RankError
from leaklab.ranks.rank_group import rank_group

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
            self._tell(f"from step {step:,} on this rank looked at its loop alone: {lost}")
            return 0
        if not checking:
            self._steps_per_run = int(longest)
        self.next_step += self._steps_per_run or max(_LEAST_STEPS, self.next_step // _SHARE)
        return 0 if checking else self._steps_per_run

    def leave(self, failure: str) -> None:
        """Meet no more, at the end of the loop or because of *failure*, the name of an exception."""
        self._group.give_up(f"ended with {failure}" if failure else "has left the loop")
