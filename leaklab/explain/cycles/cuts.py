"""Find where a cycle is cut best: which of its references to remove, and the Python that does it.

Each rule of the table looks at a reference together with the object before its holder: a function in a dict is a hook
only if a tensor or a node has the dict. The rules stand in the order in which a reader wants their cut.
"""

from __future__ import annotations

import collections
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from leaklab.explain.cycles.region import Region
from leaklab.heap.names import best_reference
from leaklab.heap.names.code import function_words
from leaklab.heap.names.containers import attribute_reference, keys_of
from leaklab.heap.names.reference import Reference, c_descriptor, is_one_of, literal
from leaklab.heap.view import HeapView
from leaklab.model.paths import CycleCut
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_type, type_name
from leaklab.runtime.sparse_graphs import connected_components, csr_array

_Way = tuple[CycleCut, Callable[[], None] | None]
_MAX_CUTS = 1000
_Numbers = npt.NDArray[np.int64]


class CycleJoint(NamedTuple):
    """A reference of a cycle with what comes before it: *before* refers to *holder*, *holder* to *held*."""

    before: Any
    holder: Any
    held: Any


class Offer(NamedTuple):
    """A way to cut one reference: in words, and as a function that does it; None if that is for the user to do.

    The function changes the heap, and both it and *joint* hold the user's objects: they must be dropped soon.
    """

    cut: CycleCut
    perform: Callable[[], None] | None
    joint: CycleJoint


def best_offer(things: Sequence[Any]) -> Offer | None:
    """Return how to cut a cycle best; None if no rule applies to any of its references.

    Args:
        things: The objects of the cycle in order; the last refers to the first.
    """
    # A cycle may be one object that refers to itself.
    joints = [CycleJoint(things[at - 2 % len(things)], things[at - 1], things[at]) for at in range(len(things))]
    for rule in _RULES:
        for joint in joints:
            found = rule(joint)
            if found is not None:
                return Offer(*found, joint)
    return None


def _hook(joint: CycleJoint) -> _Way | None:
    """A tensor or a node, its dict of hooks, a hook."""
    if not is_kind_of(joint.holder, dict) or not (is_tensor(joint.before) or is_node_type(type(joint.before))):
        return None
    keys = [key for key in keys_of(joint.holder, joint.held) if type(key) is int]
    if not keys or type(joint.holder) is not collections.OrderedDict:
        return None
    owner = best_reference(joint.before, joint.holder).text
    name, entry = function_words(joint.held), keys[0]
    if is_tensor(joint.before):
        register = "register_post_accumulate_grad_hook" if owner == "._post_accumulate_grad_hooks" else "register_hook"
        words = f"handle is what tensor.{register}() returned when it took {name}"
    else:
        register = {"pre_hooks": "node.register_prehook", "post_hooks": "node.register_hook"}.get(
            owner.partition(" ")[0], "tensor.register_hook"
        )
        words = f"handle is what {register}() returned when it took {name}; node is a tensor's grad_fn"
    words += "; or let the hook hold what it needs by weakref.ref"
    reference = f"{owner}[{entry}]" if owner.startswith(".") else f"hook {name} in the {owner}"
    hooks = joint.holder
    return (
        CycleCut(reference, "handle.remove()", words, is_safe=True),
        lambda: collections.OrderedDict.__delitem__(hooks, entry),
    )


def _gradient(joint: CycleJoint) -> _Way | None:
    """A tensor, its gradient."""
    tensor = joint.holder
    if not is_tensor(tensor) or best_reference(tensor, joint.held).text != ".grad":
        return None
    words = (
        "tensor is the leaf whose gradient carries the graph that made it: torch.autograd.grad(loss, leaves, "
        "create_graph=True) returns such gradients without storing them"
    )
    base: Any = loaded_type("torch._C", "TensorBase")
    return (
        CycleCut(".grad", "tensor.grad = None", words, is_safe=True),
        lambda: base.__dict__["grad"].__set__(tensor, None),
    )


