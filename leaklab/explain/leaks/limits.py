"""Recognise holders that limit themselves, and where they stop.

They are a deque, an lru_cache, a queue, an array. The bound is read from the object: through the C descriptor of a
built-in type, or from the instance's own attributes where the class that reads it there is a library's. A class of the
user's may call anything ``maxsize``. Plain data are numbers and messages in the order in which they came. The variables
of a program are as many as the names in its code.
"""

from __future__ import annotations

import collections
import dis
import io
import itertools
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leaklab.heap.source_lines import sources_with
from leaklab.measure.gauges import free_host_bytes
from leaklab.runtime.containers import first_items, keys_in
from leaklab.runtime.objects import (
    LRU_CACHE,
    class_attribute,
    class_dict,
    has_base,
    inline_attribute,
    loaded_type,
    mro_of,
    no_torch_functions,
    safe_len,
    type_name,
)
from leaklab.runtime.ours import Origin, is_history_name, origin_of
from leaklab.runtime.referents import is_own_dict
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
                depth == 0 or (kind is LRU_CACHE and _is_table_of_cache(thing, holders[len(holders) - depth :]))
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


@dataclass(frozen=True, slots=True)
class LimitedCache:
    """A cache that drops entries beyond a limit.

    Attributes:
        owner: An ``lru_cache``, or an instance of a library's class.
        container: What the entries are in; *owner* itself, or one of its attributes.
        limit: Its limit.
    """

    owner: Any
    container: Any
    limit: Limit

    @property
    def address(self) -> int:
        """The address of what the entries are in."""
        return id(self.container)

    def __len__(self) -> int:
        return self.limit.n_now or 0

    def clear(self) -> None:
        """Empty it, by its own method where it has one: beside the container there may be links between entries."""
        name = "cache_clear" if type(self.owner) is LRU_CACHE else "clear"
        getattr(self.owner if callable(class_attribute(type(self.owner), name, None)) else self.container, name)()


def limited_caches(things: Iterable[object]) -> list[LimitedCache]:
    """Return those of *things* that are caches with a limit; what is a window, or waits for somebody, is none."""
    named: dict[type, tuple[tuple[str, tuple[str, ...]], ...]] = {}
    cachetools_cache = loaded_type("cachetools", "Cache")
    caches = []
    for thing in things:
        kind = type(thing)
        if kind not in named:
            named[kind] = tuple(_named_limits(kind))
        found = [*_own_limits(thing, named[kind])] if named[kind] else []
        if kind is LRU_CACHE and (limit := known_limit([thing])) is not None:
            found.append((thing, limit))
        elif cachetools_cache is not None and has_base(kind, cachetools_cache):
            inside = inline_attribute(thing, "_Cache__data")
            limit = known_limit([thing, inside])
            found += [] if limit is None else [(inside, replace(limit, n_now=safe_len(inside)))]
        caches += [LimitedCache(thing, container, limit) for container, limit in found]
    return caches


def _by_code(thing: object, below: Sequence[object]) -> Limit | None:
    """Return the limit that the library class of *thing* keeps for entries in it, or in a container of its own.

    One of its functions asks for a length, for an attribute that is called a limit, and for that container, and drops
    entries. What has twice as many is not what that function drops from.
    """
    if below and not _has_in_attributes(thing, below, 1):
        return None
    whose = below[-1] if below else thing
    limits = _own_limits(thing, _named_limits(type(thing)))
    return next((limit for container, limit in limits if container is whose), None)


def _own_limits(thing: object, named: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[object, Limit]]:
    """Yield what a limit of *thing*, *named* in its class, may be meant for: itself, and its attributes."""
    for name, others in named:
        limit = _value_of(thing, name)
        if type(limit) is not int or limit <= 0:
            continue
        for container in (thing, *(_value_of(thing, other) for other in others)):
            now = safe_len(container)
            if now is not None and now <= 2 * limit:
                words = f"{type_name(type(thing))}({name.strip('_')}={limit})"
                yield container, Limit(words, limit, is_meant=False, n_now=now, when_full="drops entries")


def _named_limits(kind: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the attributes called a limit that a library's function of *kind* reads where it drops entries.

    With each goes all that this function asks for by name.
    """
    for base in mro_of(kind):
        for function in list(class_dict(base).values()):
            code = function.__code__ if type(function) is types.FunctionType else None
            if code is None or "len" not in code.co_names:
                continue
            limits = [name for name in code.co_names if _LIMIT_NAME.search(name)]
            drops = limits and (_DROPS.intersection(code.co_names) or _DELETES in code.co_code[::2])
            if drops and origin_of(code.co_filename) is not Origin.USER:
                yield from ((name, code.co_names) for name in limits)


_DELETES = dis.opmap["DELETE_SUBSCR"]


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


def _is_table_of_cache(cache: object, below: Sequence[object]) -> bool:
    """Return whether *below* is the dict that an ``lru_cache`` has its results in, which is none of Python's own."""
    return len(below) == 1 and type(below[0]) is dict and not is_own_dict(cache, below[0])


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


_OF_CLASSES = frozenset({"__slotnames__"})
"""What Python itself notes in a class, once: `copyreg`, the names of the slots of what is pickled."""


def has_known_names(thing: object, n_new: int, *, is_namespace: bool, is_of_class: bool) -> bool:
    """Return whether the newest names in the dict *thing* cannot be ever more.

    In the dict of a class (*is_of_class*) these are what Python itself notes there; of variables (*is_namespace*) those
    that stand in the code, and the notebook's own, which are for what `In` and `Out` hold too.
    """
    if type(thing) is not dict or not (is_namespace or is_of_class):
        return False
    newest = keys_in(thing)[-max(n_new, 1) :]
    names = [name for name in newest if type(name) is str]
    if is_namespace and 2 * sum(map(is_history_name, names)) > len(newest):
        return True
    is_known = _stands_in_code if is_namespace else _OF_CLASSES.__contains__
    return len(names) == len(newest) > 0 and all(map(is_known, names))


def _stands_in_code(name: str) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for _file, text in sources_with(name))
