"""Name the line of the user's code during which a descriptor was opened, or a child process started, that stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from leaklab.measure.cheap_counts import count_descriptors, open_descriptors
from leaklab.measure.process_counts import CHILDREN, ENDED, Children, Counted

Line = tuple[str, int, str]
"""File name, line number, name of the function (``<module>`` outside of any)."""


class ArrivalLines:
    """Notes, while code runs line by line, what is new; tells afterwards which lines did what is still there.

    Args:
        counted: What is asked for.
        fingerprints: Of the leaks that are looked for, by the kind of what leaks; ``""`` stands for all kinds.
    """

    def __init__(self, counted: Counted, fingerprints: Mapping[str, str]) -> None:
        self._counted, self._fingerprints = counted, fingerprints
        self._children = Children()
        self._level = 0
        self._known: set[int] = set()
        self._lines: dict[int, Line | None] = {}

    @property
    def fingerprints(self) -> frozenset[str]:
        """The leaks that are looked for."""
        return frozenset(self._fingerprints.values())

    def begin(self) -> None:
        """Take everything that is there now as known."""
        self._level, self._known = self._count(), set(self._numbers())
        self._lines.clear()

    def look(self, line: Line | None) -> None:
        """Note what is new: *line* did it."""
        if (level := self._count()) == self._level:
            return
        now = set(self._numbers())
        self._lines.update(dict.fromkeys(now - self._known, line))
        self._level, self._known = level, now

    def found(self) -> Mapping[str, Counter[Line]]:
        """Return, for the fingerprint of each leak, the lines that did what is still there."""
        found: dict[str, Counter[Line]] = {}
        now = set(self._numbers())
        for number, line in self._lines.items():
            kinds = (self._counted.kind_of(number)[0], "", ENDED)  # a child that has just started will have ended soon
            fingerprint = next((self._fingerprints[kind] for kind in kinds if kind in self._fingerprints), None)
            if number in now and line is not None and fingerprint is not None:
                found.setdefault(fingerprint, Counter())[line] += 1
        return found

    def _count(self) -> int:
        return len(self._children.numbers()) if self._counted is CHILDREN else count_descriptors()

    def _numbers(self) -> Sequence[int]:
        return self._children.numbers() if self._counted is CHILDREN else open_descriptors()
