"""Judge how long a container was at steps of a loop, far apart: those of its checks, and what was read between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leaklab.decide.growth import Growth, judge_checkpoints
from leaklab.model import Outcome
from leaklab.model.loop import StretchCheck

_MOST_PLACES = 64
_ENOUGH = 3
_N_WINDOWS, _APART = 3, 1.75


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

    def note_check(self, done: StretchCheck, seen: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Note how long containers were after some runs of a check, also of those that it could not decide.

        Of several places that are told as one, *seen* has one of many containers, and nothing is noted.
        """
        told = {leak.fingerprint for leak in (*done.check.leaks, *done.check.noted) if leak.n_places == 1}
        for fingerprint in sorted(told & seen.keys()):
            at = ((done.first_step + run * done.steps_per_run, length) for run, length in seen[fingerprint])
            self.note(fingerprint, at)

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
