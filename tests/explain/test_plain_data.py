"""A log gains numbers in their order; everything else that gains plain data is a table."""

from __future__ import annotations

import array
import collections
import datetime as dt

import numpy as np
import pytest
import torch

from leaklab.decide.growth import LOG_BYTES, is_log
from leaklab.explain.leaks.limits import gains_log_entries

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
LOGS = {
    "numbers": [0.5, 1, True, None, 2j],
    "numpy's numbers": [np.float32(1), np.int64(2), np.bool_(0)],
    "a deque": collections.deque([1, 2, 3]),
    "records of numbers": [(1, 0.5), (2, 0.25), (3, None)],
    "records with labels": [(("train", "test")[i % 2], i, 0.5) for i in range(20)],
    "times": [(NOW, 0.5), (NOW, 0.25)],
    "numbers under steps": {10: 0.5, 20: 0.25, 30: 0.125},
    "records under times": {0.5: (1, 2), 1.5: (3, 4)},
    "machine numbers": array.array("d", [1.0, 2.0]),
    "an array of numbers": np.zeros(8),
    "a tensor": torch.zeros(8),
    "messages of errors": ["shape mismatch in step 3", "RuntimeError('mat1 and mat2 do not fit')"],
    "numbers and messages": [0.5, "the loss is not finite", 0.25],
}
TABLES = {
    "texts": ["step 1", "step 2"],
    "labels alone": ["train"] * 20,
    "texts of configurations": ["Config(lr=0.1, wd=0.0, n=3)", "Config(lr=0.2, wd=0.0, n=3)"],
    "messages as keys": {"the loss is not finite": 1},
    "records with names": [(f"model-{i}", i) for i in range(20)],
    "dicts": [{"loss": 0.5}, {"loss": 0.25}],
    "long records": [tuple(range(100)), tuple(range(100))],
    "a set of numbers": {1, 2, 3},
    "names": {"a": 1, "b": 2},
    "hashes": {812: 1, 77: 2, 4004: 3},
    "tuples as keys": {(1, 2): 3, (2, 3): 4},
    "texts under steps": {1: "one", 2: "two"},
    "switches as keys": {False: 1, True: 2},
    "a counter": collections.Counter("ab"),
    "bytes": bytearray(b"abc"),
    "an array of objects": np.array([None, None], object),
    "an array of texts": np.array(["a", "b"]),
}


@pytest.mark.parametrize("what", LOGS)
def test_numbers_in_their_order_are_a_log(what):
    assert gains_log_entries(LOGS[what], 100)


@pytest.mark.parametrize("what", TABLES)
def test_anything_else_is_a_table(what):
    assert not gains_log_entries(TABLES[what], 100)


def test_only_what_is_new_decides():
    assert gains_log_entries(["epoch", "loss", 0.5, 0.25], 2)


def test_a_log_that_gains_much_is_none():
    assert is_log(gains_log_entries=True, bytes_per_run=LOG_BYTES - 1)
    assert not is_log(gains_log_entries=True, bytes_per_run=LOG_BYTES)
    assert not is_log(gains_log_entries=False, bytes_per_run=1)
