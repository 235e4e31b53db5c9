"""A heap of objects that are not finished: made by C code that goes on later, or never made ready, or changing now."""

from __future__ import annotations

import array
import asyncio
import codecs
import collections
import contextvars
import csv
import ctypes
import datetime as dt
import decimal
import functools
import hashlib
import io
import itertools
import json
import mmap
import operator
import pickle
import queue
import random
import re
import sqlite3
import ssl
import struct
import threading
import time
import types
import typing
import weakref
import zlib
from collections.abc import Callable, Iterator
from xml.etree.ElementTree import TreeBuilder, XMLPullParser
from xml.parsers import expat

import numpy as np
import pandas as pd
import torch
from half_built import EMPTY_PLACE, half_built


class Thing:
    """Something to be referred to, weakly too."""


class Slotted:
    """Its slots stay empty."""

    __slots__ = ("__weakref__", "first", "second")


class Pair(typing.NamedTuple):
    """Two fields."""

    first: object
    second: object


class KeyOfChange:
    """A key that is compared, and whoever compares it changes the table."""

    def __init__(self, table: dict[object, object]) -> None:
        self.table = table

    def __hash__(self) -> int:
        return 1

    def __eq__(self, _other: object) -> bool:
        self.table[object()] = 1
        return False


def sequences() -> Iterator[object]:
    """Lists and tuples with empty places: at the end, at the beginning, between, everywhere; and long ones."""
    for kind in (list, tuple):
        for n in (1, 3, 9, 40, 1200):
            yield half_built(kind, [EMPTY_PLACE] * n)
            yield half_built(kind, [*(Thing() for _ in range(n)), *[EMPTY_PLACE] * n])
            yield half_built(kind, [*[EMPTY_PLACE] * n, *(Thing() for _ in range(n))])
            yield half_built(kind, [Thing() if place % 3 else EMPTY_PLACE for place in range(n)])
            yield half_built(kind, [torch.ones(3) if place % 2 else EMPTY_PLACE for place in range(n)])
            yield half_built(kind, ["words" if place % 2 else EMPTY_PLACE for place in range(n)])
    yield {"inside": half_built(list, [EMPTY_PLACE, Thing()]), "other": half_built(tuple, [EMPTY_PLACE, Thing()])}
    inner = half_built(list, [EMPTY_PLACE] * 10)
    yield half_built(tuple, [inner, EMPTY_PLACE])


def parsers() -> Iterator[object]:
    """Parsers in the middle of a document, builders and picklers with a memo."""
    parser = XMLPullParser(["start", "end"])
    parser.feed("<a><b>1</b><c>")
    yield parser
    builder = TreeBuilder()
    builder.start("a", {})
    yield builder
    raw = expat.ParserCreate()
    raw.StartElementHandler = lambda *_: None
    raw.Parse("<a>")
    yield raw
    pickler = pickle.Pickler(io.BytesIO())
    pickler.dump([Thing(), [Thing()]])
    yield pickler
    unpickler = pickle.Unpickler(io.BytesIO(pickle.dumps([[1], [2]])))  # noqa: S301 - its own
    unpickler.load()
    yield unpickler
    yield pickle.Pickler.__new__(pickle.Pickler)
    yield pickle.Unpickler.__new__(pickle.Unpickler)
    yield json.JSONEncoder().iterencode([[1, 2], {"a": 1}])
    yield codecs.getincrementaldecoder("utf-8")()
    yield re.finditer("a", "aaa")


