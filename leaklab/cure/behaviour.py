"""Tell whether a changed program still does what it did: parameters learn, variables have the types that they had."""

from __future__ import annotations

import ast
import builtins
import io
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from types import FrameType
from typing import Any

import numpy as np

from leaklab.cure.edits import statements_in
from leaklab.cure.judging import Heap
from leaklab.heap.source_lines import ADDING
from leaklab.model.cure import Change
from leaklab.runtime.addresses import kinds_of, types_at
from leaklab.runtime.objects import (
    LRU_CACHE,
    has_base,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.ours import Origin, is_history_name, origin_of
from leaklab.text import format_rate, shorten, unit_words

_N_SAMPLED = 64
"""So many numbers of a gradient are read to see whether it was written, and with which values."""
_UNREADABLE = (RuntimeError, NotImplementedError, TypeError)
"""What torch raises for a tensor without strides, without memory, or of inference."""
_SAME, _NOTHING = 1e-4, 1e-12
"""Two gradients that differ by less, of themselves or at all, are the same: sums in another order round otherwise."""


@dataclass(frozen=True, slots=True)
class Learning:
    """What some runs did to one parameter.

    Attributes:
        has_gradient: Whether it has a gradient now.
        was_given: Whether that was written meanwhile.
        was_updated: Whether the parameter was written meanwhile; not where another one took its place.
        other_name: By which the same parameter is found where no variable leads to it any more; empty if none.
        was_replaced: Whether a variable led to it before, and none does now.
    """

    has_gradient: bool
    was_given: bool
    was_updated: bool
    other_name: str = ""
    was_replaced: bool = False


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What some runs did.

    Attributes:
        parameters: By a name that is the same in the next trial.
        variables: Of each variable of the program its type, and whether it takes part in a graph.
        computed: By the address of a `functools.lru_cache` how many results it computed in these runs, in one of them
            where it has been emptied.
        was_emptied: The addresses of those that have been emptied.
        called: The functions that one run called, by file and name; empty where nobody looked.
        gradients: Of each parameter that had a gradient then, what sampled numbers of it added up to after the first
            runs, one figure a run.
        uncaught: The names of what threads have raised and nobody has caught.
        printed: What the second run printed, line by line: the first with what a run before it has left.
    """

    parameters: Mapping[str, Learning]
    variables: Mapping[str, tuple[str, bool]]
    computed: Mapping[int, int]
    was_emptied: frozenset[int]
    called: frozenset[str] = frozenset()
    gradients: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    uncaught: frozenset[str] = frozenset()
    printed: tuple[str, ...] = ()


class Observer:
    """Watches the parameters and the variables of a program while it runs.

    What is not there when the runs begin is not watched: a variable that each run binds under a name of its own
    (``model_75``), and a parameter that it adds, are what a change may end.
    """

    def __init__(self, heap: Heap, namespace: Mapping[str, Any]) -> None:
        self._heap, self._namespace = heap, namespace
        self._known = _found(heap, loaded_type("torch.nn", "Parameter"))
        self._caches = _found(heap, LRU_CACHE)
        self._n_asked = {id(cache): _n_asked(cache) for cache in self._living_caches()}
        self._n_computed: dict[int, int] = {}
        self._names: frozenset[str] = frozenset()
        self._named: set[int] = set()
        self._before: dict[str, tuple[object, object, Callable[[], object]]] = {}
        self._gradients: dict[str, tuple[float, ...]] = {}

    def look_again(self) -> None:
        """Watch the parameters as well that have been made since: cells that are run again make models anew."""
        known = {id(parameter) for parameter in (reference() for reference in self._known) if parameter is not None}
        found = _found(self._heap, loaded_type("torch.nn", "Parameter"))
        self._known += [reference for reference in found if id(reference()) not in known]

    def begin(self) -> None:
        """Note how every parameter is, before the runs."""
        self._names = frozenset(name for name in list(self._namespace) if not is_history_name(name))
        self._before = {name: (_mark(p), _mark(_gradient(p)), weakref.ref(p)) for name, p in self._parameters()}
        self._named = {id(p) for name, p in self._parameters() if not name.startswith(_UNNAMED)}
        self._n_computed = {id(cache): _info(cache).misses for cache in self._living_caches()}

    def note_gradients(self) -> None:
        """Note the gradients that a run has left: in copies of one process they are the same, run by run."""
        for name, parameter in self._parameters():
            gradient = _gradient(parameter)
            if gradient is not None:
                self._gradients[name] = (*self._gradients.get(name, ()), _weight(gradient))

    def end(self) -> Behaviour:
        """Return what the runs since `begin` did."""
        parameters = {}
        living = ((position, reference()) for position, reference in enumerate(self._known))
        others = {id(one): _unnamed(position) for position, one in living if one is not None}
        named = {id(parameter) for name, parameter in self._parameters() if not name.startswith(_UNNAMED)}
        for name, parameter in self._parameters():
            gradient = _gradient(parameter)
            if name not in self._before:
                continue
            was = self._before[name]
            now = _mark(parameter), _mark(gradient)
            other = others.get(id(parameter), "")
            is_updated = now[0] != was[0] and was[2]() is parameter
            is_replaced = id(parameter) in self._named and id(parameter) not in named
            parameters[name] = Learning(gradient is not None, now[1] != was[1], is_updated, other, is_replaced)
        variables = {
            name: (type_name(type(value)), _is_in_graph(value))
            for name, value in list(self._namespace.items())
            if name in self._names
        }
        caches = {id(cache): cache for cache in self._living_caches()}
        emptied = frozenset(one for one, cache in caches.items() if _n_asked(cache) < self._n_asked.get(one, 0))
        computed = {
            one: _info(cache).misses - (0 if one in emptied else self._n_computed.get(one, 0))
            for one, cache in caches.items()
        }
        return Behaviour(parameters, variables, computed, emptied, gradients=self._gradients)

    def _living_caches(self) -> Iterator[Any]:
        return (cache for cache in (reference() for reference in self._caches) if cache is not None)

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield those of the modules that are variables, by name, and all that there were from the beginning."""
        module = loaded_type("torch.nn", "Module")
        if module is None:
            return
        for name, value in list(self._namespace.items()):
            if name not in self._names:
                continue
            if is_kind_of(value, module):
                for below, parameter in _named_parameters(value):
                    yield f"{name}.{below}", parameter
            elif _is_in_graph(value) and value.is_leaf:
                yield name, value
        for position, reference in enumerate(self._known):
            parameter = reference()
            if parameter is not None:
                yield _unnamed(position), parameter


_UNNAMED = "parameter "


@contextmanager
def prints_noted(lines: list[str]) -> Iterator[None]:
    """Note in *lines* what is printed inside, in place of it: for a copy of the process, which has no screen."""
    own = builtins.print

    def noted(*values: object, sep: str | None = None, end: str | None = None, file: Any = None, **more: Any) -> None:
        if file is not None and file is not sys.stdout:
            own(*values, sep=sep, end=end, file=file, **more)
        elif len(lines) < _MOST_LINES:
            text = io.StringIO()
            own(*values, sep=sep, end=end, file=text)
            lines.extend(line[:_MOST_CHARACTERS] for line in text.getvalue().splitlines()[:_MOST_LINES])

    builtins.print = noted
    try:
        yield
    finally:
        builtins.print = own


def other_print(before: Behaviour, after: Behaviour) -> str:
    """Return in one clause what the changed program prints that the one *before* did not; empty if nothing."""
    for was, now in zip_longest(before.printed, after.printed):
        if was != now:
            where = "prints nothing" if now is None else f'prints "{shorten(now, _LONGEST_LINE)}"'
            return f"{where} instead of " + ("nothing" if was is None else f'"{shorten(was, _LONGEST_LINE)}"')
    return ""


_MOST_LINES, _MOST_CHARACTERS, _LONGEST_LINE = 64, 1_000, 60


def _unnamed(position: int) -> str:
    return f"{_UNNAMED}{position}"


def _found(heap: Heap, kind: type | None) -> list[weakref.ref[Any]]:
    """Return every object of *kind* and its subclasses."""
    if kind is None:
        return []
    with heap() as objects:
        kinds = kinds_of(objects)
        wanted = [address for address, of in types_at(kinds).items() if has_base(of, kind)]
        return [weakref.ref(objects[row]) for row in np.flatnonzero(np.isin(kinds, wanted)).tolist()]


def _info(cache: Any) -> Any:
    """Return the counts of *cache*, which may have an attribute of this name: a wrapper has a dict."""
    return LRU_CACHE.cache_info(cache)


def _n_asked(cache: Any) -> int:
    """Return how often *cache* was asked for a result since it was emptied."""
    info = _info(cache)
    return int(info.hits + info.misses)


def _named_parameters(module: Any) -> list[tuple[str, Any]]:
    try:
        return list(module.named_parameters())
    except Exception:  # noqa: BLE001 - a module may be anything, and not be initialized
        return []


def _gradient(parameter: Any) -> Any:
    with no_torch_functions():
        return parameter.grad


def _is_in_graph(value: Any) -> bool:
    """Return whether *value* is a tensor that takes part in a graph."""
    if not is_tensor(value):
        return False
    with no_torch_functions():
        return bool(value.requires_grad)


def _mark(tensor: Any) -> tuple[object, ...] | None:
    """Return what changes when *tensor* is written; None without one."""
    if tensor is None:
        return None
    with no_torch_functions():
        try:
            return tensor._version, float(_sample(tensor).sum())  # noqa: SLF001 - torch tells it nowhere else
        except _UNREADABLE:
            return (id(tensor),)


def _weight(tensor: Any) -> float:
    """Return what sampled numbers of *tensor* add up to without their signs; not a number where they cannot be read."""
    with no_torch_functions():
        try:
            return float(_sample(tensor).abs().sum())
        except _UNREADABLE:
            return math.nan


def _sample(tensor: Any) -> Any:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _N_SAMPLED)].double()


