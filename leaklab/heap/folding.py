"""Fold the references of a path into the steps that a person would write: ``model.fc1``, not ``._modules['fc1']``."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leaklab.heap.names import Namer, best_reference, name_references
from leaklab.heap.names.code import function_words
from leaklab.heap.names.containers import attribute_reference, keys_of
from leaklab.heap.names.reference import (
    MISSING,
    Reference,
    by_attribute,
    by_index,
    by_key,
    in_words,
    is_name,
    is_one_of,
    literal,
    look_up,
)
from leaklab.runtime.containers import CONTEXT_NODES
from leaklab.runtime.objects import has_base, is_kind_of, loaded_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MODULE_TABLES = ("._parameters", "._buffers", "._modules")
_JOINED = (".args", ".keywords", ".f_locals")
_FRAMES = (".gi_frame", ".cr_frame", ".ag_frame")


class Hop(NamedTuple):
    """A reference, and the position of the object it leads to among the objects of the path."""

    reference: Reference
    end: int


class PathJoint(NamedTuple):
    """Two references in a row and the objects they join."""

    holder: Any
    first: Reference
    middle: Any
    second: Reference
    child: Any


def fold(objects: Sequence[object], name: Namer = best_reference) -> list[Hop]:
    """Name the references between consecutive *objects*, and fold those that programmers write as one.

    Instance, ``__dict__``, value becomes ``.attribute``. Each rule looks at two references in a row and the three
    objects that they join; it returns the one reference from the first object to the third, or None. Rules are applied
    until none fits: function, closure tuple, cell, value folds in two steps to ``closure variable 'mask' of <lambda>``.
    *name* names the reference from one object to the next.
    """
    hops: list[Hop] = []
    for end in range(1, len(objects)):
        hops.append(Hop(name(objects[end - 1], objects[end]), end))
        while len(hops) > 1:
            start = hops[-3].end if len(hops) > 2 else 0  # noqa: PLR2004 - the hop before the two that may be folded
            joint = PathJoint(
                objects[start], hops[-2].reference, objects[hops[-2].end], hops[-1].reference, objects[hops[-1].end]
            )
            folded = next(filter(None, (rule(joint) for rule in _RULES)), None)
            if folded is None:
                break
            hops[-2:] = [Hop(folded, end)]
    return hops


def _attribute(joint: PathJoint) -> Reference | None:
    """Instance, class, module or function, its ``__dict__``, a value."""
    if joint.first.text != ".__dict__" or type(joint.middle) is not dict:
        return None
    keys = keys_of(joint.middle, joint.child)
    return attribute_reference(joint.holder, keys[0]) if keys else None


def _part_of_module(joint: PathJoint) -> Reference | None:
    """``torch.nn.Module``, one of its tables, a parameter, buffer or module."""
    module_type = loaded_type("torch.nn", "Module")
    if joint.first.text not in _MODULE_TABLES or module_type is None or not is_kind_of(joint.holder, module_type):
        return None
    keys = keys_of(joint.middle, joint.child) if is_kind_of(joint.middle, dict) else []
    if not keys or type(keys[0]) is not str:
        return None
    name, kind = keys[0], type(joint.holder)
    if joint.first.text == "._modules" and _is_torchs(kind, "Sequential", "ModuleList") and name.isdecimal():
        return by_index(int(name))
    if _is_torchs(kind, "ParameterList") and name.isdecimal():
        return by_index(int(name))
    if joint.first.text == "._modules" and _is_torchs(kind, "ModuleDict") and literal(name):
        return by_key(name, f"[{literal(name)}]")
    is_reachable = look_up(kind, name) is MISSING
    return by_attribute(name) if is_name(name) and is_reachable and shows_parts(kind) else None


def shows_parts(kind: type) -> bool:
    """Return whether *kind* is a ``torch.nn.Module`` whose parameters are found as its attributes."""
    module = loaded_type("torch.nn", "Module")
    return (
        module is not None and has_base(kind, module) and look_up(kind, "__getattr__") is look_up(module, "__getattr__")
    )


def _is_torchs(kind: type, *names: str) -> bool:
    """Return whether *kind* is one of these classes of ``torch.nn``, not a subclass with methods of its own."""
    return any(kind is loaded_type("torch.nn", name) for name in names)


def _closure_cell(joint: PathJoint) -> Reference | None:
    """Function, tuple of cells, a cell."""
    if type(joint.holder) is not types.FunctionType or joint.first.text != ".__closure__":
        return None
    names = joint.holder.__code__.co_freevars
    for index, (name, cell) in enumerate(zip(names, joint.middle, strict=False)):
        if cell is joint.child:
            words = f"closure variable {name!r} of {function_words(joint.holder)}"
            return in_words(words, "closure", f".__closure__[{index}]")
    return None


def _cell_contents(joint: PathJoint) -> Reference | None:
    """Something that holds a cell by the name of a variable, the cell, its value."""
    if type(joint.middle) is not types.CellType or joint.first.kind not in ("closure", "frame-local"):
        return None
    if joint.first.suffix is not None:
        return dataclasses.replace(joint.first, suffix=joint.first.suffix + ".cell_contents")
    direct = (name for name in name_references(joint.holder, joint.child) if name.text == joint.first.text)
    return next(direct, joint.first)


def _default(joint: PathJoint) -> Reference | None:
    """Function, tuple or dict of default values, a value."""
    if type(joint.holder) is not types.FunctionType or joint.second.suffix is None:
        return None
    if joint.first.text == ".__kwdefaults__":
        name = keys_of(joint.middle, joint.child)[0]
    elif joint.first.text == ".__defaults__":
        code, index = joint.holder.__code__, int(joint.second.suffix[1:-1])
        name = code.co_varnames[code.co_argcount - len(joint.middle) + index]
    else:
        return None
    words = f"default of {name!r} of {function_words(joint.holder)}"
    return in_words(words, "default", f"{joint.first.text}{joint.second.suffix}")


def _joined_arguments(joint: PathJoint) -> Reference | None:
    """Arguments of a partial or an exception, an item: one name after the other."""
    is_arguments = is_kind_of(joint.holder, BaseException) or is_kind_of(joint.holder, functools.partial)
    if joint.first.text not in _JOINED or joint.second.suffix is None or not is_arguments:
        return None
    return Reference(
        joint.first.text + joint.second.text,
        None if joint.first.suffix is None else joint.first.suffix + joint.second.suffix,
        joint.first.stable + joint.second.stable,
        joint.first.kind,
    )


def _local_of_generator(joint: PathJoint) -> Reference | None:
    """Generator or coroutine, its frame, a local variable."""
    if joint.first.text not in _FRAMES or joint.second.kind != "frame-local":
        return None
    known = joint.second.suffix is not None and joint.first.suffix is not None
    suffix = f"{joint.first.suffix}{joint.second.suffix}" if known else None
    return dataclasses.replace(joint.second, suffix=suffix)


def _inside_context(joint: PathJoint) -> Reference | None:
    """A context or a node of its mapping, another node, whatever that one holds."""
    return joint.second if is_one_of(type(joint.middle), CONTEXT_NODES) else None


def _through_words(joint: PathJoint) -> Reference | None:
    """Things that CPython puts between a holder and what it holds for the programmer."""
    if joint.first.text == "buffer" and type(joint.holder) is memoryview:
        return next(iter(name_references(joint.holder, joint.child)), None)
    if joint.first.text == "cache":
        return in_words("cached result", "element")
    if joint.first.text == "queued item" and type(joint.middle) is list:
        return joint.first
    return None


_RULES: Final[tuple[Callable[[PathJoint], Reference | None], ...]] = (
    _attribute,
    _part_of_module,
    _closure_cell,
    _cell_contents,
    _default,
    _joined_arguments,
    _local_of_generator,
    _inside_context,
    _through_words,
)
