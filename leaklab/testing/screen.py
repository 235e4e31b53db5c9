"""Tell within a few runs, and by counting alone, that a test leaves nothing behind.

Nothing is imported for it that a suite does not have: what a library brings along may change what later tests see.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable

from leaklab.runtime.gc_control import collect_quietly, user_has_frozen, user_lets_collect

_BATCHES = (1, 1, 1, 2)


def leaves_something(run: Callable[[], object]) -> bool:
    """Run a few times; return whether in every batch of runs objects, or blocks of Python's memory, became more.

    Arrays of numpy, numbers and texts are not listed by the collector: the blocks show them. True also where that
    cannot be told, as where the test freezes the collector's objects.
    """
    collects, froze_before = user_lets_collect(), user_has_frozen()
    # Made beforehand, and without objects of their own: these would be counted.
    objects, blocks = (array("q", bytes(8 * (1 + len(_BATCHES)))) for _ in range(2))
    run()
    old: list[object] = []  # visible only if somebody thaws
    if not froze_before:
        # Older garbage is frozen with all else: to collect it would take longer than the runs of most tests.
        gc.freeze()
    young: list[object] = []  # hidden only if somebody freezes
    try:
        for number, n_runs in enumerate((0, *_BATCHES)):
            for _ in range(n_runs):
                run()
            if collects:
                collect_quietly()
            listed = gc.get_objects()
            if not _has(listed, young) or (_has(listed, old) and not froze_before):
                return True
            objects[number] = len(listed)
            del listed
            blocks[number] = sys.getallocatedblocks()
            if number and objects[number] <= objects[number - 1] and blocks[number] <= blocks[number - 1]:
                return False
        return _rises(objects) or _rises(blocks)
    finally:
        if not froze_before:
            gc.unfreeze()


def _has(listed: list[object], one: object) -> bool:
    return any(each is one for each in listed)


def _rises(levels: array[int]) -> bool:
    return all(levels[number] > levels[number - 1] for number in range(1, len(levels)))
