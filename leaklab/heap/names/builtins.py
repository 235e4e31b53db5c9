"""Name what iterators, weak references, contexts, futures, tensors and autograd nodes refer to."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import ctypes
import io
import itertools
import queue
import sys
import threading
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Final, cast

from leaklab.heap.names.reference import (
    MISSING,
    Reference,
    among,
    c_descriptor,
    class_dict,
    in_words,
    is_evaluable,
    read,
)
from leaklab.runtime.containers import CONTEXT_NODES, entries_in, items_in, keys_in
from leaklab.runtime.node_hooks import TENSOR_HOOKS, is_function_type, node_hooks, origin_of
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_variables, mro_of, no_torch_functions, type_name
from leaklab.runtime.referents import get_referents

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTRIBUTES: Final[dict[type, tuple[str, ...]]] = {
    types.GenericAlias: ("__parameters__",),
    types.UnionType: ("__parameters__",),
    types.GetSetDescriptorType: ("__objclass__",),
    types.MemberDescriptorType: ("__objclass__",),
    types.WrapperDescriptorType: ("__objclass__",),
    contextvars.Token: ("var", "old_value"),
    memoryview: ("obj",),
    asyncio.Future: ("_loop", "_result", "_exception", "_source_traceback", "_cancel_message"),
    asyncio.Task: ("_coro", "_fut_waiter"),
}
"""Attributes that are computed by C code without side effects."""


def in_attributes(holder: Any, child: object) -> Iterator[Reference]:
    """Name the attributes listed for the type of *holder* and its bases."""
    for kind, names in _ATTRIBUTES.items():
        if is_kind_of(holder, kind):
            yield from among(holder, child, names)


def in_weak_reference(holder: Any, child: object) -> Iterator[Reference]:
    """Name the callback; the referent is no reference at all."""
    if read(holder, "__callback__") is child:
        yield in_words("weakref callback", "callback", ".__callback__")


def in_weak_proxy(holder: Any, child: object) -> Iterator[Reference]:
    """Name the callback, to which a proxy gives no access: all its attributes are those of the referent."""
    if any(child is inner for inner in get_referents(holder)):
        yield in_words("weakref callback", "callback")


def in_future(holder: Any, child: object) -> Iterator[Reference]:
    """Name attributes and the callbacks that wait for the result."""
    yield from in_attributes(holder, child)
    callbacks = read(holder, "_callbacks")
    for index, pair in enumerate(items_in(callbacks) if type(callbacks) is list else ()):
        if type(pair) is tuple and pair[0] is child:
            suffix = f"._callbacks[{index}][0]"
            yield Reference("done callback", suffix, "done callback", "callback")
        elif type(pair) is tuple and pair[1] is child:
            yield in_words("context of a done callback", "callback")
            return
    if type(child) is contextvars.Context and is_kind_of(holder, asyncio.Task):
        yield in_words("context of the task")


def in_context_node(holder: Any, child: object) -> Iterator[Reference]:
    """Name values of context variables by the variable.

    The node of a context reports its entries back to front, each as value, key; or as another node alone.
    """
    entries = iter(get_referents(holder)[::-1])
    for first in entries:
        if type(first) is not contextvars.ContextVar:
            if first is child:
                yield in_words(_CONTEXT_PART, suffix="")
            continue
        if first is child:
            yield in_words(f"context variable {first.name!r}", "key")
        if next(entries, None) is child:
            code = _code_for(first)
            yield in_words(f"value of context variable {first.name!r}", "key", f"[{code}]" if code else None)


def _code_for(variable: contextvars.ContextVar[Any]) -> str:
    """Return how Python writes *variable*, by the module whose variable it is; empty if it is none's."""
    for module in ("__main__", *sys.modules):
        for name, value in entries_in(loaded_variables(module)):
            if value is variable and type(name) is str and name.isidentifier():
                return name if module == "__main__" else f"{module}.{name}"
    return ""


