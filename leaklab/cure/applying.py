"""Apply a change to a running program, in memory only and for a while.

The cell that is checked runs from the changed text. Every function that a change concerns gets the code object that the
changed text has for it: the function objects stay the same ones, whoever refers to them, with their closures, defaults
and attributes. A generator that is suspended in such a function goes on with the code that it began with.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import reduce
from inspect import CO_COROUTINE
from operator import or_
from types import CodeType, FunctionType
from typing import Any, Protocol

from leaklab.cure.definitions import FUTURE_FLAGS, Definition, made_anew, take_definitions
from leaklab.cure.edits import NotTriedError, Path, changed_code, code_objects, edited, parsed
from leaklab.cure.keeping import to_the_end
from leaklab.cure.live import MISSING, attribute, evaluate, values_of
from leaklab.cure.source import Program, Remade
from leaklab.measure.checkpoint import whole_heap
from leaklab.model.cure import Change
from leaklab.runtime.objects import is_tensor, loaded_variables, mro_of, no_torch_functions

Pairs = Sequence[tuple[CodeType, CodeType]]
"""Code objects of modules or cells as they were, and as they are changed."""


class ReplaceableCell(Protocol):
    """The cell that is checked, as far as a trial must know it."""

    @property
    def filename(self) -> str:
        """The name under which the cell was compiled."""

    @property
    def awaits(self) -> bool:
        """Whether the cell has to be awaited."""

    def replaced(self, tree: ast.Module) -> AbstractContextManager[Pairs]:
        """Run *tree* instead of the cell inside.

        Raises:
            NotTriedError: if it cannot be run as the cell is.
        """


@contextmanager
def applied(changes: Sequence[Change], program: Program, cell: ReplaceableCell | None = None) -> Iterator[None]:
    """Let the program run with *changes* inside; everything is as before on every exit.

    Of *cell*, where a cell is checked, the lines outside of functions can be changed, too.

    Raises:
        NotTriedError: before anything is changed, if the changes cannot be tried soundly.
    """
    by_file: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_file[change.filename].append(change)
    swaps: list[_Swap] = []
    definitions: list[Definition] = []
    changed_cell: ast.Module | None = None
    for filename, of_file in by_file.items():
        text = program.source(filename)
        if text is None:
            msg = "the source is not known"
            raise NotTriedError(msg)
        tree = parsed(edited(text, of_file), of_file, filename)
        if cell is not None and filename == cell.filename:
            changed_cell = tree
        else:
            definitions += take_definitions(filename, parsed(text, (), filename), tree)
            swaps += _swaps_in_file(filename, text, tree, of_file, program)
    if changed_cell is None or cell is None:
        with _swapped(swaps), made_anew(definitions, program):
            yield
        return
    with (
        cell.replaced(changed_cell) as pairs,
        _swapped([*swaps, *_swaps_of_cell(pairs)]),
        made_anew(definitions, program),
    ):
        yield


def ran_once(changes: Sequence[Change], program: Program, cell: ReplaceableCell | None) -> tuple[str, ...]:
    """Return the files in which *changes* concern more than functions that live: what has run, once and for all."""
    found = []
    for filename in dict.fromkeys(change.filename for change in changes):
        if cell is not None and filename == cell.filename:
            continue
        of_file = [change for change in changes if change.filename == filename]
        try:
            text = program.source(filename) or ""
            tree = parsed(edited(text, of_file), of_file, filename)
            take_definitions(filename, parsed(text, (), filename), tree)
            _swaps_in_file(filename, text, tree, of_file, program)
        except NotTriedError:
            found.append(filename)
    return tuple(found)


def run_again(filename: str, changes: Sequence[Change], program: Program) -> None:
    """Run a cell once more, with those of *changes* that are its own. What it binds and does is not taken back.

    Raises:
        NotTriedError: if it would have to be awaited.
        Exception: what the cell raises.
    """
    text = program.source(filename) or ""
    own = [change for change in changes if change.filename == filename]
    tree = parsed(edited(text, own) if own else text, (), filename)
    code = compile(tree, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & CO_COROUTINE:
        msg = f"{program.named(filename)} uses await, and would have to run again"
        raise NotTriedError(msg)
    exec(code, program.namespace)  # type: ignore[arg-type]  # noqa: S102 - a dict; the user's own code


def begin_anew(expression: str, program: Program) -> None:
    """Take from a place what earlier runs have added to it; nothing takes that back.

    Of a tensor, or of those in a list or dict, that is the graph; of a function its layers of the same code.
    """
    held = evaluate(expression, program.namespace)
    if type(held) is FunctionType:
        place, _, name = expression.rpartition(".")
        setattr(evaluate(place, program.namespace), name, _without_layers(held))
        return
    for one in (held, *values_of(held)):
        if is_tensor(one):
            with no_torch_functions(), suppress(RuntimeError):  # a view cannot be cut off in place
                one.detach_()


def remake(one: Remade, program: Program) -> None:
    """Put in the place of a container what the changed program would have there. Nothing takes that back.

    Raises:
        NotTriedError: if the place cannot be reached.
    """
    made = one.make(evaluate(one.place, program.namespace))
    of_owner, _, name = one.place.rpartition(".")
    if not of_owner:
        program.namespace[name] = made  # type: ignore[index]  # a dict
        return
    owner = evaluate(of_owner, program.namespace)
    owner = sys.modules.get(of_owner, MISSING) if owner is MISSING else owner
    if owner is MISSING:
        msg = f"no variable leads to `{of_owner}`"
        raise NotTriedError(msg)
    setattr(owner, name, made)


def _without_layers(function: FunctionType) -> Any:
    """Return what the innermost of the functions wraps that each wrap the next and have the code of *function*."""
    inner: Any = function
    place: int | None = None
    while type(inner) is FunctionType and inner.__code__ is function.__code__:
        wrapped = [attribute(cell, "cell_contents") for cell in inner.__closure__ or ()]
        codes = [one.__code__ if type(one) is FunctionType else None for one in wrapped]
        place = codes.index(function.__code__) if function.__code__ in codes else place
        if place is None:
            return function  # one layer: which of its variables it wraps is not known
        inner = wrapped[place]
    return inner


def _swaps_of_cell(pairs: Pairs) -> list[_Swap]:
    """Return what to swap in functions that earlier runs of the cell have made.

    Nothing if the change adds or takes away functions: each run makes them anew, the earlier ones stay as they are.
    """
    try:
        return [_Swap(old, new) for old, new in pairs]
    except NotTriedError:
        return []


class _Swap:
    """The code of one file or cell, and the functions that have to get it.

    Attributes:
        changed: The paths of the code objects that differ.
        concerned: Those, and the code objects that they are made by; of all others no living function is touched.
    """

    def __init__(self, old: CodeType, new: CodeType) -> None:
        self.old, self.new = code_objects(old), code_objects(new)
        self.changed = changed_code(old, new)
        self.concerned: set[Path] = {path[:depth] for path in self.changed for depth in range(1, len(path) + 1)}

    def take_living(self, codes: Collection[CodeType]) -> set[Path]:
        """Put the code objects that functions have in the place of equal ones; return the paths of those concerned."""
        living = {code: code for code in codes}
        running = {path for path in self.concerned if _is_function(self.old[path]) and self.old[path] in living}
        for path in sorted(running, key=len, reverse=True):
            inner = code_objects(living[self.old[path]])
            self.old.update({(*path, *below): code for below, code in inner.items()})
        return running

    def require_functions(self, place: str) -> None:
        """Refuse a change of what has run once and for all.

        Raises:
            NotTriedError: if what differs is not in a function.
        """
        if not all(path and _is_function(self.old[path]) for path in self.changed):
            msg = f"{place} ran once, before what is checked"
            raise NotTriedError(msg)

    def is_covered(self, running: Collection[Path]) -> bool:
        """Return whether every change is in a function of *running*, or in one that such a function makes."""
        return all(any(path[:depth] in running for depth in range(1, len(path) + 1)) for path in self.changed)

    def old_by_new(self) -> dict[int, CodeType]:
        """Return for the address of each changed code object the one that it stands for."""
        return {id(code): self.old[path] for path, code in self.new.items() if path in self.old}


def _swaps_in_file(
    filename: str, text: str, tree: ast.Module, changes: Sequence[Change], program: Program
) -> list[_Swap]:
    """Return what to swap in a file whose own lines have run, once and for all.

    Raises:
        NotTriedError: if the change concerns such a line, or if no living function has the code of that text.
    """
    with whole_heap() as objects:
        functions = [thing for thing in objects if type(thing) is FunctionType and _file_of(thing) == filename]
    codes = {function.__code__ for function in functions}
    flags = reduce(or_, (code.co_flags for code in codes), 0) & FUTURE_FLAGS | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    was = parsed(text, (), filename)

    def compiled(body: Sequence[ast.stmt]) -> CodeType:
        module: CodeType = compile(ast.Module(list(body), []), filename, "exec", flags, dont_inherit=True)
        return module

    _Swap(compiled(was.body), compiled(tree.body)).require_functions(program.place(filename, changes[0].line))
    # A notebook compiles each statement of a cell by itself, and Python looks for imports in what it compiles.
    by_statement = zip(([one] for one in was.body), ([one] for one in tree.body), strict=True)
    for parts in ([(was.body, tree.body)], by_statement):
        swaps = [_Swap(compiled(old), compiled(new)) for old, new in parts]
        running = [swap.take_living(codes) for swap in swaps]
        if all(swap.is_covered(by) for swap, by in zip(swaps, running, strict=True)):
            break
    else:
        msg = "the code that runs does not match its source"
        raise NotTriedError(msg)
    chosen = {swap.old[path] for swap, paths in zip(swaps, running, strict=True) for path in paths}
    _refuse_compiled([function for function in functions if function.__code__ in chosen])
    return swaps


def _file_of(function: FunctionType) -> str:
    return function.__code__.co_filename


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & _OPTIMIZED)


_OPTIMIZED = 1
"""The flag of code with fast local variables: of functions, not of modules and classes."""


@contextmanager
def _swapped(swaps: Sequence[_Swap]) -> Iterator[None]:
    """Give every living function of *swaps* its new code inside."""
    given: list[tuple[FunctionType, CodeType, CodeType]] = []
    try:
        for swap in swaps:
            _give(swap, given)
        yield
    finally:
        to_the_end(lambda: _take_back(swaps, given))


def _give(swap: _Swap, given: list[tuple[FunctionType, CodeType, CodeType]]) -> None:
    wanted = [path for path in swap.concerned if _is_function(swap.old[path])]
    if not wanted:
        return
    by_code = {swap.old[path]: swap.new[path] for path in wanted}
    lambdas = {swap.old[path] for path in wanted if path[:-1] in wanted and swap.old[path].co_name == "<lambda>"}
    names = {code.co_name for code in by_code}
    with whole_heap() as objects:
        functions = [thing for thing in objects if type(thing) is FunctionType and thing.__code__.co_name in names]
        n_alive = Counter(thing.__code__ for thing in functions)
        for thing in functions:
            old = thing.__code__
            new = by_code.get(old)
            if new is None or old.co_filename != new.co_filename:
                continue
            if old.co_freevars != new.co_freevars:
                if old in lambdas and n_alive[old] > 1:
                    continue  # each call of the enclosing function makes one: those of earlier calls stay as they are
                msg = "it would need other variables of the enclosing function"
                raise NotTriedError(msg)
            given.append((thing, old, new))  # first: an interrupt may come behind any of these lines
            thing.__code__ = new


def _take_back(swaps: Sequence[_Swap], given: list[tuple[FunctionType, CodeType, CodeType]]) -> None:
    """Give every function its old code again, those that were made meanwhile as well."""
    for function, old, new in given:
        if function.__code__ is new:
            function.__code__ = old
    _take_back_later_ones(swaps)


def _take_back_later_ones(swaps: Sequence[_Swap]) -> None:
    """Give functions that changed code has made the code that the unchanged one would have given them."""
    to_old = {address: code for swap in swaps for address, code in swap.old_by_new().items()}
    if not to_old:
        return
    with whole_heap() as objects:
        for thing in objects:
            if type(thing) is FunctionType and id(thing.__code__) in to_old:
                old = to_old[id(thing.__code__)]
                if old.co_freevars == thing.__code__.co_freevars:
                    thing.__code__ = old


def _refuse_compiled(functions: Collection[FunctionType]) -> None:
    """Refuse functions that torch runs in a form of its own.

    Raises:
        NotTriedError: if one of them was scripted, or if torch.compile has compiled anything in this process: what it
            has inlined where nobody tells.
    """
    counters: Any = loaded_variables("torch._dynamo.utils").get("counters")
    if functions and counters and counters["frames"]["ok"]:
        msg = "torch.compile has compiled code of this process"
        raise NotTriedError(msg)
    if any(_is_scripted(function) for function in functions):
        msg = "torch runs a scripted form of that code"
        raise NotTriedError(msg)


def _is_scripted(function: FunctionType) -> bool:
    scripted: Any = loaded_variables("torch.jit._state").get("_jit_caching_layer", {})
    if function in scripted:
        return True
    store: Any = loaded_variables("torch.jit._recursive").get("concrete_type_store")
    classes = [] if store is None else list(store.type_store)
    return any(vars(base).get(function.__name__) is function for of in classes for base in mro_of(of))
