"""One leak together with the statement that stores it, the container it is stored in, and the code that runs again."""

from __future__ import annotations

import ast
import builtins
import dis
import math
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leaklab.cure.live import MISSING, evaluate
from leaklab.cure.source import FUNCTIONS, Patch, Program, Proposal, SourceText
from leaklab.heap.source_lines import ADDS_MANY, adding_calls, is_called
from leaklab.measure.registries import registry_on
from leaklab.model import Leak
from leaklab.runtime.objects import class_dict, is_kind_of
from leaklab.runtime.ours import Origin, origin_of
from leaklab.text import visible

_RUNS_KEPT = 3
"""At least so many runs' entries a bounded container keeps; not many more, for the bound must be reached in a trial."""
_OF_FUNCTION = re.compile(
    r"(.+)\.(__defaults__|__kwdefaults__|__closure__)\[([^\[\]]+)\](?:\.cell_contents)?(?:\[.*\])?"
)
_ROUND = tuple(digit * 10**power for power in range(9) for digit in (1, 2, 5))[1:]


@dataclass(frozen=True)
class Store:
    """The statement that stores what leaks.

    Attributes:
        source: Its file.
        statement: The statement.
        how: ``one``, ``many``, ``item`` (a subscript is assigned), ``sum`` (an augmented assignment), ``name`` (a
            variable or attribute is assigned), ``call`` (anything else).
        container: What it is stored in, as an expression of the code there; None for ``call``.
        value: What is stored, as it is written; None where there is no one expression.
    """

    source: SourceText
    statement: ast.stmt
    how: str
    container: ast.expr | None = None
    value: ast.expr | None = None

    @property
    def container_text(self) -> str:
        """The container as it is written there; of ``d.setdefault(key, [])`` the entry it returns."""
        node = self.container
        if node is None:
            return ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
            return f"{self.source.text_of(node.func.value)}[{self.source.text_of(node.args[0])}]"
        return self.source.text_of(node)


Places = tuple[tuple[str, int], ...]
"""Lines, each with its file name."""


