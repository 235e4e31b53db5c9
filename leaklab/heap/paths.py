"""Describe a path of live objects: references named and folded, expressions, a fingerprint."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import threading
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leaklab.heap.names import Namer, best_reference, name_references
from leaklab.heap.names.code import code_words, function_words
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
from leaklab.heap.roles import Role, roles_of
from leaklab.heap.source_lines import running_cell_name
from leaklab.model import RootPath, Status, Step
from leaklab.runtime.containers import CONTEXT_HERE, CONTEXT_NODES
from leaklab.runtime.objects import has_base, is_kind_of, loaded_type, summary, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

N_HEX_DIGITS = 12
_CHANGING = (
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x"),  # addresses
    (re.compile(r"<locals>\."), ""),
    (re.compile(r"Cell In ?\[\d+\]"), "Cell In[*]"),  # what IPython 8 and 9 call a cell in tracebacks
    (re.compile(r"<ipython-input-[^>]*>"), "<ipython-input>"),  # and IPython 7
    (re.compile(r"\S*ipykernel_\d+\S*?\.py"), "<ipykernel>"),  # the file that ipykernel pretends a cell to be
    (re.compile(r"(?<![\w'\"])(_i{0,3})\d+\b"), r"\1*"),  # _12 and _i12, IPython's names for outputs and inputs
    (re.compile(r"\b(In|Out)\[\d+\]"), r"\1[*]"),
    (re.compile(r"\b(Thread|Task|Dummy|MainThread)-\d+"), r"\1-*"),
)
_MODULE_TABLES = ("._parameters", "._buffers", "._modules")
_JOINED = (".args", ".keywords", ".f_locals")
_FRAMES = (".gi_frame", ".cr_frame", ".ag_frame")
_NAMESPACE_SUFFIX = ".__dict__"
_INTO_GRAPH = re.compile(r"\.(grad_fn|next_functions|variable|_saved|_raw_saved)")
_LOCAL = re.compile(r"local '(.+)' of (.+)")


@dataclass(frozen=True, slots=True)
class Described:
    """A path as a record, with what cannot be read off the record.

    Attributes:
        path: Root and steps.
        expressions: For each step, Python that evaluates to its object; None from the first reference on that
            Python cannot write.
        stable: For each step, its reference as a fingerprint may contain it.
        positions: For each step, which of the objects given it is.
        roles: For each step, the parts that its object plays in keeping others alive.
    """

    path: RootPath
    expressions: tuple[str | None, ...]
    stable: tuple[str, ...]
    positions: tuple[int, ...]
    roles: tuple[frozenset[Role], ...] = ()

    @property
    def graph_owner(self) -> Described | None:
        """The path to the tensor from which this one enters an autograd graph; None if it enters none.

        The hops below are many, and to evaluate them would unpack what is saved.
        """
        into = next((i for i, step in enumerate(self.path.steps) if _INTO_GRAPH.match(step.reference)), 0)
        return self.up_to(into) if into else None

    def up_to(self, n_steps: int) -> Described:
        """Return the first *n_steps* of the path."""
        path = RootPath(self.path.root, self.path.steps[:n_steps])
        shorter = self.expressions[:n_steps], self.stable[:n_steps], self.positions[:n_steps], self.roles[:n_steps]
        return Described(path, *shorter)

    @property
    def code(self) -> str:
        """Python for the last object; for what a local variable of a function leads to, Python inside of that function.

        Empty where Python has no way. Inside of a graph it is Python for the tensor that carries the graph.
        """
        if (owner := self.graph_owner) is not None:
            return owner.code
        if self.expressions and self.expressions[-1]:
            return self.expressions[-1]
        name, *below = [step.reference for step in self.path.steps] or [""]
        local = _LOCAL.fullmatch(name)
        is_python = local is not None and all(reference.startswith((".", "[")) for reference in below)
        return "".join((local[1], *below)) if local is not None and is_python else ""

    @property
    def name(self) -> str:
        """What a person calls the last object: its code, with the function it is local to; words where it has none."""
        steps = self.path.steps
        if not steps:
            return self.path.root
        if (owner := self.graph_owner) is not None:
            return f"the graph of {owner.name}"
        if self.expressions[-1]:
            return self.expressions[-1]
        local = _LOCAL.fullmatch(steps[0].reference)
        if code := self.code:
            return f"{code} in {local[2]}" if local is not None else code
        known = next(filter(None, reversed(self.expressions)), None) or (
            f"{local[1]} in {local[2]}" if local is not None else self.path.root
        )
        kind = steps[-1].kind.rpartition(".")[2]
        return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind} in {known}"


def describe_path(
    objects: Sequence[object],
    root: str,
    expression: str | None,
    statuses: Sequence[Status],
    notes: Sequence[str] = (),
    *,
    summaries: bool = True,
    name_key: Callable[[int], str] | None = None,
    name: Namer = best_reference,
) -> Described:
    """Name the references along *objects*.

    Args:
        objects: Root first; each refers to the next.
        root: What the path starts from, in words: ``notebook variable``.
        expression: Python for ``objects[0]``: ``""`` if it is the dict in which expressions are evaluated,
            ``ctypes`` for a module, ``ctypes.__dict__`` for its dict; None if there is none. A namespace, a module
            and a frame are no steps of the path, its first step is the variable in them; anything else is a step.
        statuses: One for each object.
        notes: One for each object, or none at all. Folded objects lose theirs unless the step has none.
        summaries: Whether steps may show shapes and lengths.
        name_key: Returns Python for the object under which a dict has ``objects[n]``; empty where there is none.
        name: As for `fold`.
    """
    hops = [_by_named_key(hop, name_key) for hop in fold(objects, name)]
    start = Hop(_root_reference(objects[0], expression), 0)
    if hops and _is_namespace(objects[0], expression):
        first = hops[0]
        start = Hop(_first_reference(objects[0], objects[first.end], expression, first.reference), first.end)
        hops = hops[1:]
    steps: list[Step] = []
    expressions: list[str | None] = []
    previous, current, of_thread = -1, "" if start.reference.suffix else None, ""
    for reference, end in [start, *hops]:
        steps.append(
            Step(
                reference.text,
                type_name(type(objects[end])),
                summary_of(objects[end]) if summaries else "",
                _merged_status(statuses[previous + 1 : end + 1]),
                next(filter(None, reversed(notes[previous + 1 : end + 1])), ""),
            )
        )
        local = expressions[-2] if len(expressions) > 1 else None
        if local and previous > 0 and _is_of_this_thread(objects[end], objects[previous], objects[previous - 1]):
            current = of_thread = f"{local}.__dict__"
        else:
            current = _joined_expression(current, reference.suffix)
            current = _attribute_of(of_thread, current) if of_thread and current else current
        expressions.append(current)
        previous = end
    every = [start, *hops]
    return Described(
        RootPath(root, tuple(steps)),
        tuple(expressions),
        tuple(hop.reference.stable for hop in every),
        tuple(hop.end for hop in every),
        roles_of([objects[hop.end] for hop in every], [hop.reference for hop in every]),
    )


def summary_of(thing: object) -> str:
    """Return a few words on *thing*: of what is bound or partial, which function it calls."""
    if is_kind_of(thing, functools.partial) or type(thing) is types.MethodType:
        return f"of {function_words(thing)}"
    return summary(thing)


def _is_of_this_thread(values: Any, table: object, local: Any) -> bool:
    """Return whether *values* are what *local* has in *table* for the thread that asks."""
    if type(local) is not threading.local or type(table) is not dict or type(values) is not dict:
        return False
    return local.__dict__ is values


def _attribute_of(table: str, expression: str) -> str:
    """Return *expression* with what it reads from *table*, the dict of an object, written as an attribute."""
    owner = table.removesuffix(_NAMESPACE_SUFFIX)
    return re.sub(rf"\A{re.escape(table)}\['([^\W\d]\w*)'\]", rf"{owner}.\1", expression)


def _joined_expression(expression: str | None, suffix: str | None) -> str | None:
    if expression is None or suffix is None:
        return None
    if expression == CONTEXT_HERE and suffix:
        return f"{suffix[1:-1]}.get()"  # as everybody writes it
    return expression + suffix


def _merged_status(statuses: Sequence[Status]) -> Status:
    """Return the status of a step from those of the objects folded into it, its own last.

    A folded object holds nothing but this step, so what is known of it stands for the step if nothing else does.
    """
    own = statuses[-1]
    if own is Status.UNKNOWN and Status.LEAKED in statuses:
        return Status.LEAKED
    return own


def _is_namespace(thing: object, expression: str | None) -> bool:
    if type(thing) is types.ModuleType or type(thing) is types.FrameType:
        return True
    is_dict_of_names = expression is not None and (not expression or expression.endswith(_NAMESPACE_SUFFIX))
    return type(thing) is dict and is_dict_of_names


def _by_named_key(hop: Hop, name_key: Callable[[int], str] | None) -> Hop:
    if name_key is None or hop.reference.suffix is not None or hop.reference.kind != "key":
        return hop
    name = name_key(hop.end)
    return Hop(dataclasses.replace(hop.reference, text=f"[{name}]", suffix=f"[{name}]"), hop.end) if name else hop


def _root_reference(thing: object, expression: str | None) -> Reference:
    text = expression or ""
    return Reference(text, expression or None, text or type_name(type(thing)), "other")


def _first_reference(namespace: Any, child: object, expression: str | None, reference: Reference) -> Reference:
    """Return the reference of the first step: the expression for a variable in *namespace*."""
    if type(namespace) is types.FrameType or expression is None:
        suffix = _joined_expression(expression, reference.suffix)
        return Reference(reference.text, suffix, reference.stable, reference.kind)
    keys = keys_of(namespace, child) if type(namespace) is dict else []
    if not keys or not is_name(keys[0]):
        full = _joined_expression(expression or None, reference.suffix)
        return Reference(full or reference.text, full, expression + reference.stable, reference.kind)
    prefix = expression.removesuffix(_NAMESPACE_SUFFIX)
    name = f"{prefix}.{keys[0]}" if prefix else str(keys[0])
    return Reference(name, name, stable_text(name), "attribute")


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


def stable_text(text: str) -> str:
    """Return *text* without addresses and without the numbers that IPython, threads and tasks count up."""
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


def fingerprint(parts: Sequence[str]) -> str:
    """Return 12 hexadecimal digits, the same for the same *parts*: their order counts, running numbers do not."""
    # A separator that no part contains: ("a", "bc") and ("ab", "c") are two different paths.
    joined = "\0".join(stable_text(part) for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:N_HEX_DIGITS]


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


def place_of(function: object) -> str:
    """Return ``<lambda> at Cell In[7], line 3``; empty for what has no code in Python."""
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType:
        return ""
    code = function.__code__
    file = running_cell_name(code.co_filename) or code.co_filename
    return f"{code_words(code)} at {file}, line {code.co_firstlineno}"