def tables() -> Iterator[object]:
    """Dicts and sets that are iterated while they change, that gave most of theirs back, and whose keys change them."""
    for n in (5, 8, 1000):
        table: dict[object, object] = {place: Thing() for place in range(n)}
        yield table, iter(table), iter(table.items()), reversed(table.values())
        walks_of_table = iter(table), iter(table.items()), reversed(table)
        for walk in walks_of_table:
            next(walk)
        table[object()] = 1
        yield walks_of_table
        for place in range(n - 1):
            del table[place]
        things = {Thing() for _ in range(n)}
        walk_of_set = iter(things)
        next(walk_of_set)
        things.pop()
        yield things, walk_of_set
    changing: dict[object, object] = {}
    changing[KeyOfChange(changing)] = Thing()
    yield changing
    ordered = collections.OrderedDict.fromkeys(range(20))
    yield ordered, iter(ordered), reversed(ordered)
    yield collections.OrderedDict.__new__(collections.OrderedDict)
    yield collections.defaultdict.__new__(collections.defaultdict)
    yield collections.Counter.__new__(collections.Counter)
    line = collections.deque(range(200), 100)
    walk_of_line = iter(line)
    next(walk_of_line)
    line.append(1)
    yield line, walk_of_line, collections.deque.__new__(collections.deque)
    yield types.MappingProxyType(table), collections.ChainMap.__new__(collections.ChainMap)


def weak_tables() -> Iterator[object]:
    """Weak containers in the middle of a walk, whose members are gone; weak references to what is dead."""
    for kind in (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary):
        alive = [Thing() for _ in range(10)]
        if kind is weakref.WeakSet:
            table: typing.Any = weakref.WeakSet(alive)
        else:
            table = kind(zip(alive, map(str, range(10)), strict=True) if kind is weakref.WeakKeyDictionary
                         else zip(map(str, range(10)), alive, strict=True))  # fmt: skip
        walk = iter(table)
        next(walk)
        del alive[:]
        yield table, walk, kind.__new__(kind)
    yield weakref.ref(Thing()), weakref.proxy(Thing()), weakref.finalize(Thing(), print)


def count(thing: object) -> Iterator[object]:
    """A generator."""
    kept = [thing]
    yield kept
    try:
        yield kept
    finally:
        kept.append(1)


async def wait(thing: object) -> object:
    """A coroutine."""
    await asyncio.sleep(0)
    return thing


async def count_later(thing: object) -> typing.AsyncIterator[object]:
    """An asynchronous generator."""
    yield thing
    await asyncio.sleep(0)
    yield thing


@types.coroutine
def pause() -> Iterator[None]:
    """Wait once."""
    yield


async def paused(thing: object) -> object:
    """Wait once."""
    await pause()
    return thing


def frames() -> Iterator[object]:
    """Generators, coroutines and frames that were made, run, are suspended, closed, failed or cleared."""
    yield count(Thing())
    for n_steps in (1, 2, 3):
        made = count(Thing())
        for _ in range(n_steps):
            next(made, None)
        yield made, made.gi_frame
    closed = count(Thing())
    next(closed)
    frame = closed.gi_frame
    closed.close()
    yield closed, frame
    made = count(Thing())
    frame = made.gi_frame
    frame.clear()
    yield made, frame
    suspended = paused(Thing())
    suspended.send(None)
    yield suspended, suspended.cr_frame, suspended.__await__()
    created = paused(Thing())
    yield created
    created.close()
    later = count_later(Thing())
    yield later, later.__anext__(), later.asend(None), later.aclose()
    yield (each for each in [Thing()])
    try:
        int("no number")
    except ValueError as error:
        yield error, error.__traceback__
    yield types.CellType(), (lambda: later).__closure__
    yield contextvars.copy_context(), contextvars.ContextVar("half")


