"""Judge how long a container was at steps of a loop, far apart: those of its checks, and what was read between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leaklab.decide.growth import Growth, judge_checkpoints
from leaklab.model import Leak, Outcome

_MOST_PLACES = 64
_ENOUGH = 3
_N_WINDOWS, _APART = 3, 1.75


@dataclass(frozen=True, slots=True)
class GrowthWitness:
    """What a check of a loop has seen of growing places besides their leaks.

    Attributes:
        lengths: How long their containers were, in pairs of a step and the length after it, by fingerprint.
        endless: Places, by their fingerprints, of which nothing in the code could end the growth.
    """

    lengths: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    endless: frozenset[str] = frozenset()


NOTHING_SEEN = GrowthWitness()


class LengthReadings:
    """The lengths of containers, by the fingerprints of the places that they are; plain numbers."""

    def __init__(self) -> None:
        self._readings: dict[str, list[tuple[int, int]]] = {}

    def note(self, fingerprint: str, readings: Iterable[tuple[int, int]]) -> None:
        """Note *readings*, steps and the lengths after them, ascending; what is known of these steps stays."""
        known = self._readings.setdefault(fingerprint, [])
        known += [reading for reading in readings if not known or reading[0] > known[-1][0]]
        if len(self._readings) > _MOST_PLACES:
            self.forget(next(iter(self._readings)))

    def note_seen(self, leaks: Iterable[Leak], lengths: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Note how long the containers of *leaks* were.

        Of several places that are told as one, *lengths* has one of many containers, and nothing is noted.
        """
        for fingerprint in {leak.fingerprint: 0 for leak in leaks if leak.n_places == 1}:
            self.note(fingerprint, lengths.get(fingerprint, ()))

    def forget(self, fingerprint: str) -> None:
        """Forget a place."""
        self._readings.pop(fingerprint, None)

    def goes_on(self, fingerprint: str) -> bool:
        """Return whether a container got longer as fast lately as before."""
        readings = self._readings.get(fingerprint, [])
        return len(readings) >= _ENOUGH and _judge(readings).outcome is Outcome.LEAK

    def slows(self, fingerprint: str) -> bool:
        """Return whether a container got longer more and more slowly, as far as it was read."""
        readings = self._readings.get(fingerprint, [])
        return len(readings) >= _ENOUGH and _judge(readings).outcome is Outcome.INCONCLUSIVE

    def is_exact(self, fingerprint: str) -> bool:
        """Return whether a container got longer by as many entries in each step, to twice the steps and further."""
        readings = self._readings.get(fingerprint, [])
        return len(readings) >= _ENOUGH and readings[-1][0] >= 2 * readings[0][0] and _is_line(readings)

    def began(self, fingerprint: str, step: int) -> int:
        """Return the first step of the growth that was seen at *step*: an exact one had its first entry then."""
        readings = self._readings.get(fingerprint, [])
        if len(readings) < _ENOUGH or not _is_line(readings):
            return step
        (first, length), (last, longest) = readings[0], readings[-1]
        before = round(first - length * (last - first) / (longest - length))
        return max(before, 1) if before >= 0 else step  # else it had entries when the loop began


def _is_line(readings: Sequence[tuple[int, int]]) -> bool:
    (first, length), (last, longest) = readings[0], readings[-1]
    on_line = ((at - first) * (longest - length) == (now - length) * (last - first) for at, now in readings)
    return longest > length and all(on_line)


def _judge(readings: Sequence[tuple[int, int]]) -> Growth:
    """Judge a length by the rule of checkpoints: now, at about half of the steps, at half of these, and again.

    Where too little was read for that, at its first reading, in the middle and now.
    """
    at = [readings[-1]]
    for reading in reversed(readings):
        if _APART * reading[0] <= at[-1][0] and len(at) <= _N_WINDOWS:
            at.append(reading)
    if len(at) < _ENOUGH:
        (first, _), (last, _) = readings[0], readings[-1]
        at = [readings[-1], min(readings[1:-1], key=lambda reading: abs(2 * reading[0] - first - last)), readings[0]]
    steps, lengths = zip(*reversed(at), strict=True)
    return judge_checkpoints(lengths, steps)