def _attribute(joint: CycleJoint) -> _Way | None:
    """An object, an attribute: in its dict, in its own array of values, in a slot."""
    if type(joint.holder) is dict and _is_dict_of(joint.before, joint.holder):
        keys = [key for key in keys_of(joint.holder, joint.held) if type(key) is str]
        if not keys:
            return None
        reference, owner = attribute_reference(joint.before, keys[0]), joint.before
        attributes, key = joint.holder, keys[0]
        return _attribute_offer(owner, reference, joint.held, lambda: dict.__delitem__(attributes, key))
    reference = best_reference(joint.holder, joint.held)
    if reference.kind not in ("attribute", "slot") or not _is_of_python(joint.holder):
        return None
    name = reference.text.removeprefix(".")
    descriptor = c_descriptor(type(joint.holder), name)
    owner = joint.holder
    if type(descriptor) is types.MemberDescriptorType and reference.kind == "slot":
        return _attribute_offer(owner, reference, joint.held, lambda: descriptor.__delete__(owner))
    if not name.isidentifier() or name in ("__dict__", "__class__"):
        return None
    return _attribute_offer(owner, reference, joint.held, lambda: object.__delattr__(owner, name))


def _attribute_offer(owner: Any, reference: Reference, held: Any, perform: Callable[[], None]) -> _Way:
    words = f"obj is the {type_name(type(owner))}"
    if is_tensor(held):
        words += f"; or store obj{reference.text} = value.detach(), which carries no graph"
    elif is_tensor(owner):
        words += "; what is attached to a tensor lives as long as its graph: keep it in a dict of your own"
    cut = CycleCut(reference.text, f"del obj{reference.text}", words, is_safe=True)
    return (cut, perform)


def _is_of_python(thing: Any) -> bool:
    """Return whether *thing* may have attributes that somebody gave it: neither class, function nor module."""
    return not is_kind_of(thing, type) and not is_one_of(type(thing), (types.FunctionType, types.ModuleType))


def _is_dict_of(owner: Any, attributes: Any) -> bool:
    return type(owner) is not dict and best_reference(owner, attributes).text == ".__dict__"


def _entry(joint: CycleJoint) -> _Way | None:
    """A dict or a list, an entry."""
    holder: Any = joint.holder
    if is_kind_of(holder, dict):
        keys = [key for key in keys_of(holder, joint.held) if literal(key) is not None]
        if keys and not is_node_type(type(joint.before)):
            key, text = keys[0], literal(keys[0])
            remove = (
                collections.OrderedDict.__delitem__ if is_kind_of(holder, collections.OrderedDict) else dict.__delitem__
            )
            cut = CycleCut(
                f"[{text}]", f"del mapping[{text}]", f"mapping is the {type_name(type(holder))}", is_safe=True
            )
            return (cut, lambda: remove(holder, key))
    elif is_kind_of(holder, list):
        at = next((at for at, item in enumerate(items_in(holder)) if item is joint.held), None)
        if at is not None:
            cut = CycleCut(f"[{at}]", f"items[{at}] = None", f"items is the {type_name(type(holder))}", is_safe=True)
            return (cut, lambda: list.__setitem__(holder, at, None))
    return None


def _array_item(joint: CycleJoint) -> _Way | None:
    """An array of objects, an item."""
    array: Any = joint.holder
    if type(array) is not np.ndarray or array.dtype != np.dtype(object):
        return None
    at = next((at for at, item in enumerate(array.flat) if item is joint.held), None)
    if at is None:
        return None
    cut = CycleCut(f".flat[{at}]", f"array.flat[{at}] = None", "array is the numpy.ndarray of objects", is_safe=True)
    return (cut, lambda: array.flat.__setitem__(at, None))


def _closure(joint: CycleJoint) -> _Way | None:
    """A function's cell, the variable in it."""
    if type(joint.holder) is not types.CellType:
        return None
    words = (
        "ref stands for weakref.ref(value), made before the function and called in it; a hook also gets what it needs "
        "as its argument"
    )
    return (CycleCut("closure variable", "value = ref()", words, is_safe=False), None)


