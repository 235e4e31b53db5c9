"""Fold references that Python programmers write as one: instance, ``__dict__``, value becomes ``.attribute``.

Each rule looks at two references in a row and the three objects they join; it answers with the one reference that
leads from the first object to the third, or with None. Rules are applied until none fits, so that function, closure
tuple, cell, value folds in two steps to ``closure variable 'mask' of <lambda>``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leaklab.explain.references import Reference, best_reference, name_references
from leaklab.explain.references.containers import keys_of
from leaklab.explain.references.descriptors import MISSING, is_one_of, look_up
from leaklab.explain.references.functions import function_words
from leaklab.explain.references.instances import attribute_reference
from leaklab.explain.references.opaque import CONTEXT_NODES
from leaklab.explain.references.record import by_attribute, by_index, by_key, in_words, is_name, literal
from leaklab.objects import is_kind_of, loaded_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MODULE_TABLES = ("._parameters", "._buffers", "._modules")
_JOINED = (".args", ".keywords", ".f_locals")
_FRAMES = (".gi_frame", ".cr_frame", ".ag_frame")


class Hop(NamedTuple):
    """A reference, and the position of the object it leads to among the objects of the path."""

    reference: Reference
    end: int


class Joint(NamedTuple):
    """Two references in a row and the objects they join."""

    holder: Any
    first: Reference
    middle: Any
    second: Reference
    child: Any


def fold(objects: Sequence[object]) -> list[Hop]:
    """Name the references between consecutive *objects* and fold those that belong together."""
    hops: list[Hop] = []
    for end in range(1, len(objects)):
        hops.append(Hop(best_reference(objects[end - 1], objects[end]), end))
        while len(hops) > 1:
            start = hops[-3].end if len(hops) > 2 else 0  # noqa: PLR2004 - the hop before the two that may be folded
            joint = Joint(
                objects[start], hops[-2].reference, objects[hops[-2].end], hops[-1].reference, objects[hops[-1].end]
            )
            folded = next(filter(None, (rule(joint) for rule in _RULES)), None)
            if folded is None:
                break
            hops[-2:] = [Hop(folded, end)]
    return hops


def _attribute(joint: Joint) -> Reference | None:
    """Instance, class, module or function, its ``__dict__``, a value."""
    if joint.first.text != ".__dict__" or type(joint.middle) is not dict:
        return None
    keys = keys_of(joint.middle, joint.child)
    return attribute_reference(joint.holder, keys[0]) if keys else None


def _part_of_module(joint: Joint) -> Reference | None:
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
    if joint.first.text == "._modules" and _is_torchs(kind, "ModuleDict") and literal(name):
        return by_key(name, f"[{literal(name)}]")
    is_reachable = look_up(kind, name) is MISSING
    is_torchs = look_up(kind, "__getattr__") is look_up(module_type, "__getattr__")
    return by_attribute(name) if is_name(name) and is_reachable and is_torchs else None


def _is_torchs(kind: type, *names: str) -> bool:
    """Return whether *kind* is one of these classes of ``torch.nn``, not a subclass with methods of its own."""
    return any(kind is loaded_type("torch.nn", name) for name in names)


def _closure_cell(joint: Joint) -> Reference | None:
    """Function, tuple of cells, a cell."""
    if type(joint.holder) is not types.FunctionType or joint.first.text != ".__closure__":
        return None
    names = joint.holder.__code__.co_freevars
    for index, (name, cell) in enumerate(zip(names, joint.middle, strict=False)):
        if cell is joint.child:
            words = f"closure variable {name!r} of {function_words(joint.holder)}"
            return in_words(words, "closure", f".__closure__[{index}]")
    return None


def _cell_contents(joint: Joint) -> Reference | None:
    """Something that holds a cell by the name of a variable, the cell, its value."""
    if type(joint.middle) is not types.CellType or joint.first.kind not in ("closure", "frame-local"):
        return None
    if joint.first.suffix is not None:
        return dataclasses.replace(joint.first, suffix=joint.first.suffix + ".cell_contents")
    direct = (name for name in name_references(joint.holder, joint.child) if name.text == joint.first.text)
    return next(direct, joint.first)


def _default(joint: Joint) -> Reference | None:
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


def _joined(joint: Joint) -> Reference | None:
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


def _local_of_generator(joint: Joint) -> Reference | None:
    """Generator or coroutine, its frame, a local variable."""
    if joint.first.text not in _FRAMES or joint.second.kind != "frame-local":
        return None
    known = joint.second.suffix is not None and joint.first.suffix is not None
    suffix = f"{joint.first.suffix}{joint.second.suffix}" if known else None
    return dataclasses.replace(joint.second, suffix=suffix)


def _inside_context(joint: Joint) -> Reference | None:
    """A context or a node of its mapping, another node, whatever that one holds."""
    return joint.second if is_one_of(type(joint.middle), CONTEXT_NODES) else None


def _through_words(joint: Joint) -> Reference | None:
    """Things that CPython puts between a holder and what it holds for the programmer."""
    if joint.first.text == "buffer" and type(joint.holder) is memoryview:
        return next(iter(name_references(joint.holder, joint.child)), None)
    if joint.first.text == "cache":
        return in_words("cached result", "element")
    if joint.first.text == "queued item" and type(joint.middle) is list:
        return joint.first
    return None


_RULES: Final[tuple[Callable[[Joint], Reference | None], ...]] = (
    _attribute,
    _part_of_module,
    _closure_cell,
    _cell_contents,
    _default,
    _joined,
    _local_of_generator,
    _inside_context,
    _through_words,
)
