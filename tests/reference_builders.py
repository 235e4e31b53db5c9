"""One small object of every kind of holder, for the tests that name references."""

from __future__ import annotations

import array
import asyncio
import collections
import contextvars
import ctypes
import dataclasses
import enum
import functools
import io
import itertools
import queue
import threading
import types
import typing
import weakref


class Thing:
    """Has attributes, a class attribute, a method and a property."""

    shared = [1]

    def __init__(self, **attributes):
        self.first = [1]
        vars(self).update(attributes)

    def method(self):
        return self.first

    @property
    def loud(self):
        raise AssertionError


class Untouched:
    def __init__(self):
        self.history = [1]
        self.config = {"a": [2]}


class Slotted:
    __slots__ = ("__private", "public", "unset")

    def __init__(self):
        self.public = [1]
        self.__private = [2]


class SlottedChild(Slotted):
    __slots__ = ("extra",)

    def __init__(self):
        super().__init__()
        self.extra = [3]


class Point(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Record:
    field: object
    more: object = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class SlottedRecord:
    field: object


class Color(enum.Enum):
    RED = ("red",)


class Meta(type):
    registry = [1]


class WithMeta(Thing, metaclass=Meta):
    """A class made by another metaclass, with a base."""


class GrownDict(dict):
    def __init__(self):
        super().__init__(entry=[1])
        self.attribute = [2]


class GrownList(list):
    def __init__(self):
        super().__init__([[1], [2]])
        self.attribute = [3]


class Cached:
    @functools.cached_property
    def value(self):
        return [1]

    partial_method = functools.partialmethod(Thing.method, [1])


class Structure(ctypes.Structure):
    _fields_ = (("value", ctypes.py_object),)


def function():
    captured, other = [1], [2]

    def inner(a: list, b=[3], *, c={}) -> dict:  # noqa: B006
        return captured, other, a, b, c

    inner.attribute = [4]
    return inner


def bare_function():
    def inner(a): ...

    return inner


def suspended(make, step):
    holder = make()
    step(holder)
    return holder


def generator():
    def produce(argument):
        local, shared = [1], [2]
        keep = lambda: shared  # noqa: E731
        yield local, keep
        del argument

    return suspended(lambda: produce([3]), next)


def delegating_generator():
    def outer():
        local = [1]
        yield from iter([local])

    return suspended(outer, next)


def handling_generator():
    def handle():
        try:
            int("not a number")
        except ValueError:
            yield

    return suspended(handle, next)


@types.coroutine
def pause():
    yield


def coroutine():
    async def wait():
        local = [1]
        await pause()
        del local

    return suspended(wait, lambda made: made.send(None))


def async_generator():
    async def produce():
        local = [1]
        await pause()
        yield local

    return suspended(produce, lambda made: made.asend(None).send(None))


def error():
    def fail(argument):
        local = [argument]
        raise OSError(2, "message", local)

    try:
        fail([1])
    except OSError as caught:
        return caught


def chained_error():
    def fail():
        try:
            {}["missing"]
        except KeyError as cause:
            raise ValueError([2]) from cause

    try:
        fail()
    except ValueError as caught:
        caught.attribute = [3]
        return caught


def finished_frame():
    return error().__traceback__.tb_next.tb_frame


def lru(maxsize):
    @functools.lru_cache(maxsize=maxsize)
    def compute(argument):
        return [argument]

    compute((1, 2))
    compute((3, 4))
    return compute


def context_variable():
    return contextvars.ContextVar("leaklab_test", default=[1])  # noqa: B039 - one value for all contexts is the point


def context(n_variables=1):
    made = contextvars.Context()
    for number in range(n_variables):
        made.run(contextvars.ContextVar(f"variable{number}").set, [number])
    return made


class StillLoop(asyncio.AbstractEventLoop):
    """A loop that opens nothing and runs nothing."""

    def get_debug(self):
        return False

    def call_soon(self, *args, **kwargs):
        return None


def future():
    made = asyncio.Future(loop=StillLoop())
    made.add_done_callback(print, context=contextvars.Context())
    made.add_done_callback(len, context=contextvars.Context())
    return made


def finished_future():
    made = asyncio.Future(loop=StillLoop())
    made.set_result([1])
    return made


def local_of_thread():
    made = threading.local()
    made.value = [1]
    return made


def filled_queue():
    made = queue.SimpleQueue()
    made.put([1])
    made.put([2])
    return made


def finalizer():
    thing = Thing()
    made = weakref.finalize(thing, print, [1], end=[2])
    made.atexit = False
    return types.SimpleNamespace(info=made._registry[made], thing=thing)


def info_of_finalizer(alive=[]):  # noqa: B006 - the thing stays alive, or there would be no info
    alive.append(finalizer())
    return alive[-1].info


def c_callback():
    return ctypes.CFUNCTYPE(None)(lambda: None)


BUILDERS = {
    "dict": lambda: {"text": [1], 3: [2], 2.5: [3], True: [4], None: [5], b"raw": [6], ("a", 1): [7], "a b": [8]},
    "dict with object keys": lambda: {Thing(): [1], frozenset([2]): [2], (Thing(), 1): [3]},
    "dict with a NaN key": lambda: {float("nan"): [1], float("inf"): [2]},
    "ordered dict": lambda: collections.OrderedDict(a=[1], b=[2]),
    "default dict": lambda: collections.defaultdict(lambda: [1], a=[2]),
    "counter": lambda: collections.Counter([(1, 2), (1, 2), (3, 4)]),
    "dict subclass": GrownDict,
    "list": lambda: [[1], [2], [3]],
    "list subclass": GrownList,
    "tuple": lambda: ([1], [2]),
    "named tuple": lambda: Point([1], [2]),
    "set": lambda: {(1, 2), (3, 4)},
    "frozen set": lambda: frozenset([(1, 2)]),
    "deque": lambda: collections.deque([[1], [2]], maxlen=3),
    "mapping proxy": lambda: types.MappingProxyType({"a": [1]}),
    "chain map": lambda: collections.ChainMap({"a": [1]}, {"b": [2]}),
    "user dict": lambda: collections.UserDict(a=[1]),
    "weak value dictionary": weakref.WeakValueDictionary,
    "weak key dictionary": weakref.WeakKeyDictionary,
    "weak set": weakref.WeakSet,
    "instance": lambda: Thing(second=[2]),
    "instance untouched": Untouched,
    "instance with odd attribute names": lambda: Thing(**{"a b": [1], "class": [2]}),
    "instance of dataclass": lambda: Record([1]),
    "instance of slotted dataclass": lambda: SlottedRecord([1]),
    "instance with slots": Slotted,
    "instance with slots of two classes": SlottedChild,
    "instance with cached property": lambda: suspended(Cached, lambda made: made.value),
    "enum member": lambda: Color.RED,
    "simple namespace": lambda: types.SimpleNamespace(a=[1]),
    "class": lambda: type("Made", (Thing,), {"shared": [1]}),
    "class of a metaclass": lambda: WithMeta,
    "metaclass": lambda: Meta,
    "enum class": lambda: Color,
    "module": lambda: types.ModuleType("made", "doc"),
    "function": function,
    "function without closure": bare_function,
    "cell": lambda: types.CellType([1]),
    "method": lambda: Thing().method,
    "method of C": lambda: [1].append,
    "function of C": lambda: len,
    "method wrapper": lambda: [1].__len__,
    "method descriptor": lambda: list.append,
    "slot wrapper": lambda: list.__len__,
    "getset descriptor": lambda: Thing.__dict__["__dict__"],
    "member descriptor": lambda: Slotted.public,
    "classmethod": lambda: classmethod(function()),
    "staticmethod": lambda: staticmethod(function()),
    "property": lambda: property(function(), doc="doc made"),
    "partial": lambda: functools.partial(function(), [1], c=[2]),
    "partial method": lambda: vars(Cached)["partial_method"],
    "cached property": lambda: vars(Cached)["value"],
    "lru cache": lambda: lru(8),
    "lru cache without limit": lambda: lru(None),
    "generator": generator,
    "delegating generator": delegating_generator,
    "handling generator": handling_generator,
    "generator not started": lambda: (item for item in [[1]]),
    "coroutine": coroutine,
    "asynchronous generator": async_generator,
    "frame": finished_frame,
    "traceback": lambda: error().__traceback__,
    "exception": error,
    "chained exception": chained_error,
    "stop iteration": lambda: StopIteration([1]),
    "unicode error": lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "reason"),
    "code": lambda: function().__code__,
    "weak reference": lambda: weakref.ref(Thing, lambda dead: None),
    "weak reference with key": lambda: weakref.KeyedRef(Thing, lambda dead: None, (1, 2)),
    "weak proxy": lambda: weakref.proxy(Thing.method, lambda dead: None),
    "weak method": lambda: weakref.WeakMethod(Thing.method.__get__(WithMeta)),
    "info of a finalizer": info_of_finalizer,
    "context": context,
    "context of many variables": lambda: context(40),
    "context variable": context_variable,
    "context token": lambda: context_variable().set([2]),
    "list iterator": lambda: iter([[1]]),
    "tuple iterator": lambda: iter(([1],)),
    "set iterator": lambda: iter({(1, 2)}),
    "dict key iterator": lambda: iter({"a": [1]}),
    "dict item iterator": lambda: iter({"a": [1]}.items()),
    "deque iterator": lambda: iter(collections.deque([[1]])),
    "ordered dict iterator": lambda: iter(collections.OrderedDict(a=[1])),
    "sequence iterator": lambda: iter(type("Sequence", (), {"__getitem__": function()})()),
    "reversed list": lambda: reversed([[1]]),
    "reversed sequence": lambda: reversed(range(3)),
    "callable iterator": lambda: iter(function(), [1]),
    "dict keys": {"a": [1]}.keys,
    "dict values": {"a": [1]}.values,
    "dict items": {"a": [1]}.items,
    "enumerate": lambda: enumerate([[1]]),
    "zip": lambda: zip([[1]], [[2]], strict=False),
    "map": lambda: map(function(), [[1]]),
    "filter": lambda: filter(function(), [[1]]),
    "itertools.chain": lambda: itertools.chain([[1]], [[2]]),
    "itertools.cycle": lambda: itertools.cycle([[1]]),
    "itertools.islice": lambda: itertools.islice([[1]], 1),
    "itertools.product": lambda: itertools.product([[1]], [[2]]),
    "itertools.groupby": lambda: itertools.groupby([[1]]),
    "itertools.tee": lambda: itertools.tee([[1]])[0],
    "itertools.repeat": lambda: itertools.repeat([1]),
    "itertools.count": lambda: itertools.count(2.5),
    "itertools.starmap": lambda: itertools.starmap(function(), [[1]]),
    "itertools.zip_longest": lambda: itertools.zip_longest([[1]], fillvalue=[2]),
    "memoryview": lambda: memoryview(bytearray(b"x")),
    "slice": lambda: slice([1], [2], [3]),
    "super": lambda: super(WithMeta, WithMeta()),
    "generic alias": lambda: list[Thing],
    "union": lambda: Thing | None,
    "typing alias": lambda: typing.Optional[Thing],  # noqa: UP045 - the typing object is the point
    "future": future,
    "finished future": finished_future,
    "thread local": local_of_thread,
    "queue": filled_queue,
    "thread": lambda: threading.Thread(target=function(), args=([1],)),
    "lock": threading.RLock,
    "text buffer": io.StringIO,
    "bytes buffer": io.BytesIO,
    "text file": lambda: io.TextIOWrapper(io.BytesIO(b"text"), encoding="utf-8"),
    "buffered file": lambda: io.BufferedReader(io.BytesIO(b"bytes")),
    "array": lambda: array.array("d", [1.0]),
    "ctypes array": lambda: (ctypes.py_object * 2)([1], [2]),
    "ctypes structure": lambda: Structure([1]),
    "ctypes callback": c_callback,
    "ctypes pointer": lambda: ctypes.pointer(ctypes.c_int(3)),
}
