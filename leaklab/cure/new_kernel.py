"""Tell from the text whether a changed program still runs as the first thing of a new kernel.

A trial tells what runs add and what they do. It runs where hundreds of runs have been: a variable that a run binds is
there before the next one begins, and in a new kernel it is not.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence

from leaklab.cure.edits import NotTriedError, edited, parsed
from leaklab.cure.source import FUNCTIONS, Program
from leaklab.heap.source_lines import is_module, sources_with
from leaklab.model.cure import Change

_SCOPES = (*FUNCTIONS, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TABLES = ("globals", "locals", "vars", "dir")
_NAME_ERRORS = ("NameError", "Exception", "BaseException")
_SAME_CELL = 0.5
"""From this likeness on another text is an earlier version of the cell."""


def names_missing(changes: Sequence[Change], program: Program) -> tuple[str, ...]:
    """Return the variables that the changed code reads before its first run has bound them, and the unchanged does not.

    A variable that another cell binds, or the file around, is there in a new kernel as well. What modules bind are
    variables of their own.
    """
    of_file = [change for change in changes if change.filename == program.checked]
    text = program.source(program.checked)
    if not of_file or text is None:
        return ()
    try:
        was, is_now = parsed(text), parsed(edited(text, of_file))
    except NotTriedError:  # as the trial will say
        return ()
    before, after = (_Reader(_run_of(tree, program.function)) for tree in (was, is_now))
    missing = (after.needed - before.needed) & before.bound
    return tuple(sorted(name for name in missing if not _is_bound_elsewhere(name, program, text, was)))


def cells_that_bind(names: Iterable[str], program: Program, is_cell: Callable[[str], object]) -> tuple[str, ...]:
    """Return the file names of the cells that have bound variables, the newest of each, but for what is checked."""
    found = []
    for name in names:
        for filename, text in sources_with(name):
            if filename == program.checked or not is_cell(filename):
                continue
            try:
                is_bound = name in _Reader((ast.parse(text).body, None)).bound
            except (SyntaxError, ValueError, RecursionError):
                continue
            if is_bound and not _is_version_of(text, program.source(program.checked) or ""):
                found.append(filename)
                break
    return tuple(dict.fromkeys(found))


def _run_of(tree: ast.Module, function: str) -> tuple[list[ast.stmt], set[str] | None]:
    """Return the statements of one run, and which names are variables of the program there; None for all."""
    if not function:
        return tree.body, None
    name = function.rpartition(".")[2]
    found = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name == name]
    if len(found) != 1:
        return [], set()
    return found[0].body, {one for node in ast.walk(found[0]) if isinstance(node, ast.Global) for one in node.names}


def _is_bound_elsewhere(name: str, program: Program, text: str, tree: ast.Module) -> bool:
    if program.function:
        around = [node for node in tree.body if not (isinstance(node, FUNCTIONS) and node.name == program.function)]
        if name in _Reader((around, None)).bound:
            return True
    for filename, other in sources_with(name):
        if filename == program.checked or is_module(filename) or _is_version_of(other, text):
            continue
        try:
            if name in _Reader((ast.parse(other).body, None)).bound:
                return True
        except (SyntaxError, ValueError, RecursionError):
            return True  # a cell with magics: who knows
    return False


def _is_version_of(other: str, text: str) -> bool:
    first, second = ([line.strip() for line in one.splitlines() if line.strip()] for one in (other, text))
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio() >= _SAME_CELL


class _Reader:
    """Follows a program from above to below, as its first run goes, through every branch.

    What one branch binds counts as bound behind it, and what a function reads counts where it is called by its name: so
    a name is called needed only where it surely is.

    Args:
        run: The statements, and the names that are variables of the program there; None for all.

    Attributes:
        bound: The variables that are bound anywhere.
        needed: Those that are read before.
    """

    def __init__(self, run: tuple[Iterable[ast.stmt], set[str] | None]) -> None:
        statements, self._of_program = run
        self.bound: set[str] = set()
        self.needed: set[str] = set()
        self._functions: dict[str, set[str]] = {}
        for statement in statements:
            self._follow(statement)

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._define(node)
        elif isinstance(node, ast.Lambda):
            self._follow_all((*node.args.defaults, *filter(None, node.args.kw_defaults)))
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehend(node)
        elif isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, (ast.If, ast.IfExp, ast.Try)):
            self._follow_guarded(node)
        else:
            self._follow_all(_in_order(node))
            for name in _bound_by(node):
                self.bound.add(name)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self.needed |= self._functions.get(node.func.id, set()) - self.bound

    def _follow_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self._follow(node)

    def _follow_guarded(self, node: ast.If | ast.IfExp | ast.Try) -> None:
        """Follow a branch that may ask first whether a variable is there, or go on where it is not."""
        if isinstance(node, ast.Try):
            before, asked = set(self.needed), None if _catches_name_error(node) else set[str]()
        else:
            self._follow(node.test)
            before, asked = set(self.needed), set(_names_asked_for(node.test))
        body = node.body if isinstance(node.body, list) else [node.body]
        self._follow_all(body)
        self.needed -= (self.needed if asked is None else asked) - before
        self._follow_all(part for part in ast.iter_child_nodes(node) if part not in body and part is not _test_of(node))

    def _name(self, node: ast.Name) -> None:
        if self._of_program is not None and node.id not in self._of_program:
            return
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif node.id not in self.bound:
            self.needed.add(node.id)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._follow_all(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            self._follow_all((*node.bases, *node.keywords))
            inside = _Reader((node.body, None))
            self.needed |= inside.needed - self.bound
        else:
            self._follow_all((*node.args.defaults, *filter(None, node.args.kw_defaults)))
            self._functions[node.name] = _free_names(node)
        self.bound.add(node.name)

    def _comprehend(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """Follow a comprehension: its targets are its own, what it reads besides is read at once."""
        inside = _Reader(((), None))
        for part in node.generators:
            inside._follow_all((part.iter, part.target, *part.ifs))
        inside._follow_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        own = {one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)}
        for name in inside.needed:
            self._name(ast.Name(name, ast.Load()))
        self.bound |= inside.bound - own  # by ``:=``


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of *node* as they are run: a value before its target."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        if node.value is not None:
            yield node.value
            yield from node.targets if isinstance(node, ast.Assign) else [node.target]
    elif isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name):
            yield ast.Name(node.target.id, ast.Load())
        yield node.value
        yield node.target
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.iter
        yield node.target
        yield from (*node.body, *node.orelse)
    else:
        yield from ast.iter_child_nodes(node)


def _test_of(node: ast.If | ast.IfExp | ast.Try) -> ast.expr | None:
    return None if isinstance(node, ast.Try) else node.test


def _names_asked_for(test: ast.expr) -> Iterator[str]:
    """Yield the variables of which *test* asks whether they are there: ``"timer" in globals()``."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(ast.Constant(str(name)), [ast.In()], [ast.Call(ast.Name(asked), [])]) if asked in _TABLES:
                yield name


def _catches_name_error(node: ast.Try) -> bool:
    caught = [one for handler in node.handlers for one in ast.walk(handler.type or ast.Name("NameError", ast.Load()))]
    return any(isinstance(one, ast.Name) and one.id in _NAME_ERRORS for one in caught)


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that *node* binds without an `ast.Name` for them."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _free_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that *function* reads and does not bind itself."""
    own = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    names = [node for one in function.body for node in ast.walk(one) if isinstance(node, ast.Name)]
    of_others = {
        name for one in ast.walk(function) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names
    }
    own |= {node.id for node in names if not isinstance(node.ctx, ast.Load)} - of_others
    own |= {arg.arg for one in ast.walk(function) if isinstance(one, _SCOPES) for arg in ast.walk(one.args)
            if isinstance(arg, ast.arg)}  # fmt: skip
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - own
