"""The record of one judgement: outcome, rate, reason."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model import Outcome


@dataclass(frozen=True, slots=True)
class Growth:
    """What a series of numbers says about growth.

    Attributes:
        outcome: ``BOUNDED`` is something that grew and stopped, or a window of the newest; ``INCONCLUSIVE`` is a
            question that more runs can answer.
        rate: Units per run of the settled part; 0.0 unless the outcome is a leak, or inconclusive (then the rate seen).
        reason: One clause with the figure that decided.
    """

    outcome: Outcome
    rate: float
    reason: str
