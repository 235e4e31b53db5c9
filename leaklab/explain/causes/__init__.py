"""Name the cause of a leak, and what to change.

One inspector (a small function) per cause, in small modules by family; `INSPECTORS` is the table, most specific first.
"""

from leaklab.explain.causes.advice import Advice, Cause, with_effect
from leaklab.explain.causes.table import INSPECTORS, Inspector, find_cause

__all__ = ["INSPECTORS", "Advice", "Cause", "Inspector", "find_cause", "with_effect"]
