"""Tell a log from a table: plain data are numbers and messages in the order in which they came."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from leaklab.explain.leaks.sizes import newest_entries
from leaklab.runtime.containers import first_items
from leaklab.runtime.objects import has_base, is_tensor_type

_NUMBERS = (
    int, float, complex, bool, type(None), decimal.Decimal, dt.datetime, dt.date, dt.timedelta,
)  # fmt: skip
_NUMBER_IDS = frozenset(map(id, _NUMBERS))
_NUMPY_NUMBERS = (np.number, np.bool_, np.datetime64)
_NUMBER_KINDS = "biufcmM"
_MOST_IN_RECORD = 16
_FEWEST_WORDS = 3
"""A text with so many words is written for people: the message of an error, a line of a protocol; no name, no key."""
_NUMBER = re.compile(r"[-+]?\d[\d.,eE+-]*%?")
_LEAST_PER_LABEL = 4
"""Texts that so many records share are labels (``"train"``), and take nothing of their own."""
_dtype_of: Any = np.ndarray.__dict__["dtype"].__get__


def gains_log_entries(thing: object, n_new: int) -> bool:
    """Return whether the *n_new* newest entries of *thing* are numbers or records of them in the order they came in.

    Those of a sequence are; those of a mapping where its keys are numbers that rise, or have one in their name. A
    sequence may also gain messages, whole sentences: who keeps the text of an error instead of its traceback keeps a
    log. A stream of text, in which a logger's handler writes, is one.
    """
    kind = type(thing)
    if has_base(kind, array.array) or has_base(kind, io.StringIO) or is_tensor_type(kind):
        return True
    if has_base(kind, np.ndarray):
        return _dtype_of(thing).kind in _NUMBER_KINDS
    entries = newest_entries(thing, n_new)
    if has_base(kind, dict):
        return _rise(entries[1::2][::-1]) and _are_numbers(entries[::2])
    is_sequence = any(has_base(kind, base) for base in (list, tuple, collections.deque))
    return is_sequence and _are_numbers([entry for entry in entries if not _is_message(entry)])


def _is_message(entry: object) -> bool:
    if type(entry) is not str:
        return False
    parts = [part.strip(".,:;") for part in entry.split()]
    n_words = sum(map(str.isalpha, parts))
    n_numbers = sum(_NUMBER.fullmatch(part) is not None for part in parts)  # of "step 12: loss 0.43"
    return n_words >= _FEWEST_WORDS or (n_words + 1 == _FEWEST_WORDS and n_numbers > 0)


def _rise(keys: Sequence[Any]) -> bool:
    if all(type(key) is str for key in keys):  # "trial-7" is the name of a number
        matches = [_NUMBERED.fullmatch(key) for key in keys]
        if None in matches or len({match.group(1, 3) for match in matches if match is not None}) > 1:
            return False
        keys = [int(match[2]) for match in matches if match is not None]
    return all(type(key) is int or type(key) is float for key in keys) and all(
        a < b for a, b in itertools.pairwise(keys)
    )


_NUMBERED = re.compile(r"(\D*)(\d{1,18})(\D*)")


def _are_numbers(entries: Sequence[object]) -> bool:
    records = [entry for entry in entries if type(entry) is tuple]
    labels: list[object] = []
    for entry in entries:
        parts = first_items(entry, _MOST_IN_RECORD + 1) if type(entry) is tuple else [entry]
        texts = [part for part in parts if type(part) is str]
        labels += texts
        if len(parts) > _MOST_IN_RECORD or not all(map(_is_number, (part for part in parts if type(part) is not str))):
            return False
        if texts and len(texts) == len(parts):
            return False
    return not labels or len(set(labels)) * _LEAST_PER_LABEL <= len(records)


def _is_number(thing: object) -> bool:
    kind = type(thing)
    return id(kind) in _NUMBER_IDS or any(has_base(kind, base) for base in _NUMPY_NUMBERS)
