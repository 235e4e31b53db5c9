"""Write an advice: what to change, the line before and after, when not to, and what it would free."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leaklab.model import Leak
from leaklab.words import format_bytes, unit_words

PREDICTABLE = frozenset({
    "graph-kept", "tensor-kept", "hook-left", "global-cache", "container-growth", "closure-kept", "callback-registry",
    "run-switch", "optimizer-state", "traceback-kept", "notebook-history", "autograd-ctx", "deepcopy-kept",
})  # fmt: skip
"""Causes whose advice lets go of everything that the holder keeps, so that its retained bytes are what comes back."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change.

    Attributes:
        text: One to three sentences, in the user's own names.
        before: The line as it is, or as such a line looks; shown only together with *after*.
        after: The same line changed, or where *before* is empty a line to add; several are separated by a line break.
        unless: When the change would be wrong; a sentence.
    """

    text: str
    before: str = ""
    after: str = ""
    unless: str = ""

    def write(self) -> str:
        """Return the advice as text: sentences, and code indented by four blanks."""
        lines = [self.text]
        if self.before and self.after:
            lines.append(f"    before: {self.before}")
        if self.after:
            first, *more = self.after.splitlines()
            lines.append(f"    {'after:' if self.before else 'add:  '}  {first}")
            lines += [f"            {line}" for line in more]
        if self.unless:
            lines.append(self.unless)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by its slug, and the advice for this case."""

    slug: str
    plan: Advice

    @property
    def advice(self) -> str:
        """The advice as text."""
        return self.plan.write()


SLOWING = frozenset({
    "graph-kept", "hook-left", "container-growth", "global-cache", "callback-registry", "tensor-kept", "closure-kept",
    "optimizer-state",
})  # fmt: skip
"""Causes under which each run walks, calls or copies what the runs before it left."""


def with_effect(leak: Leak, slower: float | None = None) -> Leak:
    """Return *leak* with last sentences in its advice: that runs get slower by it, and what the change frees.

    Args:
        leak: Its own figures are used; without retained bytes, or where the cure is not to let go, nothing is said of
            what comes back.
        slower: How many times as long the last runs took as the first; None if they did not get slower.
    """
    if not leak.advice:
        return leak
    lines = [leak.advice]
    if slower is not None and leak.cause in SLOWING:
        lines.append(f"The runs get slower as it grows: {slower:.1f} times as long at the end as at the start.")
    if leak.cause in PREDICTABLE and leak.retained_bytes:
        lines.append(_effect_words(leak, leak.retained_bytes))
    return replace(leak, advice="\n".join(lines))


def _effect_words(leak: Leak, retained_bytes: int) -> str:
    n_kept = sum(leak.kept)
    what = ""
    if leak.unit == "objects" and n_kept > 0:
        what = f" ({unit_words(n_kept, leak.unit)} that {unit_words(len(leak.kept), 'runs')} left)"
    rate = unit_words(10 * leak.count_per_run, leak.unit)
    if leak.bytes_per_run > 0:
        rate = f"{rate}, {format_bytes(10 * leak.bytes_per_run)}"
    return f"Letting go of it frees {format_bytes(retained_bytes)}{what}; every 10 runs it keeps {rate} more."