def other_gradient(before: Behaviour, after: Behaviour) -> str:
    """Say of one parameter that its gradient after one of the first runs is another; empty if all are the same."""
    for name, levels in before.gradients.items():
        for was, now in zip(levels, after.gradients.get(name, ()), strict=False):
            are_no_numbers = math.isnan(was) and math.isnan(now)
            if not (are_no_numbers or math.isclose(was, now, rel_tol=_SAME, abs_tol=_NOTHING)):
                shown = "a parameter" if name.startswith(_UNNAMED) else name
                n_digits = next((n for n in (3, 5) if f"{now:.{n}g}" != f"{was:.{n}g}"), 8)
                sums = f"its absolute values add up to {now:.{n_digits}g} instead of {was:.{n_digits}g}"
                return f"the gradient of {shown} is different: {sums}"
    return ""


@contextmanager
def calls_noted(called: set[str]) -> Iterator[None]:
    """Add to *called* what the user's code calls in this thread, and what that calls; nothing beside another profiler.

    What puts things into containers is left out: a change that lets it be may be what ends a leak.
    """
    outermost = 0  # the address of the user's frame that whatever is called now is called by

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal outermost
        code = frame.f_code
        if not outermost:
            is_first = event == "call" and origin_of(code.co_filename) is Origin.USER
            outermost = id(frame) if is_first else 0
        elif event == "call":
            called.add(f"{code.co_filename} {code.co_name}")
        elif event == "c_call" and getattr(argument, "__name__", "") not in ADDING:
            called.add(f"C {getattr(argument, '__qualname__', '')}")
        elif event == "return" and id(frame) == outermost:
            outermost = 0

    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def same_gradients(before: Behaviour, after: Behaviour) -> bool:
    """Return whether gradients were seen and are the same.

    Those that a run itself sets to zero tell nothing, and those that were there before and that no run writes.
    """
    given = {name for name, learning in before.parameters.items() if learning.was_given}
    seen = any(level > 0 for name, levels in before.gradients.items() if name in given for level in levels)
    return seen and not other_gradient(before, after)


