"""Describe a path of live objects: references named and folded, expressions, a fingerprint."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import threading
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaklab.heap.folding import Hop, fold
from leaklab.heap.names import Namer, best_reference
from leaklab.heap.names.code import code_words, function_words
from leaklab.heap.names.containers import keys_of
from leaklab.heap.names.reference import Reference, is_name
from leaklab.heap.roles import Role, roles_of
from leaklab.heap.source_lines import running_cell_name
from leaklab.model import RootPath, Status, Step
from leaklab.runtime.containers import CONTEXT_HERE
from leaklab.runtime.objects import is_kind_of, summary, type_name
from leaklab.text import with_article

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
        local, below = self._innermost_local()
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
        local, _below = self._innermost_local()
        if code := self.code:
            return f"{code} in {local[2]}" if local is not None else code
        known = next(filter(None, reversed(self.expressions)), None) or (
            f"{local[1]} in {local[2]}" if local is not None else self.path.root
        )
        if steps[-1].reference.startswith(".") and len(steps) > 1:
            return f"{steps[-1].reference} of {with_article(steps[-2].kind)} in {known}"
        return f"{with_article(steps[-1].kind)} in {known}"

    def _innermost_local(self) -> tuple[re.Match[str] | None, list[str]]:
        """Return the last reference that is a local variable of a function, and the references behind it."""
        references = [step.reference for step in self.path.steps]
        for place in reversed(range(len(references))):
            if local := _LOCAL.fullmatch(references[place]):
                return local, references[place + 1 :]
        return None, []


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


def place_of(function: object) -> str:
    """Return ``<lambda> at Cell In[7], line 3``; empty for what has no code in Python."""
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType:
        return ""
    code = function.__code__
    file = running_cell_name(code.co_filename) or code.co_filename
    return f"{code_words(code)} at {file}, line {code.co_firstlineno}"
