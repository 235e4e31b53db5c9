"""Compare a check with the last one of the same name in this notebook, so that a repair is verified by itself."""

from __future__ import annotations

from IPython.display import display

from leaklab.model import Check, Outcome
from leaklab.render.comparison import Comparison, compare_checks

MAX_NAMES = 50
"""Records are some kilobytes each; of more names than this the longest unused are forgotten."""


def compare_with_last(owner: object, check: Check, *, quiet: bool = False) -> Comparison | None:
    """Say what became of the leaks that the last check of the same ``--name`` found, and remember this check.

    A check that ended early or came to no verdict is compared but not remembered: the next one is then compared with
    what was proven last.

    Args:
        owner: Whoever lives as long as the notebook's magics; the records are kept in its ``__dict__``, so that no
            module has a state and unloading the extension forgets them.
        check: Of the cell that has just been run. Records hold nothing of the user's.
        quiet: Whether to display nothing.

    Returns:
        The comparison; None for a check without a name, for the first of its name, and where neither leaks.
    """
    name = check.settings.name
    if not name:
        return None
    memory: dict[str, Check] = vars(owner).setdefault("_last_checks", {})
    before = memory.get(name)
    if check.verdict.outcome is not Outcome.INCONCLUSIVE and not check.failure:
        memory.pop(name, None)
        memory[name] = check  # at the end: the names that come first are the longest unused
        for forgotten in list(memory)[:-MAX_NAMES]:
            del memory[forgotten]
    if before is None:
        return None
    comparison = compare_checks(before, check)
    if not comparison.lines or not (before.leaks or check.leaks):
        return None
    if not quiet:
        display(comparison)
    return comparison
