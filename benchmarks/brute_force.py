"""A plug-in for pytest that knows nothing of leaklab: call each test many times, and count what is there.

``python -m pytest -p brute_force --brute-force=FILE`` writes for each test how many objects, and how many bytes that
Python has allocated, one call leaves behind. The functions are called as they are, without pytest's machinery; a test
with fixtures is not called. The calls are made in stretches, each twice as long as the one before: what a call leaves
is what the stretch left in which least was left. A cache that fills, a table that doubles leave nothing in the end.
"""

import gc
import inspect
import json
import time
import tracemalloc
import unittest
from itertools import accumulate
from pathlib import Path

import pytest

N_CALLS = 5
"""Of the first stretch."""
FEWEST, MOST = 4, 8
"""Stretches."""
LONGEST_SECONDS = 5.0
"""All calls of a test take no longer than this, more or less: what is too slow for that is not called again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with the name of the file."""
    parser.addoption("--brute-force", metavar="FILE")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Measure all tests, and run none."""
    found = {item.nodeid: measure(item) for item in session.items}
    Path(session.config.getoption("--brute-force")).write_text(json.dumps(found, indent=1), "utf-8")
    session.items.clear()


def measure(item: pytest.Item) -> dict[str, object]:
    """Return what one call of *item* leaves, in each stretch; or why it was not called."""
    kind = getattr(item, "cls", None)
    is_unittest = kind is not None and issubclass(kind, unittest.TestCase)
    given = getattr(getattr(item, "callspec", None), "params", {})
    if not is_unittest and set(inspect.signature(item.obj).parameters) - set(given) - {"self"}:
        return {"not_called": "it has fixtures"}

    def call() -> None:
        if is_unittest:
            kind(item.name).debug()
        else:
            item.obj(**given)

    stretches = []
    try:
        call()
        started = time.perf_counter()
        call()
        seconds = time.perf_counter() - started
        lengths = [N_CALLS << number for number in range(MOST)]
        affordable = sum(total * seconds <= LONGEST_SECONDS for total in accumulate(lengths))
        if affordable < FEWEST:
            return {"not_called": "a call takes too long"}
        tracemalloc.start()
        for n_calls in lengths[:affordable]:
            gc.collect()
            before = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
            for _ in range(n_calls):
                call()
            gc.collect()
            after = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
            stretches.append([(now - then) / n_calls for now, then in zip(after, before, strict=True)])
    except BaseException as error:  # noqa: BLE001 - pytest's own outcomes are no Exceptions
        return {"not_called": f"{type(error).__name__}"}
    finally:
        tracemalloc.stop()
    objects, n_bytes = (min(column) for column in zip(*stretches, strict=True))
    return {"objects": objects, "bytes": n_bytes}