class _Sequence:
    """The least that ``iter`` accepts: its iterator is the one of all classes without ``__iter__``."""

    def __getitem__(self, index: int) -> int:
        raise IndexError


_CONTEXT_PART = "part of the context"
_ITERATORS: Final[dict[type, str]] = {
    enumerate: "iterated object",
    zip: "iterator being zipped",
    map: "function or iterator being mapped",
    filter: "function or iterator being filtered",
    reversed: "iterated object",
    type(reversed([])): "iterated object",
    type(iter([])): "iterated object",
    type(iter(())): "iterated object",
    type(iter(set())): "iterated object",
    type(iter("")): "iterated object",
    type(iter(b"")): "iterated object",
    type(iter(bytearray())): "iterated object",
    type(iter({})): "iterated object",
    type(iter({}.values())): "iterated object",
    type(iter({}.items())): "iterated object",
    type(reversed({})): "iterated object",
    type(reversed({}.values())): "iterated object",
    type(reversed({}.items())): "iterated object",
    type(iter(collections.OrderedDict())): "iterated object",
    type(iter(collections.deque())): "iterated object",
    type(reversed(collections.deque())): "iterated object",
    type(iter(cast("Any", _Sequence()))): "iterated object",
    type(iter(int, 1)): "function being called",
    type({}.keys()): "mapping of the view",
    type({}.values()): "mapping of the view",
    type({}.items()): "mapping of the view",
    type(collections.OrderedDict().keys()): "mapping of the view",
    type(collections.OrderedDict().values()): "mapping of the view",
    type(collections.OrderedDict().items()): "mapping of the view",
    **{kind: "iterated object" for kind in vars(itertools).values() if type(kind) is type},
}
_C_FILE: Final = io.IOBase.__mro__[1]  # of which all file objects written in C are subclasses
_C_DATA: Final = ctypes.Structure.__mro__[1]
LEFTOVERS: Final[dict[type, str]] = {
    **_ITERATORS,
    **dict.fromkeys(CONTEXT_NODES, _CONTEXT_PART),
    contextvars.Context: _CONTEXT_PART,
    contextvars.ContextVar: "default value",
    contextvars.Token: "context of the token",
    memoryview: "buffer",
    queue.SimpleQueue: "queued item",
    threading.local: "values of each thread",
    asyncio.Future: "internals of the future",
    asyncio.Task: "internals of the task",
    types.GenericAlias: "internals of the alias",
    types.UnionType: "member of the union",
    io.BytesIO: "content of the buffer",
    _C_FILE: "internals of the file object",
    _C_DATA: "object kept for C",
    types.MethodDescriptorType: "internals of the method",
}
"""What a reference of these types is called if nothing more precise is known."""


def _buffer_types() -> Iterator[type]:
    """Yield the type of the buffer that stands between a memoryview and its object."""
    yield from (type(inner) for inner in get_referents(memoryview(b"")))


LEFTOVERS.update(dict.fromkeys(_buffer_types(), "exported object"))


NAMERS = {
    **dict.fromkeys(_ATTRIBUTES, in_attributes),
    **dict.fromkeys(CONTEXT_NODES, in_context_node),
    asyncio.Future: in_future,
    weakref.ref: in_weak_reference,
    weakref.ProxyType: in_weak_proxy,
    weakref.CallableProxyType: in_weak_proxy,
}
KINDS = {weakref.ref: "callback"}


_HOOK_ATTRIBUTES = ("_backward_hooks", "_post_accumulate_grad_hooks")
_NODE_ATTRIBUTES = (
    "to_save",
    "saved_for_forward",
    "dirty_tensors",
    "non_differentiable",
    "needs_input_grad",
)
# Not ``_saved_*``: to read these would run unpack hooks, and could compute a checkpointed part of the model again.
_RAW = "_raw_saved_"


