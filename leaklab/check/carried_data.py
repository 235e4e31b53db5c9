"""Tell a value that gets more added from one that is only longer every time: what was there before is still in it.

`torch.cat([old, new])` has the numbers of the old tensor at its beginning, `[new, old]` at its end. Of a batch that is
longer in every run by design, nothing comes from the batch before. Numbers that anybody would write, such as zeros or a
range, prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from leaklab.runtime.objects import has_base, is_tensor, loaded_type, no_torch_functions

_N_NUMBERS = 32
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Ends:
    """The numbers at both ends of a piece of data.

    Attributes:
        n_bytes: Its size.
        first: The first numbers, empty if nobody can tell, or if a rule makes them.
        last: The last ones, the same way.
    """

    n_bytes: int
    first: tuple[float, ...]
    last: tuple[float, ...]

    @property
    def rank(self) -> tuple[int, int]:
        """The larger, the better: of two pieces of one size that whose numbers no rule makes."""
        return self.n_bytes, len(self.first)


def ends_of(thing: Any, n_bytes: int) -> Ends:
    """Return the ends of a tensor, an array, a text or bytes of so many bytes; empty ones of anything else."""
    try:
        first, last = _numbers(thing)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return Ends(n_bytes, (), ())
    return Ends(n_bytes, *(() if _is_made_by_rule(end) else tuple(end) for end in (first, last)))


N_PIECES = 4
"""So many pieces of a place are compared, the largest: a table has its values beside its index."""


def largest(pieces: Iterable[Ends]) -> tuple[Ends, ...]:
    """Return the largest of *pieces*."""
    return tuple(sorted(pieces, key=lambda piece: piece.rank, reverse=True)[:N_PIECES])


def is_carried(before: Sequence[Ends], after: Sequence[Ends]) -> bool:
    """Return whether one of the pieces *after* is larger than one *before*, and has what that began or ended with."""
    return any(
        new.n_bytes > old.n_bytes
        and (bool(old.first and old.first == new.first) or bool(old.last and old.last == new.last))
        for old in before
        for new in after
    )


def _numbers(thing: Any) -> tuple[list[Any], list[Any]]:
    if is_tensor(thing):
        base: Any = loaded_type("torch", "Tensor")
        with no_torch_functions():
            flat = base.flatten(base.detach(thing))
            return base.tolist(flat[:_N_NUMBERS]), base.tolist(flat[-_N_NUMBERS:])
    if isinstance(thing, (bytes, bytearray)):
        return list(thing[:_N_NUMBERS]), list(thing[-_N_NUMBERS:])
    if isinstance(thing, str):
        return [ord(one) for one in thing[:_N_NUMBERS]], [ord(one) for one in thing[-_N_NUMBERS:]]
    array = loaded_type("numpy", "ndarray")
    if array is not None and has_base(type(thing), array) and not thing.dtype.hasobject and thing.flags.c_contiguous:
        flat = thing.reshape(-1)
        return flat[:_N_NUMBERS].tolist(), flat[-_N_NUMBERS:].tolist()
    return [], []


def _is_made_by_rule(numbers: list[Any]) -> bool:
    """Return whether *numbers* are too few, all alike, or a range."""
    if len(numbers) < _FEWEST or not all(isinstance(number, (int, float)) for number in numbers):
        return True
    step = numbers[1] - numbers[0]
    return all(later - earlier == step for earlier, later in pairwise(numbers))