@dataclass(frozen=True)
class Case:
    """All that is asked when a change is thought out: one leak, and what is known of the code that causes it.

    Attributes:
        leak: The record.
        program: The user's.
        traced: Where the leaked objects are put where they are kept, surest first, as far as runs have shown it.
        making: Where the leaked objects are made, the same way.
    """

    leak: Leak
    program: Program
    traced: Places = ()
    making: Places = ()

    @cached_property
    def keeping(self) -> Places:
        """The lines that keep: those of traced runs, else those that, as they read, add to the holder or its table."""
        return self.traced or tuple(place for source in self.sources for place in self._adding_lines(source.filename))

    @cached_property
    def sources(self) -> tuple[SourceText, ...]:
        """The texts that may have a part in it: of the run, of its lines that are known, of what the run calls."""
        used = (self.program.namespace.get(name) for name in sorted(self.names_in_run()))
        files = [self.program.checked, *(filename for filename, _ in (*self.traced, *self.making))]
        files += [filename for one in used for filename in files_of(one) if origin_of(filename) is Origin.USER]
        return tuple(filter(None, map(self.source, dict.fromkeys(files))))

    def _adding_lines(self, filename: str) -> Iterator[tuple[str, int]]:
        source, name = self.source(filename), self.name
        if source is None:
            return
        registry = registry_on(self.leak.path)
        calls = () if registry is None else tuple(last_name(call) for call in registry.adds.split(" or "))
        calls = ("set",) if self.leak.path.root == "context variable" else calls
        for statement in source.nodes:
            if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
                continue
            is_call = any(called(node) in calls for node in ast.walk(statement))
            if is_call or (" " not in self.leak.holder and is_adding(source, statement, name)):
                yield filename, statement.lineno

    @property
    def holder(self) -> str:
        """The expression of what should let go, as people write it."""
        return re.sub(r"\.__dict__\['([^\W\d]\w*)'\]", r".\1", self.leak.holder)

    @cached_property
    def name(self) -> str:
        """What the code calls the holder that fills it: of a default value the parameter, of a cell the variable."""
        found = _OF_FUNCTION.fullmatch(self.holder)
        function = None if found is None else evaluate(found[1], self.program.namespace)
        if found is None or type(function) is not types.FunctionType:
            return last_name(self.holder)
        code, where = function.__code__, found[2]
        if where == "__kwdefaults__":
            return str(ast.literal_eval(found[3]))
        names = code.co_freevars
        if where == "__defaults__":
            names = code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) : code.co_argcount]
        return names[int(found[3])]

    @property
    def held(self) -> Any:
        """The live object behind the holder; `MISSING` where that is not known.

        Asked for each time: kept here it would be alive in the trials, with all that it leads to.
        """
        return evaluate(self.holder, self.program.namespace)

    @property
    def is_variable(self) -> bool:
        """Whether the holder can be written in the user's code: it begins with a variable of the program."""
        name = re.match(r"[^\W\d]\w*", self.holder)
        return name is not None and name[0] in self.program.namespace and self.held is not MISSING

    @cached_property
    def _sources(self) -> dict[str, SourceText | None]:
        return {}

    def source(self, filename: str) -> SourceText | None:
        """Return the text of a file that can be read and parsed, else None."""
        if filename not in self._sources:
            text = self.program.source(filename)
            try:
                self._sources[filename] = None if text is None else SourceText(filename, text)
            except (SyntaxError, ValueError, RecursionError):
                self._sources[filename] = None
        return self._sources[filename]

    @cached_property
    def cell(self) -> SourceText | None:
        """The code that runs again and again."""
        return self.source(self.program.checked)

    @property
    def cells_run(self) -> tuple[str, ...]:
        """The texts of the cells that the notebook has run so far, magics and all; none outside of a notebook."""
        texts = self.program.namespace.get("In")
        return tuple(texts) if type(texts) is list else ()

    @cached_property
    def run_body(self) -> list[ast.stmt]:
        """The statements of one run; empty where the code is not known."""
        if self.cell is None:
            return []
        if not self.program.function:
            return self.cell.tree.body
        name = self.program.function.rpartition(".")[2]
        found = [node for node in self.cell.nodes if isinstance(node, FUNCTIONS) and node.name == name]
        return found[0].body if len(found) == 1 else []

    def patch(self) -> Patch:
        """Return an empty patch."""
        return Patch(self.program)

    def at_end_of_run(self, patch: Patch, *lines: str) -> None:
        """Write *lines* where a run ends: before what has nothing to do with what they name, or deletes it."""
        body = self.run_body
        if not body or self.cell is None:
            patch.is_possible = False
        elif isinstance(body[-1], ast.Return):
            patch.before(self.cell, body[-1], lines)
        else:
            named = names_in("\n".join(lines))
            last = next(
                (one for one in reversed(body) if not (self._is_apart(one, named) or _deletes(one, named))), body[-1]
            )
            patch.after(self.cell, last, lines)

    def _is_apart(self, statement: ast.stmt, named: frozenset[str]) -> bool:
        """Return whether *statement* is a mere call of something that cannot reach the variables *named*."""
        if not isinstance(statement, ast.Expr) or not named.isdisjoint(names_in(ast.unparse(statement))):
            return False
        calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
        known = {**vars(builtins), **self.program.namespace}
        return bool(calls) and all(_reaches_nothing(evaluate(ast.unparse(call), known), named) for call in calls)

    def at_end(self, words: str, *lines: str, emptied: tuple[str, ...] = ()) -> Iterator[Proposal]:
        """Yield the proposal to write *lines* where a run ends."""
        patch = self.patch()
        self.at_end_of_run(patch, *lines)
        yield from self.proposal(words, patch, emptied=emptied)

    def at_start(self, words: str, *lines: str, emptied: tuple[str, ...] = ()) -> Iterator[Proposal]:
        """Yield the proposal to write *lines* where a run begins."""
        body, patch = self.run_body, self.patch()
        if body and self.cell is not None:
            patch.before(self.cell, body[1] if len(body) > 1 and _is_text(body[0]) else body[0], lines)
            yield from self.proposal(words, patch, emptied=emptied)

    def instead(self, words: str, source: SourceText, node: ast.expr | ast.stmt, new: str) -> Iterator[Proposal]:
        """Yield the proposal to write *new* where *node* stands."""
        patch = self.patch()
        patch.replace(source, node, new)
        yield from self.proposal(words, patch)

    def under(self, words: str, source: SourceText, statement: ast.stmt, head: str) -> Iterator[Proposal]:
        """Yield the proposal to make *statement* the block below *head*, a condition."""
        patch = self.patch()
        patch.indent(source, [statement], head)
        yield from self.proposal(words, patch)

    def behind(self, words: str, store: Store, *lines: str, emptied: tuple[str, ...] = ()) -> Iterator[Proposal]:
        """Yield the proposal to write *lines* below the statement that stores."""
        patch = self.patch()
        patch.after(store.source, store.statement, lines)
        yield from self.proposal(words, patch, emptied=emptied)

    def proposal(self, words: str, patch: Patch, *, emptied: tuple[str, ...] = ()) -> Iterator[Proposal]:
        """Yield the proposal that *patch* makes, if it makes one."""
        changes = patch.changes()
        if changes:
            yield Proposal(visible(words), changes, emptied=emptied)

    @property
    def statements(self) -> Iterator[tuple[SourceText, ast.stmt]]:
        """The statements that keep and those that make what leaks, the surest first."""
        return ((source, statement) for source, statement, _line in self._at((*self.keeping, *self.making)))

    @cached_property
    def calling(self) -> tuple[tuple[SourceText, ast.stmt, frozenset[str]], ...]:
        """The simple statements of the run, then those of functions, each with the names of what it calls."""
        bodies = [(self.cell, self.run_body)] if self.cell is not None else []
        bodies += [
            (source, node.body)
            for source in self.sources
            for node in source.nodes
            if isinstance(node, FUNCTIONS) and source.parent(node) is not None
        ]
        return tuple(
            (source, node, frozenset(name_of(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)))
            for source, body in bodies
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and not hasattr(node, "body")
        )

    def _at(self, places: Places) -> Iterator[tuple[SourceText, ast.stmt, int]]:
        for filename, line in places:
            source = self.source(filename)
            statement = source.statement_at(line) if source is not None else None
            if source is not None and statement is not None:
                yield source, statement, line

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """The statements that store what leaks, the surest first."""
        return tuple(self._find_stores())

    @property
    def store(self) -> Store | None:
        """The surest of them."""
        return self.stores[0] if self.stores else None

    def filled(self, store: Store) -> tuple[str, Any]:
        """Return the container that *store* adds to, as the program's variables name it, and the live object.

        That is the holder, or what has the holder inside: a queue its deque, a `collections.UserDict` its dict.
        """
        above = self.holder
        while above and last_name(above) != last_name(store.container_text) and above.endswith((".queue", ".data")):
            above = above.rpartition(".")[0]
        return above, evaluate(above, self.program.namespace)

    def _find_stores(self) -> Iterator[Store]:
        for source, statement, line in self._at(self.keeping):
            on_line = [one for one in source.siblings(statement) if one.lineno == line]
            adding = [one for one in on_line if is_adding(source, one, self.name)]
            yield store_of(source, adding[0] if adding else statement, self.name)

    @cached_property
    def is_in_run(self) -> bool:
        """Whether the statement that stores stands in the code that runs again, not in a function that it calls."""
        store = self.store
        if store is None or store.source.filename != self.program.checked:
            return False
        above: ast.AST | None = store.statement
        while above is not None:
            if any(above is statement for statement in self.run_body):
                return True
            above = None if isinstance(above, FUNCTIONS) else store.source.parent(above)
        return False

    def n_kept(self, n_entries: int) -> int:
        """Return how many entries to keep in a container of *n_entries* that is bounded: a round number."""
        rate = self.leak.count_per_run
        if self.leak.unit == "objects" and self.leak.kept:
            rate = min(rate, n_entries / len(self.leak.kept))
        return rounded(rate)

    def names_in_run(self) -> set[str]:
        """Return the names that the code of a run reads."""
        nodes = (node for statement in self.run_body for node in ast.walk(statement))
        return {node.id for node in nodes if isinstance(node, ast.Name)}

    def bound_in_run(self) -> set[str]:
        """Return the variables that the code of a run gives a value, those of its functions left out."""
        found, waiting = set[str](), list[ast.AST](self.run_body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                waiting += ast.iter_child_nodes(node)
        return found

    def type_in_run(self, name: str) -> type | None:
        """Return the class of what the run has in the variable *name*, which may be deleted by now; None if unknown."""
        if name in self.program.namespace:
            return type(self.program.namespace[name])
        made = (node for one in self.run_body for node in ast.walk(one) if isinstance(node, ast.Assign))
        calls = [
            node.value
            for node in made
            if isinstance(node.value, ast.Call) and any(name_of(target) == name for target in node.targets)
        ]
        found: Any = evaluate(ast.unparse(calls[0].func), self.program.namespace) if len(calls) == 1 else None
        return found if is_kind_of(found, type) else None

    def is_deleted_in_run(self, name: str) -> bool:
        """Return whether the run deletes its variable *name*."""
        return any(_deletes(statement, frozenset({name})) for statement in self.run_body)

    def fresh(self, name: str) -> str:
        """Return *name*, with a number behind it where the program has a variable of that name."""
        taken = {*self.program.namespace, *self.names_in_run()}
        return next(one for one in (name, *(f"{name}_{n}" for n in range(2, 1000))) if one not in taken)


def files_of(thing: object) -> Iterator[str]:
    """Yield the files of a function, or of the methods of a class or of an object's class."""
    kind = thing if is_kind_of(thing, type) else type(thing)
    functions = [thing] if type(thing) is types.FunctionType else list(class_dict(kind).values())  # type: ignore[arg-type]
    yield from (one.__code__.co_filename for one in functions if type(one) is types.FunctionType)


def names_in(text: str) -> frozenset[str]:
    """Return the variables that the code *text* reads."""
    return frozenset(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))


