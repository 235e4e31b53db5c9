"""Write the leaks of a check as comma separated values, one leak in each line."""

from __future__ import annotations

from leaklab.model import Check
from leaklab.render.tables import leak_table


def to_csv(check: Check) -> str:
    """Return the table of leaks as CSV with a header line; only the header where nothing leaks."""
    return leak_table(check).to_csv(lineterminator="\n")