def in_tensor(holder: Any, child: object) -> Iterator[Reference]:
    """Name the graph, the gradient, the base of a view and the hooks."""
    with no_torch_functions(), warnings.catch_warnings():
        # .grad of a tensor that is no leaf warns; one that retains its gradient answers all the same
        warnings.simplefilter("ignore")
        hidden = ("_base", "grad") if is_tensor(child) else ("grad_fn",)
        found = [*among(holder, child, _HOOK_ATTRIBUTES), *among(holder, child, hidden, "hidden")]
    yield from found


def in_node(holder: Any, child: object) -> Iterator[Reference]:
    """Name the nodes that come next in backward, the leaf, and what is saved for backward."""
    kind = type(holder)
    yield from among(holder, child, ("variable",), "hidden")
    yield from among(holder, child, _NODE_ATTRIBUTES)
    if type(child) is dict:
        # Asking a node for it that has none leaves an empty dict on the node.
        yield from among(holder, child, ("metadata",), "hidden")
    if type(child) is collections.OrderedDict:
        yield from _hooks(holder, child)
    # Reading them wraps every input of the node for good: only for a node, to whom they have been read before.
    following = read(holder, "next_functions") if is_node(type(child)) else ()
    for index, pair in enumerate(following if type(following) is tuple else ()):
        if pair[0] is child:
            text = f".next_functions[{index}][0]"
            yield Reference(text, text, ".next_functions[*][0]", "hidden")
    for name in sorted(_raw_names(kind)):
        yield from _saved(holder, name, child)


def _hooks(node: Any, child: Any) -> Iterator[Reference]:
    """Name *child* as hooks that *node* owns: by asking it, and if it is no dict of its own as those of its tensor."""
    own = [in_words(words, "hidden") for _, hooks, words in node_hooks([node]) if hooks is child]
    yield from own
    if not own and all(type(key) is int for key in keys_in(child)):
        yield in_words(TENSOR_HOOKS, "hidden")


def _raw_names(kind: type) -> set[str]:
    return {name for each in mro_of(kind) for name in class_dict(each) if type(name) is str and name.startswith(_RAW)}


def _saved(node: Any, name: str, child: object) -> Iterator[Reference]:
    """Name *child* where it is saved under *name*: a tensor, what a hook packed, or the hook that unpacks it."""
    saved = read(node, name)
    many = type(saved) is tuple or type(saved) is list
    evaluable = is_evaluable(type(node), name, c_descriptor(type(node), name))
    variables: Any = saved if many else (saved,)
    for index, variable in enumerate(variables):
        word = name.removeprefix(_RAW)
        place, words, stable = f".{name}", repr(word), repr(word)
        if many:
            place, words, stable = f"{place}[{index}]", f"{word}[{index}]", f"{word}[*]"
        for attribute, verb in (("data", "saved for backward as"), ("unpack_hook", "unpack hook of")):
            if _read_saved(variable, attribute) is child:
                suffix = f"{place}.{attribute}" if evaluable else None
                yield Reference(f"{verb} {words}", suffix, f"{verb} {stable}", "hidden")
        if _is_pack_hook(child, _read_saved(variable, "unpack_hook")):
            yield Reference(f"pack hook of {words}", None, f"pack hook of {stable}", "hidden")


def _is_pack_hook(child: Any, unpack: Any) -> bool:
    """Return whether *child* came with the hook *unpack*: torch has both, and shows only the other."""
    if child is unpack or not (is_function_type(type(child)) and is_function_type(type(unpack))):
        return False
    return origin_of(child) == origin_of(unpack)


def _read_saved(variable: object, attribute: str) -> object:
    if type_name(type(variable)) != "torch._C._autograd.SavedTensor":
        return MISSING
    try:
        return getattr(variable, attribute)
    except RuntimeError:  # freed by backward
        return MISSING


def is_node(kind: type) -> bool:
    """Return whether *kind* is a type of autograd nodes; those written in C++ share no base class."""
    return c_descriptor(kind, "next_functions") is not MISSING
