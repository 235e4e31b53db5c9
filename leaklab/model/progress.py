"""What a check knows while it is under way, as a record and in words."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model.check import Check, Leak
from leaklab.model.sentences import growth_sentence, more_words, pile_words
from leaklab.text import unit_words, visible

RUNS, LINES, CHANGES = "runs", "lines", "changes"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a check knows while it is under way; its text says that in a line or two.

    Attributes:
        stage: What is done next: ``runs``, ``lines`` (of the leaks), ``changes`` (that would end these are tried).
        n_runs: Measured runs so far.
        growing: What grows so far, the largest first; whether these are leaks may still be open.
        check: What has been found, once the verdict stands; until then None.
        seconds: No trial of a change begins after so many; 0.0 before another stage.
        piles: What piles up by its type, as ``(name of the type, count_per_run)``, before it is known what holds it.
    """

    stage: str
    n_runs: int
    growing: tuple[Leak, ...] = ()
    check: Check | None = None
    seconds: float = 0.0
    piles: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        if self.check is None:
            return visible(self._growing_words())
        sites = [leak.sites[0] for leak in self.check.leaks[:1] if leak.sites]
        return "\n".join([str(self.check.verdict), *map(visible, sites)])

    def _growing_words(self) -> str:
        runs = unit_words(self.n_runs, "runs")
        if self.piles and not self.growing:
            return f"growing so far, after {runs}: {pile_words(self.piles)}; what keeps that is not known yet"
        if not self.growing:
            return f"nothing grows so far, after {runs}"
        return f"growing so far, after {runs}: {growth_sentence(self.growing[0])}{more_words(self.growing, 'place')}"
