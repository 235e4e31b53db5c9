"""Recognise holders that limit themselves, and where they stop; tell plain data that a container gains from the rest.

They are a deque, an lru_cache, a queue, an array. The bound is read from the object: through the C descriptor of a
built-in type, or from the instance's own attributes where the class that reads it there is a library's. A class of the
user's may call anything ``maxsize``. Plain data are numbers and messages in the order in which they came.
"""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import dis
import io
import itertools
import math
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaklab.explain.leaks.sizes import newest_entries
from leaklab.heap.source_lines import Origin, origin_of
from leaklab.measure.gauges import free_host_bytes
from leaklab.runtime.addresses import is_own_dict
from leaklab.runtime.containers import first_items
from leaklab.runtime.objects import (
    LRU_CACHE,
    class_attribute,
    class_dict,
    has_base,
    inline_attribute,
    is_tensor_type,
    loaded_type,
    mro_of,
    no_torch_functions,
    safe_len,
    type_name,
)
from leaklab.runtime.sizes import sparse_bytes, sparse_parts
from leaklab.text import format_bytes, unit_words

FAR = 4096
"""A length that a container has come to by itself, or has places for, is no limit beyond so many entries."""
FAR_BYTES = 8 * 1024 * 1024
"""A cache that would hold more than this when it is full leaks until then."""
_SHARE_OF_FREE = 0.5
"""What somebody limits to so many of just these is bounded where they fit into this share of the free memory."""
_LIMIT_NAME = re.compile(r"(?i)max|cap(acity)?$|limit|^_?size$")
_DROPS = frozenset({"popitem", "pop", "popleft", "clear", "__delitem__"})
_DEEPEST_OWNER = 2  # the container itself, the dict of its owner, the owner
_size_of = np.ndarray.__dict__["size"].__get__


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one type limits itself.

    Attributes:
        module: Where the type is found once it is loaded.
        name: Its name there.
        attribute: What the limit is called.
        is_meant: Whether somebody chose that many of just these.
        read: Reads it; None to read *attribute* from the instance's dict.
        length: Returns how many there are now; None where only the class itself could.
        when_full: What it does then.
        is_container: Whether the entries are in the object itself, not in a container among its attributes.
        is_replaced: Whether code makes a larger one of it once it is full, twice as large at most as far as one knows.
        buffer: What it is called in words, where its limit is a number of bytes; empty for a number of entries.
        n_containers: How many there are from the attribute to the one that the entries are in.
    """

    module: str
    name: str
    attribute: str
    is_meant: bool = True
    read: Callable[[Any], int | None] | None = None
    length: Callable[[Any], int] | None = None
    when_full: str = "drops its oldest entry"
    is_container: bool = False
    is_replaced: bool = False
    buffer: str = ""
    n_containers: int = 1

    def type(self) -> type | None:
        """Return the type, None if its module is not loaded."""
        return LRU_CACHE if self.name == "lru_cache" else loaded_type(self.module, self.name)


_RULES: tuple[_Rule, ...] = (
    _Rule(
        "collections",
        "deque",
        "maxlen",
        read=collections.deque.maxlen.__get__,
        length=collections.deque.__len__,
        is_container=True,
    ),
    _Rule(
        "functools",
        "lru_cache",
        "maxsize",
        is_meant=False,
        read=lambda cache: LRU_CACHE.cache_info(cache).maxsize,
        length=lambda cache: LRU_CACHE.cache_info(cache).currsize,
        is_container=True,
    ),
    # What is written to a text file waits in a list until it fills a chunk.
    _Rule(
        "_io",
        "TextIOWrapper",
        "_CHUNK_SIZE",
        read=io.TextIOWrapper._CHUNK_SIZE.__get__,  # type: ignore[attr-defined]  # noqa: SLF001 - the only place that tells
        when_full="is written",
        buffer="buffer of a text file",
    ),
    _Rule("queue", "Queue", "maxsize", when_full="blocks put()"),
    _Rule("asyncio", "Queue", "_maxsize", when_full="blocks put()"),
    _Rule("logging.handlers", "MemoryHandler", "capacity", when_full="is flushed"),
    _Rule(
        "numpy",
        "ndarray",
        "size",
        read=lambda array: int(_size_of(array)),
        length=lambda array: sum(1 for entry in np.ndarray.ravel(array).tolist() if entry is not None),
        when_full="has no room for more",
        is_container=True,
        is_replaced=True,
    ),
    # In the state of its first parameter: the directions, step lengths and curvatures of the last steps.
    _Rule(
        "torch.optim",
        "LBFGS",
        "history_size",
        read=lambda lbfgs: _of_first_group(lbfgs, "history_size"),
        n_containers=3,
    ),
    # What is added in place is joined by position once there are more entries than the dense tensor has numbers.
    _Rule(
        "torch",
        "Tensor",
        "nnz",
        is_meant=False,
        read=lambda tensor: _most_sparse_bytes(tensor),  # noqa: PLW0108 - it is defined below
        length=sparse_bytes,
        when_full="is joined by torch",
        is_container=True,
        buffer="sparse tensor",
    ),
    # cachetools writes the name of the attribute out, as Python does for two underscores.
    _Rule("cachetools", "Cache", "_Cache__maxsize", is_meant=False),
)


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a holder will hold at most.

    Attributes:
        words: As Python writes it: ``collections.deque(maxlen=64)``.
        entries: The number; of a buffer that of its bytes.
        is_meant: Whether somebody chose that many of just these: a deque's length is, a cache's size often is not.
        n_now: How many there are now; None where that is not known.
        when_full: What the holder does when it is full.
        is_buffer: Whether the limit is one of bytes.
    """

    words: str
    entries: int
    is_meant: bool
    n_now: int | None = None
    when_full: str = "drops its oldest entry"
    is_buffer: bool = False

    @property
    def is_full(self) -> bool:
        """Whether there are as many now as it holds."""
        return self.n_now is not None and self.n_now >= self.entries

    @property
    def may_have_dropped(self) -> bool:
        """Whether the holder may have let go of an entry for another one already."""
        return self.n_now is None or self.is_full

    def reason(self, per_run: float, bytes_per_run: float) -> str:
        """Say why this is bounded, and where it stops: after how many more runs, at how many bytes.

        Args:
            per_run: Objects that each run adds while it grows, one for each entry.
            bytes_per_run: Their bytes.
        """
        words = f"its holder is a {self.words}, which {self.when_full} when it is full"
        if self.is_full:
            return f"{words}, as it is now"
        if per_run <= 0 or self.is_buffer:
            return words
        at = f"at about {format_bytes(self.full_bytes(bytes_per_run / per_run))}"
        if self.n_now is None:
            return f"{words}, {at}"
        return f"{words}: in about {unit_words(math.ceil((self.entries - self.n_now) / per_run), 'runs')}, {at}"

    def is_far(self, bytes_per_entry: float) -> bool:
        """Return whether the holder will be large before it drops anything: memory may be full by then."""
        most = max(_SHARE_OF_FREE * free_host_bytes(), FAR_BYTES) if self.is_meant else FAR_BYTES
        return not self.is_full and self.full_bytes(bytes_per_entry) > most

    def full_bytes(self, bytes_per_entry: float) -> float:
        """Return how much the holder has when it is full, where each entry has *bytes_per_entry*."""
        return self.entries if self.is_buffer else self.entries * bytes_per_entry