@contextmanager
def uncaught_noted(uncaught: set[str]) -> Iterator[None]:
    """Add to *uncaught* the names of what threads raise inside: it ends them, and no run fails."""
    before = threading.excepthook

    def note(raised: Any) -> None:
        uncaught.add(raised.exc_type.__name__)
        before(raised)

    threading.excepthook = note
    try:
        yield
    finally:
        if threading.excepthook is note:
            threading.excepthook = before


_STILL_AT_WORK = 0.02
"""So many of the functions that a run called it must still call. Of 153 repaired programs the one that leaves out most
keeps 4 % of them: it registers once what each run did. Of a run that does nothing any more none are left."""


def idle_words(before: Behaviour, after: Behaviour) -> str:
    """Return in one clause that a run no longer does what it is there for; empty if it does."""
    n_before, n_left = len(before.called), len(before.called & after.called)
    if not n_before or n_left > _STILL_AT_WORK * n_before:
        return ""
    functions = unit_words(n_before, "functions")
    return f"a run calls {n_left or 'none'} of the {functions} that it called"


def harm_of(before: Behaviour, after: Behaviour, changes: Sequence[Change], *, may_lose_graphs: bool = False) -> str:
    """Return in one clause what the changed program does not do any more; empty if nothing was found.

    A variable that the changed lines themselves bind may get another type: that is what they were changed for. Every
    other one must have the type that it had, and take part in a graph if it did, unless variables *may_lose_graphs*:
    where gradients are the same without them, a mean of losses that carries a graph carries it by accident.
    """
    found = (_harm_of_parameter(name, was, after) for name, was in before.parameters.items())
    bound, variables = _bound_names(changes), after.variables
    if may_lose_graphs and same_gradients(before, after):
        variables = {name: (kind, True) for name, (kind, _is_in_graph) in variables.items()}
    others = (_harm_of_variable(name, was, variables) for name, was in before.variables.items() if name not in bound)
    raised = (f"a thread raises {name}, which nobody catches" for name in sorted(after.uncaught - before.uncaught))
    return next(filter(None, (*found, *others, *raised)), "")


