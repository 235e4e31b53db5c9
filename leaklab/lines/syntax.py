"""Read single statements of the user's code: what they add or drop, what their conditions ask, what they change."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

_ADDING = frozenset({
    "append", "appendleft", "add", "insert", "extend", "extendleft", "update", "setdefault", "put", "put_nowait",
    "push", "write", "register", "subscribe", "connect", "attach", "setitem",
})  # fmt: skip
_DROPPING = frozenset({
    "clear", "pop", "popleft", "popitem", "remove", "discard", "get_nowait", "flush", "reset", "truncate", "drop",
    "evict", "prune", "trim", "close", "detach_",
})  # fmt: skip
_ADDING_TO = frozenset({"heappush", "insort", "insort_left", "insort_right"})
_DROPPING_FROM = frozenset({"heappop", "heappushpop", "heapreplace"})
"""Functions of heapq and bisect, whose first argument is the list."""
_CUTTING = frozenset({"detach", "item", "tolist", "numpy"})
"""What of a tensor leaves its graph behind."""
_GROWING = frozenset({"append", "appendleft", "add", "insert", "extend", "extendleft"})
"""What a container of Python's is filled by, and little else is called."""
_LOOKING_UP = frozenset({"get", "setdefault", "getattr"})
_SELECTING = frozenset({"nlargest", "nsmallest", "deque", "islice", "sample"})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ASKING_KIND = frozenset({"isinstance", "issubclass", "callable"})
_CHANCES = frozenset({"random", "rand", "randint", "uniform", "time", "monotonic", "perf_counter"})
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def kept_by(node: ast.AST) -> ast.expr | None:
    """Return the container to which *node* would add one entry more each time it runs; None if it is no such code."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
        return node.func.value
    if isinstance(node, ast.Call) and node.args and last_name(node.func) in _ADDING_TO:
        return node.args[0]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key = node.targets[0].slice
        return None if isinstance(key, (ast.Constant, ast.Slice)) else node.targets[0].value
    return None


def is_of_time(test: ast.expr, counted: Collection[str]) -> bool:
    """Return whether *test* asks for a turn or a chance, which come in some runs only: not for a key, nor for data.

    Args:
        test: A condition.
        counted: The names of what the code counts up.
    """
    parts = list(ast.walk(test))
    if any(isinstance(part, ast.Mod) for part in parts):
        return True
    asked = {last_name(part.func if isinstance(part, ast.Call) else part) for part in parts}
    is_order = any(isinstance(part, ast.Compare) and isinstance(part.ops[0], _ORDERS) for part in parts)
    return is_order and not asked.isdisjoint(_CHANCES | set(counted))


def asks_data(test: ast.expr, container: NamesHere, counted: Collection[str]) -> bool:
    """Return whether *test* compares what a method of some value tells: ``batch.std() > 10``.

    Data may come that go the other way, and bound nothing. What is asked of the container, of ``self``, of a length, of
    what is counted up, of the time or of chance is no data.
    """
    parts = list(ast.walk(test))
    asked = {last_name(part.func if isinstance(part, ast.Call) else part) for part in parts}
    is_order = any(isinstance(part, ast.Compare) and isinstance(part.ops[0], _ORDERS) for part in parts)
    is_own = not asked.isdisjoint(_CHANCES | set(counted) | {"len", "self", "cls"})
    if not is_order or is_own or any(container.is_container(part) for part in parts):
        return False
    calls = [part.func for part in parts if isinstance(part, ast.Call)]
    return any(isinstance(call, ast.Attribute) for call in calls)


def counted_in(function: ast.AST) -> Iterator[str]:
    """Yield the names of what *function* counts up: ``step += 1``, ``self.steps[0] += 1``."""
    for node in own_nodes(function):
        if isinstance(node, ast.AugAssign):
            yield last_name(node.target.value if isinstance(node.target, ast.Subscript) else node.target)


def asks_for_attribute(test: ast.expr) -> bool:
    """Return whether *test* asks if something has an attribute yet: once there, it stays there."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    return isinstance(asked, ast.Call) and isinstance(asked.func, ast.Name) and asked.func.id == "hasattr"


def keeps_record(branch: ast.If | ast.IfExp) -> bool:
    """Return whether *branch* is taken for a value that beats all before it: nothing in the code bounds how often."""
    test = branch.test
    if not (isinstance(branch, ast.If) and isinstance(test, ast.Compare) and isinstance(test.ops[0], _ORDERS)):
        return False
    sides = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
    assigned = [node for node in branch.body if isinstance(node, ast.Assign)]
    return any({ast.unparse(node.targets[0]), ast.unparse(node.value)} == sides for node in assigned)