def known_limit(holders: Sequence[object]) -> Limit | None:
    """Return the limit of what holds the entries, None if there is none.

    Args:
        holders: From a root to the container that the entries are in. A limit is one for its own entries only: a list
            in a deque may grow without end.
    """
    rules = [(kind, rule) for rule in _RULES if (kind := rule.type()) is not None]
    for depth, thing in enumerate(reversed(holders)):
        for kind, rule in rules:
            has_entries = (
                depth == 0
                if rule.is_container
                else _has_in_attributes(thing, holders[len(holders) - depth :], rule.n_containers)
            )
            if has_entries and any(base is kind for base in mro_of(type(thing))):
                limit = _instance_limit(thing, rule.attribute) if rule.read is None else rule.read(thing)
                now = None if rule.length is None else rule.length(thing)
                may_be_replaced = rule.is_replaced and limit is not None and limit <= 2 * (now or 0)
                if limit is not None and limit > 0 and not may_be_replaced:
                    is_meant = rule.is_meant and not (rule.is_replaced and limit > FAR)
                    shown = "functools.lru_cache" if kind is LRU_CACHE else type_name(type(thing))
                    words = f"{shown}({rule.attribute.strip('_')}={limit})"
                    words = f"{rule.buffer} ({format_bytes(limit)})" if rule.buffer else words
                    return Limit(words, limit, is_meant, now, rule.when_full, bool(rule.buffer))
        if depth <= _DEEPEST_OWNER and (found := _by_code(thing, holders[len(holders) - depth :])):
            return found
    return None


