"""Decide what the answers of many processes come to: of each one, and of all together."""

from __future__ import annotations

from collections.abc import Collection

from leaklab.decide.verdict import WORST_FIRST
from leaklab.model import Outcome
from leaklab.model.loop import LoopState

_OF_STATE = {
    LoopState.LEAK: Outcome.LEAK,
    LoopState.STEADY: Outcome.CLEAN,
    LoopState.STOPPED: Outcome.BOUNDED,
    LoopState.GROWING: Outcome.INCONCLUSIVE,
    LoopState.WARMING_UP: Outcome.INCONCLUSIVE,
}


def outcome_of_loop(state: LoopState) -> Outcome:
    """Return the verdict on a loop as far as there is one: while it warms up or still grows there is none."""
    return _OF_STATE[state]


def is_proof_lost(outcome: Outcome, failure: str) -> bool:
    """Return whether *failure* takes the proof from a verdict: what was not run to its end may leak later."""
    return bool(failure) and outcome is not Outcome.LEAK


def outcome_of_all(outcomes: Collection[Outcome]) -> Outcome:
    """Return the verdict on all processes: the worst of theirs; without any process there is none."""
    return min(outcomes, key=WORST_FIRST.index, default=Outcome.INCONCLUSIVE)