def is_missing(test: ast.expr, *, past_body: bool) -> bool:
    """Return whether the way past the body of an ``if`` (or into it) is for a value that is None: no bound."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return False
    is_none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    return is_none and isinstance(test.ops[0], ast.IsNot if past_body else ast.Is)


def is_from_iterator(test: ast.expr, function: ast.AST) -> bool:
    """Return whether *test* asks for a variable that *function* gets from ``next(stream, None)``: streams end."""
    name = last_name(test.left) if isinstance(test, ast.Compare) else ""
    values = (
        node.value
        for node in own_nodes(function)
        if isinstance(node, ast.Assign) and name == last_name(node.targets[0])
    )
    is_next = (isinstance(one, ast.Call) and last_name(one.func) == "next" and len(one.args) > 1 for one in values)
    return bool(name) and any(is_next)


def asks_kind(test: ast.expr) -> bool:
    """Return whether *test* asks for the kind of a value alone: one of the kind that comes now comes again."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    return isinstance(asked, ast.Call) and last_name(asked.func) in _ASKING_KIND


def compiled_as(function: ast.AST) -> tuple[int, str]:
    """Return the first line and the name of the code that *function*, one of `FUNCTION_NODES`, is compiled to."""
    decorators = getattr(function, "decorator_list", [])
    line = min([one.lineno for one in (function, *decorators)])
    return line, getattr(function, "name", "<lambda>")


