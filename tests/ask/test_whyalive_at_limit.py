"""At the limit of memory `whyalive` answers with what it can, or says within seconds that it cannot."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("resource")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is held to on Linux")
TIMEOUT_SECONDS = 60

AT_LIMIT = """
import gc, resource, sys
import torch, leaklab

FREED_MIB = int(sys.argv[1])
if "warm" in sys.argv:
    leaklab.whyalive([torch.ones(1)])
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
history = []
try:
    while True:
        history.append(torch.ones(1 << 18))
except RuntimeError as error:
    assert "allocate memory" in str(error), error
del history[len(history) - FREED_MIB:]
try:
    alive = leaklab.whyalive(history[0], only_path="path" in sys.argv)
except leaklab.LeaklabError as error:
    print(type(error).__name__, isinstance(error, MemoryError), error)
else:
    print(alive.holders, alive.reason)
"""


def at_limit(*words):
    """What is printed by a process that asks where so many MiB could be had, with scipy loaded or not."""
    asked = [sys.executable, "-c", textwrap.dedent(AT_LIMIT), *map(str, words)]
    return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout


@linux_only
def test_scipy_is_not_loaded_where_its_buffers_find_no_room():
    """OpenBLAS asks the system for ever: with 70 MiB left, the first question of a process never came back."""
    said = at_limit(70)
    assert said.startswith("NotEnoughMemoryError True there is not enough memory to load scipy, which needs ")


@linux_only
def test_answer_at_the_limit_is_the_best_path():
    said = at_limit(18, "warm")
    assert said.startswith("('history',) the best path to the object; memory was too short to find other paths")


@linux_only
def test_nothing_left_is_one_sentence():
    said = at_limit(0, "warm", "path")
    assert said.startswith("NotEnoughMemoryError True there is not enough memory to look at all objects: ")


def test_whole_answer_is_tried_first(monkeypatch):
    """Where the graph of the heap finds no memory, the object is asked about once more, by itself."""
    import leaklab
    from leaklab.heap.index import ReferencePass

    held = {"key": [1]}

    def fails(*_args, **_named):
        raise MemoryError

    monkeypatch.setattr(ReferencePass, "finish", fails)
    with pytest.raises(MemoryError, match="not enough memory to look at all objects"):
        leaklab.whyalive(held["key"])
    monkeypatch.undo()
    monkeypatch.setattr("leaklab.ask.alive.explain_alive", fails)
    alive = leaklab.whyalive(held["key"])
    assert alive.record.only_path
    assert "memory was too short" in alive.reason
