"""Keep the user's data over a trial that is made in this process: all that a changed program can reach is put back.

Kept is what the containers, attributes, closures and classes hold to which the variables lead, exactly as it is. Values
inside of C objects stay as the trial leaves them: those of tensors and arrays, how far an iterator has come.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import random
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from leaklab.cure.edits import NotTriedError
from leaklab.cure.judging import Heap
from leaklab.cure.live import evaluate
from leaklab.runtime.containers import EMPTY, items_in
from leaklab.runtime.objects import (
    class_dict,
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_variables,
    module_dict,
    mro_of,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.ours import Origin, is_history_name, origin_of

_KINDS: tuple[Any, ...] = (list, collections.OrderedDict, dict, set, collections.deque)
"""Containers whose contents can be put back; what their subclasses do meanwhile is not asked."""
_NOTHING = object()
_SEQUENCES: tuple[Any, ...] = (list, collections.deque)
_STREAMS: tuple[Any, ...] = (io.StringIO, io.BytesIO)
_REPLACED = ("str", "bytes", "tuple", "numpy.ndarray", "pandas.")
"""What is not changed itself where a part of it takes its place."""
_LEFT_ALONE = frozenset({
    "IPython", "ipykernel", "jupyter_client", "zmq", "tornado", "comm", "leaklab",  # the notebook's
    "threading", "queue", "concurrent", "asyncio", "multiprocessing", "socket", "selectors",  # others wait in them
    "weakref", "_weakrefset",  # emptied by what dies
})  # fmt: skip
_MOST_CONTAINERS, _MOST_ENTRIES = 100_000, 2_000_000
_TOO_MUCH = "the variables hold more data than a trial in this process could restore"


class KeptData:
    """The variables, and everything they and the paths of the leaks lead to.

    Args:
        namespace: The variables of the program.
        addresses: Of the objects on the paths of the leaks.
        heap: Lends the heap.

    Raises:
        NotTriedError: if that is too much.
    """

    def __init__(self, namespace: dict[str, Any], addresses: Collection[int], heap: Heap) -> None:
        self._namespace = namespace
        self._variables = {name: value for name, value in namespace.items() if not is_history_name(name)}
        self._contents: list[tuple[Any, list[Any]]] = []
        self._places: list[tuple[Callable[[Any], None], Any]] = []
        self._streams: list[tuple[Any, Any, int]] = []
        # Threads, for one, enter their table and leave it at any time.
        others = [name for name in list(sys.modules) if name.partition(".")[0] in _LEFT_ALONE]
        self._seen = {id(namespace), *(id(value) for name in others for value in loaded_variables(name).values())}
        self._n_entries = 0
        self._numbers = _random_states()
        with heap() as objects:
            on_path = [thing for thing in objects if id(thing) in addresses]
        waiting = collections.deque((*on_path, *self._variables.values()))
        while waiting:
            waiting.extend(self._keep(waiting.popleft()))

    def _keep(self, thing: Any) -> Sequence[Any]:
        """Keep what *thing* itself holds, and return what it leads to."""
        if id(thing) in self._seen or is_exactly(thing, _PLAIN):
            return ()
        kind = type(thing)
        if type_name(kind).partition(".")[0] in _LEFT_ALONE:
            return ()
        self._seen.add(id(thing))
        below = [*self._held_by(thing)]
        if kind not in _WITHOUT_ATTRIBUTES and not is_kind_of(thing, type):
            below += self._attributes(thing)
        if len(self._contents) > _MOST_CONTAINERS or self._n_entries > _MOST_ENTRIES:
            raise NotTriedError(_TOO_MUCH)
        return below

    def _held_by(self, thing: Any) -> Iterable[Any]:
        kind = type(thing)
        if kind in _SHOWN:
            return _SHOWN[kind](thing)
        if (base := _base(thing)) is not None:
            return self._of_container(base, thing)
        if kind is types.FunctionType:
            return self._of_function(thing)
        if is_kind_of(thing, type):
            return self._of_class(thing)
        if is_exactly(thing, _STREAMS):
            self._streams.append((thing, thing.getvalue(), thing.tell()))
        elif is_tensor(thing):
            self._of_tensor(thing)
        return ()

    def _of_container(self, base: Any, container: Any) -> Iterable[Any]:
        entries = _entries(base, container)
        if any(entry is EMPTY for entry in entries):
            return ()  # C code fills it still
        self._n_entries += len(entries)
        self._contents.append((container, entries))
        return (entry[1] for entry in entries) if has_base(base, dict) else entries

    def _attributes(self, thing: Any) -> Iterator[Any]:
        """Yield the dict of the attributes of *thing*, and what is in its slots, which are kept."""
        with contextlib.suppress(AttributeError, TypeError):
            attributes = object.__getattribute__(thing, "__dict__")
            if type(attributes) is dict:
                yield attributes
        for owner in mro_of(type(thing)):
            attributes = class_dict(owner)
            if "__slots__" in attributes:
                for slot in [each for each in attributes.values() if type(each) is types.MemberDescriptorType]:
                    value = _slot_value(slot, thing)
                    self._places.append((functools.partial(_set_slot, slot, thing), value))
                    yield value

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty one
                value = cell.cell_contents
                if id(cell) not in self._seen:
                    self._seen.add(id(cell))
                    self._places.append((functools.partial(setattr, cell, "cell_contents"), value))
                yield value
        yield from (function.__defaults__, function.__kwdefaults__, function.__dict__)
        if _is_users(function.__code__.co_filename):
            yield function.__globals__

    def _of_class(self, kind: type) -> Iterator[Any]:
        home = type_name(kind).rpartition(".")[0]
        if home != "__main__" and not _is_users(loaded_variables(home).get("__file__")):
            return
        attributes = {name: value for name, value in class_dict(kind).items() if not name.startswith("__")}
        self._places.append((functools.partial(_set_class, kind), attributes))
        for value in attributes.values():
            yield value.__func__ if is_exactly(value, (staticmethod, classmethod)) else value

    def _of_tensor(self, tensor: Any) -> None:
        with no_torch_functions():
            if tensor.is_leaf and tensor.requires_grad:
                self._places.append((functools.partial(_set_gradient, tensor), tensor.grad))

    def keep_all(self, expressions: Sequence[str]) -> None:
        """Make sure that what *expressions* name is kept.

        Raises:
            NotTriedError: if that cannot be put back.
        """
        for expression in expressions:
            thing = evaluate(expression, self._variables)
            is_replaced = is_tensor(thing) or type_name(type(thing)).startswith(_REPLACED)
            if not is_replaced and (_base(thing) is not None or is_exactly(thing, _STREAMS)):
                self._keep(thing)
                is_replaced = True
            if not is_replaced:
                msg = f"it would empty {expression}, which leaklab could not restore after a trial"
                raise NotTriedError(msg)

    def put_back(self) -> None:
        """Bring everything back that was kept; what was added goes."""
        variables = self._namespace
        for name, value in self._variables.items():
            if name not in variables or variables[name] is not value:
                variables[name] = value
        for name in variables.keys() - self._variables.keys():
            if not is_history_name(name):
                del variables[name]
        for put, value in self._places:
            put(value)
        for stream, text, position in self._streams:
            if not stream.closed and (stream.getvalue() != text or stream.tell() != position):
                stream.seek(0)
                stream.truncate()
                stream.write(text)
                stream.seek(position)
        for container, entries in self._contents:
            _fill_again(_base(container), container, entries)
        for put, state in self._numbers:
            put(state)


_PLAIN: tuple[Any, ...] = (int, float, str, bytes, bool, complex, type(None))
_WITHOUT_ATTRIBUTES: frozenset[Any] = frozenset({
    list, dict, set, tuple, collections.deque, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.ModuleType, types.CodeType, types.FrameType, types.GeneratorType,
})  # fmt: skip


def _of_module(module: types.ModuleType) -> Iterable[Any]:
    variables = module_dict(module) or {}
    return (variables,) if _is_users(variables.get("__file__")) else ()


_SHOWN: Mapping[Any, Callable[[Any], Iterable[Any]]] = {
    tuple: lambda things: [thing for thing in items_in(things) if thing is not EMPTY],
    types.MethodType: lambda method: (method.__self__, method.__func__),
    functools.partial: lambda part: (part.func, part.args, part.keywords),
    types.ModuleType: _of_module,
}
"""What leads on and holds nothing that could change."""


def _random_states() -> list[tuple[Callable[[Any], None], Any]]:
    states: list[tuple[Callable[[Any], None], Any]] = [(random.setstate, random.getstate())]
    for module, ask, put in _RANDOM:
        names = loaded_variables(module)
        if ask in names and put in names and names.get("is_initialized", lambda: True)():
            states.append((names[put], names[ask]()))
    return states


_RANDOM = (
    ("torch", "get_rng_state", "set_rng_state"),
    ("torch.cuda", "get_rng_state_all", "set_rng_state_all"),
    ("torch.xpu", "get_rng_state_all", "set_rng_state_all"),
    ("numpy.random", "get_state", "set_state"),
)
"""Modules, and how they are asked for the state of their random numbers and given it: none is initialised by that."""


def _slot_value(slot: types.MemberDescriptorType, thing: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return _NOTHING


def _set_slot(slot: types.MemberDescriptorType, thing: Any, value: Any) -> None:
    if value is not _NOTHING:
        slot.__set__(thing, value)
    elif _slot_value(slot, thing) is not _NOTHING:
        slot.__delete__(thing)


def _set_class(kind: type, attributes: dict[str, Any]) -> None:
    now = dict(class_dict(kind))
    for name in now.keys() - attributes.keys():
        if not name.startswith("__"):
            type.__delattr__(kind, name)
    for name, value in attributes.items():
        if now.get(name, _NOTHING) is not value:
            type.__setattr__(kind, name, value)


def _set_gradient(tensor: Any, gradient: Any) -> None:
    with no_torch_functions(), contextlib.suppress(RuntimeError):  # of another size meanwhile
        if tensor.grad is not gradient:
            tensor.grad = gradient


def _is_users(filename: object) -> bool:
    return type(filename) is str and origin_of(filename) is Origin.USER


def _base(thing: object) -> Any:
    kind = type(thing)
    return next((base for base in _KINDS if has_base(kind, base)), None)


def _entries(base: Any, container: Any) -> list[Any]:
    return list(base.items(container)) if has_base(base, dict) else items_in(container)


def _fill_again(base: Any, container: Any, entries: list[Any]) -> None:
    """Give *container* the very entries that it had, in their order; one that still has them is not touched."""
    now = _entries(base, container)
    if base in _SEQUENCES or base is set:
        if len(now) != len(entries) or any(one is not other for one, other in zip(now, entries, strict=True)):
            elements = entries if base in _SEQUENCES else set(entries)  # what their own code raises, it raises here
            base.clear(container)
            (base.extend if base in _SEQUENCES else base.update)(container, elements)
        return
    n_same = next((n for n, pair in enumerate(zip(now, entries, strict=False)) if pair[0][0] is not pair[1][0]), None)
    if n_same is None and len(now) >= len(entries):
        for _ in range(len(now) - len(entries)):
            base.popitem(container)
        for (key, value), (_key, was) in zip(now, entries, strict=False):
            if value is not was:
                base.__setitem__(container, key, was)
        return
    fresh = dict(entries)
    base.clear(container)
    for key, value in fresh.items():
        base.__setitem__(container, key, value)


def to_the_end(work: Callable[[], None]) -> None:
    """Call *work*, again where an interrupt has stopped it, and raise that interrupt when it is done.

    Args:
        work: May be called again after any part of it.
    """
    interrupts: list[KeyboardInterrupt] = []
    while not _is_done(work, interrupts):
        pass
    if interrupts:
        raise interrupts.pop()


def _is_done(work: Callable[[], None], interrupts: list[KeyboardInterrupt]) -> bool:
    try:
        work()
    except KeyboardInterrupt as raised:
        interrupts.append(raised)
        return False
    return True