def changed_in(function: ast.AST, calls: Sequence[ast.Call]) -> Iterator[str]:
    """Yield the names of the variables and attributes that *function* gives a value.

    Of its parameters those that *calls*, all that stand in code that ran, do not always leave to the default or give
    the same constant.
    """
    fixed = _fixed_parameters(function, calls)
    for node in own_nodes(function):
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            yield last_name(node)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield last_name(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPING:
            yield last_name(node.func.value)  # `todo.pop()`: it may be empty some day
        elif isinstance(node, ast.arg) and node.arg not in {"self", "cls"} | fixed:
            yield node.arg


def _fixed_parameters(function: ast.AST, calls: Sequence[ast.Call]) -> set[str]:
    own = [call for call in calls if last_name(call.func) == getattr(function, "name", "")]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not own:
        return set()
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    defaults: dict[str, ast.expr | None] = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    defaults |= dict(zip((one.arg for one in arguments.kwonlyargs), arguments.kw_defaults, strict=True))
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    given: dict[str, set[str]] = {name: set() for name in (*names, *(one.arg for one in arguments.kwonlyargs))}
    for call in own:
        if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
            return set()
        by_name = {**dict(zip(names, call.args, strict=False)), **{str(one.arg): one.value for one in call.keywords}}
        for name, values in given.items():
            value = by_name.get(name, defaults.get(name))
            values.add(ast.dump(value) if isinstance(value, ast.Constant) else name)
    return {name for name, values in given.items() if len(values) == 1 and name not in values}


def assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value; of ``a, b = c, d`` the parts, of ``a, b = f()`` the call."""
    for target in node.targets:
        if not isinstance(target, (ast.Tuple, ast.List)):
            yield target, node.value
            continue
        values = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
        is_paired = len(values) == len(target.elts)
        yield from zip(target.elts, values if is_paired else [node.value] * len(target.elts), strict=True)


def parents_in(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Return the node above each node of *tree* but itself, in the order of `ast.walk`."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


_OWN_NODES = "leaklab_own_nodes"


def own_nodes(function: ast.AST) -> Sequence[ast.AST]:
    """Return the nodes of *function* without those of the functions inside it.

    The function remembers them: each question about a container asks for them, and the trees are never changed.
    """
    found: list[ast.AST] | None = getattr(function, _OWN_NODES, None)
    if found is None:
        found, waiting = [], list(ast.iter_child_nodes(function))
        while waiting:
            node = waiting.pop()
            found.append(node)
            if not isinstance(node, FUNCTION_NODES):
                waiting += ast.iter_child_nodes(node)
        setattr(function, _OWN_NODES, found)
    return found


@dataclass(slots=True)
class NamesHere:
    """The names of a container within one function; *entries* are those of what was looked up in it."""

    anywhere: Collection[str]
    variables: set[str]
    entries: set[str] = field(default_factory=set)

    def is_container(self, node: ast.AST) -> bool:
        """Return whether *node* is one of the names, maybe with keys and attributes behind it."""
        if isinstance(node, ast.Name):
            return node.id in self.variables
        if isinstance(node, ast.Attribute):
            return node.attr in self.anywhere or self.is_container(node.value)
        if isinstance(node, ast.Subscript):
            return _text(node.slice) in self.anywhere or self.is_container(node.value)
        if isinstance(node, ast.Call) and last_name(node.func) in _LOOKING_UP:
            return any(_text(argument) in self.anywhere for argument in node.args[:1])
        return False

    def trims(self, node: ast.AST) -> bool:
        """Return whether *node* keeps a part of the container: ``x = x[-5:] + [new]``, ``del x[:-5]``, ``nlargest``.

        So does a comprehension with a condition: ``agents = [a for a in agents if a.age < 30] + [Agent()]``.

        What drops so many entries at a time (``del x[:1]``, ``x = x[1:]``) leaves a part of any size.
        """
        if isinstance(node, ast.Delete):
            parts: list[ast.expr] = [part for part in node.targets if isinstance(part, ast.Subscript)]
            return any(self._is_slice(part) and _takes_few(part) is not True for part in parts)
        if not (isinstance(node, ast.Assign) and any(map(self.is_container, node.targets))):
            return False
        for part in ast.walk(node.value):
            if self._is_slice(part) and _takes_few(part) is not False:
                return True
            if isinstance(part, ast.Call) and last_name(part.func) in _SELECTING:
                return any(map(self._has_container, part.args))
            if isinstance(part, _COMPREHENSIONS) and any(
                one.ifs and self._has_container(one.iter) for one in part.generators
            ):
                return True
        return False

    def asks_for_key(self, test: ast.expr) -> bool:
        """Return whether *test* looks for a key in the container."""
        if isinstance(test, ast.UnaryOp):
            return self.asks_for_key(test.operand)
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return False
        return isinstance(test.ops[0], (ast.In, ast.NotIn)) and self.is_container(test.comparators[0])

    def asks_for_new_entry(self, test: ast.expr) -> bool:
        """Return whether *test* asks if what was just looked up was there: ``not entry``, ``len(entry) == 0``."""
        asked: ast.AST = test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            asked = test.operand
        elif isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and last_name(test.left.func) == "len":
            is_zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
            asked = test.left.args[0] if is_zero and test.left.args else test
        return isinstance(asked, ast.Name) and asked.id in self.entries

    def key_of(self, node: ast.AST) -> ast.expr | None:
        """Return the key under which *node* puts something into the container; None if it does nothing of that kind.

        ``counts[key] += 1`` does; what adds a variable may let the history of a sum grow.
        """
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and self.is_container(target.value):
                return target.slice
        if isinstance(node, ast.Call) and last_name(node.func) == "setdefault" and node.args:
            return node.args[0]
        return None

    def _is_slice(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
            return False
        return bool(node.slice.lower or node.slice.upper) and self._has_container(node.value)

    def asks_for(self, test: ast.expr) -> bool:
        """Return whether *test* asks anything of the container, as how long it is."""
        return self._has_container(test)

    def _has_container(self, node: ast.AST) -> bool:
        return any(map(self.is_container, ast.walk(node)))

    def effect_of(self, node: ast.AST) -> int:
        """Return 1 where *node* adds to the container, -1 where it drops from it, else 0."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and self.is_container(node.func.value):
            return (node.func.attr in _ADDING) - (node.func.attr in _DROPPING)
        if isinstance(node, ast.Call) and node.args and self.is_container(node.args[0]):
            return (last_name(node.func) in _ADDING_TO) - (last_name(node.func) in _DROPPING_FROM)
        if isinstance(node, ast.Delete):
            return -any(map(self.is_container, node.targets))
        if isinstance(node, ast.AugAssign):
            return int(self.is_container(node.target))
        if not isinstance(node, ast.Assign):
            return 0
        for target, value in assigned(node):
            if isinstance(target, ast.Subscript) and self.is_container(target.value):
                return -1 if isinstance(target.slice, ast.Slice) else 1
            if self.is_container(target):
                is_kept = any(map(self.is_container, ast.walk(value))) and not self._is_cut(value)
                return 1 if is_kept else -1
        return 0

    def _is_cut(self, value: ast.expr) -> bool:
        """Return whether *value* is the container, a tensor, without its graph: ``state.detach()``."""
        called = value.func if isinstance(value, ast.Call) else None
        return isinstance(called, ast.Attribute) and called.attr in _CUTTING and self.is_container(called.value)


def _takes_few(part: ast.AST) -> bool | None:
    """Return whether a slice takes as many entries as it says (``x[:3]``), or all but those (``x[3:]``).

    None where no number is written.
    """
    place = part.slice if isinstance(part, ast.Subscript) else None
    if not isinstance(place, ast.Slice) or (place.lower is None) == (place.upper is None):
        return None
    end = place.upper or place.lower
    is_negative = isinstance(end, ast.UnaryOp) and isinstance(end.op, ast.USub)
    number = end.operand if isinstance(end, ast.UnaryOp) and is_negative else end
    if not (isinstance(number, ast.Constant) and type(number.value) is int):
        return None
    return is_negative == (place.upper is None)


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def last_name(node: ast.AST) -> str:
    """Return the name of a variable, or the last one of ``owner.attribute``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