def _by_code(thing: object, below: Sequence[object]) -> Limit | None:
    """Return the limit that the library class of *thing* keeps for entries in it, or in a container of its own.

    One of its functions asks for a length, for an attribute that is called a limit, and for that container, and drops
    entries. What has twice as many is not what that function drops from.
    """
    if below and not _has_in_attributes(thing, below, 1):
        return None
    now = safe_len(below[-1] if below else thing)
    for name, others in _named_limits(type(thing)):
        limit = _value_of(thing, name)
        is_for_it = not below or any(_value_of(thing, other) is below[-1] for other in others)
        if is_for_it and type(limit) is int and now is not None and limit > 0 and now <= 2 * limit:
            words = f"{type_name(type(thing))}({name.strip('_')}={limit})"
            return Limit(words, limit, is_meant=False, n_now=now, when_full="drops entries")
    return None


def _named_limits(kind: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the attributes called a limit that a library's function of *kind* reads where it drops entries.

    With each goes all that this function asks for by name.
    """
    for base in mro_of(kind):
        for function in list(class_dict(base).values()):
            code = function.__code__ if type(function) is types.FunctionType else None
            if code is None or "len" not in code.co_names or origin_of(code.co_filename) is Origin.USER:
                continue
            if _DROPS.intersection(code.co_names) or _deletes(code):
                yield from ((name, code.co_names) for name in code.co_names if _LIMIT_NAME.search(name))


def _deletes(code: types.CodeType) -> bool:
    return any(step.opname == "DELETE_SUBSCR" for step in dis.get_instructions(code))


def _value_of(thing: object, name: str) -> Any:
    """Return the attribute or slot *name* of *thing*, None if there is none; no code of its class runs."""
    slot = class_attribute(type(thing), name, None)
    if type(slot) is not types.MemberDescriptorType:
        return inline_attribute(thing, name)
    try:
        return slot.__get__(thing)
    except AttributeError:
        return None


def filled_once(owner: object) -> str:
    """Say why a container that *owner* has for itself is filled once only; empty where that is not known."""
    return "itertools.cycle keeps what its first pass gets" if type(owner) is itertools.cycle else ""


def _has_in_attributes(thing: object, below: Sequence[object], n_containers: int) -> bool:
    """Return whether *below*, which leads from *thing*, are so many containers, alone or after the dict of *thing*."""
    return len(below) == n_containers or (len(below) == n_containers + 1 and is_own_dict(thing, below[0]))


def _instance_limit(thing: object, name: str) -> int | None:
    """Return a whole number among the attributes of an instance; None where it is anything else."""
    limit = inline_attribute(thing, name)
    return limit if type(limit) is int else None


def _of_first_group(optimizer: object, name: str) -> int | None:
    """Return a whole number from the first parameter group of an optimizer; None where it is anything else."""
    groups = first_items(inline_attribute(optimizer, "param_groups"), 1)
    limit = groups[0].get(name) if groups and type(groups[0]) is dict else None
    return limit if type(limit) is int else None


def _most_sparse_bytes(tensor: Any) -> int | None:
    """Return how many bytes the sparse *tensor* has when torch joins its entries; None of a dense one."""
    base: Any = loaded_type("torch", "Tensor")
    n_bytes = sparse_bytes(tensor)
    if not n_bytes:
        return None
    with no_torch_functions():
        n_entries = int(base.size(sparse_parts(tensor)[-1], 0))
        return int(base.numel(tensor)) * n_bytes // n_entries if n_entries else None


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
    log.
    """
    kind = type(thing)
    if has_base(kind, array.array) or is_tensor_type(kind):
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