def pointless_cache(before: Behaviour, after: Behaviour, n_runs: int) -> str:
    """Return in one clause that a cache is emptied of results that later runs ask for; empty if none is.

    *before* is what *n_runs* runs of the unchanged program did, *after* what as many of the changed one did.
    """
    for cache in after.was_emptied - before.was_emptied:
        was, now = before.computed.get(cache, 0) / n_runs, after.computed[cache]
        if now >= was + 1:
            results = unit_words(now, "results")
            return f"the cache no longer helps later runs: each computes {results} (was {format_rate(was)})"
    return ""


def _harm_of_parameter(name: str, was: Learning, after: Behaviour) -> str:
    now, is_unnamed = after.parameters.get(name) or after.parameters.get(was.other_name), name.startswith(_UNNAMED)
    shown = "a parameter" if is_unnamed else name
    if is_unnamed and was.was_replaced:
        return ""  # what a variable led to until a run replaced it: what the variable leads to is asked by its name
    if now is None:
        # One that no variable leads to is what runs left if none has touched it: it goes with the leak.
        is_left = is_unnamed and not (was.was_given or was.was_updated)
        return "" if is_left else f"{shown} is gone"
    if was.has_gradient != now.has_gradient:
        return f"{shown} no longer gets a gradient" if was.has_gradient else f"{shown} now gets a gradient"
    if was.was_given and not now.was_given:
        return f"the gradient of {shown} is no longer written"
    return f"{shown} is no longer updated" if was.was_updated and not now.was_updated else ""


def _harm_of_variable(name: str, was: tuple[str, bool], variables: Mapping[str, tuple[str, bool]]) -> str:
    if name not in variables:
        return f"the variable {name} no longer exists"
    kind, is_in_graph = variables[name]
    if kind != was[0]:
        return f"{name} is {kind} instead of {was[0]}"
    return f"{name} is no longer part of a graph" if was[1] and not is_in_graph else ""


def _bound_names(changes: Sequence[Change]) -> set[str]:
    """Return the variables that the changed lines bind or delete, as they were or as they are."""
    trees = (tree for change in changes for text in (change.before, change.after) for tree in statements_in(text))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if not isinstance(node.ctx, ast.Load)}
