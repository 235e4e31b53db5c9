"""One small program that leaks, or only looks as if it did, with the truth about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A notebook cell with the truth about it.

    Attributes:
        name: What happens in it, for the test's id.
        setup: Runs once.
        cell: Runs repeatedly, under the check.
        fixed: The cell after the repair; empty for a case that does not leak.
        holders: Texts of which the first leak's path or holder must contain one; empty for a case that does not leak.
        causes: Slugs that are right for the first leak.
        gc_off: Whether the automatic collector is switched off before the setup.
    """

    name: str
    setup: str
    cell: str
    fixed: str = ""
    holders: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    gc_off: bool = False

    @property
    def leaks(self) -> bool:
        return bool(self.fixed)