def fields() -> Iterator[object]:
    """Objects and classes of which nothing or half was set."""
    yield Slotted()
    half = Slotted()
    half.first = Thing()
    yield half
    yield type("Empty", (), {"__slots__": ("a", "b")})()
    yield type.__new__(type, "Bare", (dict,), {}), type.__new__(type, "Slots", (list,), {"__slots__": ()})
    yield Pair.__new__(Pair, 1, 2), tuple.__new__(Pair, ()), tuple.__new__(Pair, (1,))
    yield time.gmtime(), time.struct_time(range(9)), torch.Size([1, 2]), torch.return_types.max((1, 2))
    yield types.SimpleNamespace(), types.ModuleType("half"), types.ModuleType.__new__(types.ModuleType)
    yield slice(None, Thing()), property(), classmethod.__new__(classmethod), staticmethod.__new__(staticmethod)
    yield super.__new__(super), functools.partial(print, Thing()), operator.itemgetter(1)
    yield BaseException.__new__(ValueError), OSError.__new__(OSError), StopIteration.__new__(StopIteration)
    yield types.GenericAlias(list, (int,)), list[int] | None, memoryview(b"a"), range(3)
    released = memoryview(bytearray(10))
    released.release()
    yield released


NEVER_READY: tuple[type, ...] = (
    io.StringIO, io.BytesIO, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom,
    io.BufferedRWPair, io.FileIO, io.IncrementalNewlineDecoder, struct.Struct, sqlite3.Connection, sqlite3.Cursor,
    asyncio.Future, asyncio.Task, queue.SimpleQueue, threading.local, random.Random, ssl.SSLContext,
    itertools.count, itertools.cycle, decimal.Context, functools.partial, types.SimpleNamespace, set, frozenset,
    list, dict, tuple, bytearray, memoryview, array.array, csv.Dialect, codecs.StreamReader, threading.Thread,
    threading.Lock().__class__, queue.Queue, dt.datetime, pd.DataFrame, pd.Series, pd.Index, pd.MultiIndex,
    torch.nn.Module, torch.nn.Linear, torch.nn.Sequential, torch.nn.Parameter, torch.optim.Adam, torch.Tensor,
    torch.utils.data.DataLoader, torch.nn.LSTM, torch.nn.parameter.UninitializedParameter, torch.Generator,
    torch.UntypedStorage, torch.TypedStorage, np.ndarray, np.random.Generator, np.random.RandomState, np.dtype,
    torch.autograd.Function, torch.autograd.function.FunctionCtx, torch.jit.ScriptModule, ctypes.py_object,
    weakref.WeakSet, zlib.decompressobj().__class__, hashlib.sha256().__class__, mmap.mmap, TreeBuilder,
)  # fmt: skip


def never_ready() -> Iterator[object]:
    """Objects that ``__new__`` has made and ``__init__`` has not, of classes whose state is in C or in attributes."""
    for kind in NEVER_READY:
        for arguments in ((), ("i",), (print,), ([],)):
            try:
                made = kind.__new__(kind, *arguments)
            except Exception:  # noqa: BLE001, S112 - this class lets nobody have one
                continue
            yield made
            break
        try:
            derived = type("Derived", (kind,), {})
            yield derived, derived.__new__(derived)
        except Exception:  # noqa: BLE001, S112 - the same
            continue


