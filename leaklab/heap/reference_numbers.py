"""What the numbers of the names of references mean; those from 0 on stand for texts of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from leaklab.runtime.addresses import Ints

UNNAMED: Final = -1
"""The number of a reference that has no name."""
FIRST_POSITION: Final = -2
"""The number of ``[0]``; ``[1]`` is one less, and so on. So are the keys of dicts that are small whole numbers."""
OWN_DICT: Final = ".__dict__"


class NameTable:
    """The names of references, each with its number; numbers below zero are `UNNAMED` or positions."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of *text*."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> tuple[str, ...]:
        """All names, in the order of their numbers."""
        return tuple(self._numbers)


class BatchNames(Protocol):
    """Numbers the names of references while a pass reads them, batch by batch; `leaklab.heap.names.in_bulk` does.

    Attributes:
        table: The names so far.
    """

    table: NameTable

    def of_batch(self, batch: list[object], kinds: Ints, addresses: Ints) -> Ints:
        """Return the number of the name of each reference of *batch*."""
