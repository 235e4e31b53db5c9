"""Put together what a check knows of one leak for those who look for its cures."""

from __future__ import annotations

from leaklab.cure.candidate import Finding, Program
from leaklab.model import Leak

Places = tuple[tuple[str, int], ...]


def finding_of(leak: Leak, program: Program, keeping: Places = (), making: Places = ()) -> Finding:
    """Return *leak* with the lines that keep and make what leaks.

    Args:
        leak: The record.
        program: Its code is read where the traced runs found no line that keeps.
        keeping: The lines that keep, of the traced runs: ``FoundLines.keeping[leak.fingerprint]``.
        making: The same for those that make: ``FoundLines.making[leak.fingerprint]``.
    """
    return Finding(leak, keeping, making)