class Double(torch.autograd.Function):
    """Keeps its context."""

    contexts: typing.ClassVar[list[object]] = []

    @staticmethod
    def forward(ctx: typing.Any, given: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(given)
        ctx.note = Thing()
        Double.contexts.append(ctx)
        return given * 2

    @staticmethod
    def backward(_ctx: typing.Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2


class Wrapped(torch.Tensor):
    """A subclass."""


def tensors() -> Iterator[object]:
    """Tensors without memory, with freed graphs, resized under their views; contexts of functions, hooks."""
    leaf = torch.ones(4, requires_grad=True)
    result = Double.apply(leaf)
    yield result, Double.contexts[-1], Double.__new__(Double)
    freed = (leaf * 2).exp().sum()
    freed.backward()
    yield freed, freed.grad_fn
    kept = (leaf * 3).exp()
    kept.register_hook(lambda gradient: gradient)
    kept.retain_grad()
    yield kept, kept.grad_fn.next_functions
    emptied = torch.ones(100)
    view = emptied[50:]
    emptied.untyped_storage().resize_(0)
    yield emptied, view, emptied.untyped_storage()
    yield torch.Tensor.__new__(Wrapped), torch.Tensor._make_subclass(Wrapped, torch.ones(2))
    yield torch.empty(3, device="meta"), torch.eye(3).to_sparse(), torch.empty(0), torch.tensor(1.0)
    yield torch.nn.parameter.UninitializedParameter(), torch.nn.parameter.UninitializedBuffer()
    yield torch.nn.LazyLinear(3), torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)
    half = torch.nn.Module.__new__(torch.nn.Linear)
    object.__setattr__(half, "_modules", half_built(list, [EMPTY_PLACE] * 3))
    yield half
    optimizer = torch.optim.Adam([leaf])
    optimizer.param_groups = half_built(list, [EMPTY_PLACE] * 2)
    yield optimizer
    optimizer = torch.optim.Adam([leaf])
    optimizer.param_groups[0]["params"] = half_built(list, [leaf, EMPTY_PLACE])
    yield optimizer
    with torch.inference_mode():
        yield torch.ones(3)


def arrays() -> Iterator[object]:
    """Arrays of objects whose entries are NULL, views, records, and what pandas makes of them."""
    yield np.empty(40, object), np.empty((3, 4), object), np.empty((), object), np.empty(0, object)
    cleared = np.empty(40, object)
    ctypes.memset(cleared.ctypes.data, 0, cleared.nbytes)
    yield cleared, cleared[::2], cleared.reshape(4, 10)
    records = np.zeros(3, dtype=[("a", object), ("b", int)])
    ctypes.memset(records.ctypes.data, 0, records.nbytes)
    yield records
    yield pd.Series(cleared), pd.DataFrame({"a": cleared}), np.frombuffer(bytearray(3000), np.uint8)
    yield array.array("d", range(1000)), array.array("i"), bytearray(5000), np.ndarray.__new__(np.ndarray, (500,))
    yield ctypes.py_object(), (ctypes.py_object * 3)(), ctypes.pointer(ctypes.c_int(1)), ctypes.c_char_p()


def walks() -> Iterator[object]:
    """Iterators of every kind, begun and used up, over what changes and what is half-built."""
    things = [Thing() for _ in range(10)]
    broken = half_built(list, [Thing(), EMPTY_PLACE])
    makers: tuple[Callable[[], object], ...] = (
        lambda: itertools.chain(things, things), lambda: itertools.cycle(things), lambda: itertools.repeat(Thing()),
        lambda: itertools.product(things, things), lambda: itertools.permutations(things, 2),
        lambda: itertools.combinations(things, 2), lambda: itertools.groupby(things),
        lambda: zip(things, [1], strict=False),
        lambda: itertools.islice(things, 2), lambda: itertools.accumulate(range(9)), lambda: map(id, things),
        lambda: itertools.tee(things)[0], lambda: itertools.zip_longest(things, [1]), lambda: enumerate(things),
        lambda: itertools.starmap(max, [(1, 2)]), lambda: itertools.pairwise(things), lambda: iter(things),
        lambda: reversed(things), lambda: filter(None, things), lambda: itertools.compress(things, [1, 1]),
        lambda: itertools.combinations_with_replacement(things, 2), lambda: itertools.takewhile(bool, things),
    )  # fmt: skip
    for make in makers:
        made: typing.Any = make()
        yield make(), made, next(made, None)
    used = iter([1])
    next(used)
    next(used, None)
    yield used, iter(broken), reversed(broken), iter(half_built(tuple, [EMPTY_PLACE])), enumerate(broken)
    walk = iter(things)
    del things[:]
    yield walk


KINDS: dict[str, Callable[[], Iterator[object]]] = {
    each.__name__: each
    for each in (
        sequences, parsers, tables, weak_tables, frames, fields, never_ready, tensors, arrays, walks
    )
}  # fmt: skip
"""What makes the objects of one kind."""


def half_built_heap() -> dict[str, list[object]]:
    """Return objects of every kind."""
    return {name: list(make()) for name, make in KINDS.items()}