def _reaches_nothing(function: object, named: frozenset[str]) -> bool:
    """Return whether *function* is one of C, or one of Python's that calls nothing and reads none of *named*."""
    if isinstance(function, types.BuiltinFunctionType):
        return True
    if not isinstance(function, types.FunctionType):
        return False
    calls = any(one.opname.startswith("CALL") for one in dis.get_instructions(function))
    return not calls and named.isdisjoint(function.__code__.co_names)


def rounded(per_run: float) -> int:
    """Return a round number of entries, those of some runs, for a container that gets *per_run* in each."""
    return next((n for n in _ROUND if n >= _RUNS_KEPT * per_run), math.ceil(per_run))


def _deletes(statement: ast.stmt, names: frozenset[str]) -> bool:
    """Return whether *statement* deletes one of the variables *names*."""
    return isinstance(statement, ast.Delete) and not names.isdisjoint(map(name_of, statement.targets))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def called(node: ast.AST) -> str:
    """Return the last name of what a call calls, ``append`` of ``h.append(x)``; empty for anything else."""
    return name_of(node.func) if isinstance(node, ast.Call) else ""


def name_of(node: ast.expr) -> str:
    """Return the last name of a variable or an attribute; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def last_name(expression: str) -> str:
    """Return the last attribute or variable that *expression* names: ``history`` of ``runs['a'].history[3]``."""
    names: list[str] = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", expression))
    return names[-1] if names else ""


def is_adding(source: SourceText, statement: ast.stmt, name: str) -> bool:
    """Return whether *statement* puts something into a container called *name*, or makes it longer."""
    if hasattr(statement, "body"):
        return False
    store = store_of(source, statement, name)
    return (
        store.how in ("one", "many", "item", "sum") and store.container is not None and is_called(store.container, name)
    )


def store_of(source: SourceText, statement: ast.stmt, name: str) -> Store:
    """Return what *statement* stores and in what, where something called *name* is the likely container."""
    if isinstance(statement, ast.AugAssign):
        return Store(source, statement, "sum", statement.target, statement.value)
    calls = list(adding_calls(statement)) if not hasattr(statement, "body") else []
    named = [(call, method) for call, method in calls if is_called(method.value, name)]
    for call, method in named or (calls if len(calls) == 1 and not isinstance(statement, ast.Assign) else []):
        value = None if isinstance(call.args[-1], ast.Starred) else call.args[-1]
        return Store(source, statement, "many" if method.attr in ADDS_MANY else "one", method.value, value)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        chosen = next((one for one in _flat(targets) if is_called(one, name)), targets[0])
        if isinstance(chosen, ast.Subscript) and chosen in targets:  # also of several: mask = masks[n] = make(n)
            return Store(source, statement, "item", chosen.value, statement.value)
        return Store(source, statement, "name", chosen, statement.value)
    return Store(source, statement, "call")


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _flat(target.elts)
        else:
            yield target
