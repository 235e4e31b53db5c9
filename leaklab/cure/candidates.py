"""Think of changes that would end a leak, best first."""

from __future__ import annotations

from leaklab.cure.candidate import Candidate, Finding, Program


def candidates_for(finding: Finding, program: Program) -> tuple[Candidate, ...]:
    """Return the changes worth trying for *finding*, best first, at most five."""
    return ()