def _saved(joint: CycleJoint) -> _Way | None:
    """A node, what it saved for backward."""
    if not is_node_type(type(joint.holder)):
        return None
    reference = best_reference(joint.holder, joint.held).text
    if not reference.startswith(("saved for backward", "unpack hook")):
        return None
    words = (
        "value is what the pack hook got: returned as it is, it holds the graph that saved it; loss.backward() frees "
        "what is saved as well"
    )
    return (CycleCut(reference, "return value.detach()", words, is_safe=False), None)


_RULES: Final[tuple[Callable[[CycleJoint], _Way | None], ...]] = (
    _hook,
    _gradient,
    _attribute,
    _entry,
    _array_item,
    _closure,
    _saved,
)


def openings(
    view: HeapView, region: Region, component: int, crossing: npt.NDArray[np.bool_]
) -> tuple[list[Offer], bool]:
    """Return references to remove so that no cycle through C++ is left in *component*, not only the cycle shown.

    A model whose parameters all carry a second-order gradient is one component with a cycle per parameter.

    Returns:
        How to cut each of them, nothing done yet; and whether that opens all: a cycle may have no reference that is
        safe to remove.
    """
    positions = region.references_within(component)
    tangle = _Tangle(region.sources[positions], region.targets[positions], crossing[positions])
    offers: list[Offer] = []
    is_open = True
    while len(offers) < _MAX_CUTS:
        cycle = tangle.cycle()
        if not cycle:
            return offers, is_open
        things = [view.objects[int(region.vertices[place])] for place in cycle]
        offer = best_offer(things)
        if offer is None or offer.perform is None:
            is_open = False
            tangle.remove(cycle[0], cycle[1 % len(cycle)])
            continue
        at = next(at for at, thing in enumerate(things) if thing is offer.joint.held)
        tangle.remove(cycle[at - 1], cycle[at])
        offers.append(offer)
    return offers, False


class _Tangle:
    """The references within a component, of which some are taken away."""

    def __init__(self, sources: _Numbers, targets: _Numbers, crossing: npt.NDArray[np.bool_]) -> None:
        places, ends = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        self._places = places
        self._sources, self._targets = ends[: len(sources)], ends[len(sources) :]
        self._crossing = crossing

    def remove(self, source: int, target: int) -> None:
        """Take away the references from one place to another."""
        first, second = np.searchsorted(self._places, [source, target])
        kept = (self._sources != first) | (self._targets != second)
        self._sources, self._targets = self._sources[kept], self._targets[kept]
        self._crossing = self._crossing[kept]

    def cycle(self) -> list[int]:
        """Return the places of a short cycle whose first reference crosses C++; empty if there is none."""
        size = len(self._places)
        ones = np.ones(len(self._sources), np.int8)
        graph = csr_array((ones, (self._sources, self._targets)), shape=(size, size))
        _count, part = connected_components(graph, connection="strong")
        inner = part[self._sources] == part[self._targets]
        chosen = np.flatnonzero(self._crossing & inner)
        if not len(chosen):
            return []
        source, target = int(self._sources[chosen[0]]), int(self._targets[chosen[0]])
        followers: dict[int, list[int]] = {}
        for one, other in zip(self._sources[inner].tolist(), self._targets[inner].tolist(), strict=True):
            followers.setdefault(one, []).append(other)
        return [int(self._places[place]) for place in _way_back(followers, source, target)]


def _way_back(followers: dict[int, list[int]], source: int, target: int) -> list[int]:
    """Return the shortest cycle that begins with the reference from *source* to *target*."""
    before = {target: source}
    queue = deque([target])
    while source not in before:
        place = queue.popleft()
        for after in followers.get(place, ()):
            if after not in before:
                before[after] = place
                queue.append(after)
    cycle = [source]
    while (place := before[cycle[-1]]) != source:
        cycle.append(place)
    return [source, *reversed(cycle[1:])]
