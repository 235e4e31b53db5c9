"""Name what could still end the growth of a container: a branch of the code that no run has taken yet.

After a few runs a cache that fills and a leak have the same counts. The code tells them apart: what can end the growth
is a branch that was never taken, to the code that drops entries or past the code that adds them. Where every such
branch was seen both ways, or there is none, the growth has been through all that the code can do about it.

What was seen (`leaklab.lines.branches`) is read on the syntax tree: by the names under which the code knows a
container, and by calls of functions that change it. A way to empty the container that nobody calls ends nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from leaklab.lines.branches import BranchWatch, Names
from leaklab.lines.ran_files import ParsedFile, RanFile, note_running
from leaklab.lines.syntax import (
    FUNCTION_NODES,
    NamesHere,
    asks_data,
    asks_for_attribute,
    asks_kind,
    changed_in,
    counted_in,
    is_from_iterator,
    is_missing,
    is_of_time,
    keeps_record,
    kept_by,
    last_name,
    own_nodes,
)
from leaklab.runtime.ours import Origin, origin_of
from leaklab.text import shorten

NO_NAMES = Names(frozenset())
MOST_ASKED = 64
"""Of so many containers the code is read, some milliseconds each."""


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """A branch that went one way only.

    Attributes:
        filename: Of the code.
        line: Where the condition stands, or the code that never ran.
        words: What was not seen, as the end of a sentence.
        drops: Whether behind it entries are dropped: not only none added.
    """

    filename: str
    line: int
    words: str
    drops: bool = False


@dataclass(frozen=True, slots=True)
class CodeReading:
    """What the code says about the growth of a container.

    Attributes:
        branch: One that could end the growth and was never taken; None if there is none.
        is_filled: Whether code that adds to the container was seen to run.
        limit: Code that ran and keeps what it fills from growing for ever: a cache that finds keys again, a window of
            the newest; None if there is none.
        is_emptied: Whether code that drops entries was seen to run.
        is_new: Whether what was seen to run adds an entry more each time: not under a key that may come again.
        names: By which the code knows the container, where it is to be read later.
    """

    branch: OpenBranch | None = None
    is_filled: bool = False
    limit: OpenBranch | None = None
    is_emptied: bool = False
    is_new: bool = True
    names: Names = NO_NAMES

    @property
    def is_endless(self) -> bool:
        """Whether the code was seen to fill the container, and has nothing that could end that."""
        return self.is_filled and self.is_new and not (self.branch or self.limit or self.is_emptied)


class OpenBranches:
    """Answers for one container after the other, as long as *watch* sees no further run.

    Args:
        watch: What was seen of the user's functions. Where some of them run already, it has seen a part of a loop:
            what stands before that loop in its function drops nothing any more.
    """

    def __init__(self, watch: BranchWatch) -> None:
        self._watch = watch
        self._files: dict[str, _RunFile] | None = None
        self._readings: dict[int, CodeReading] = {}
        self._n_asked = 0

    def of(self, names: Names) -> CodeReading:
        """Return what the code says about a container; after `MOST_ASKED` of them nothing is read of all others."""
        if names.address in self._readings:
            return self._readings[names.address]
        self._n_asked += 1
        reading = self._read(names) if self._n_asked <= MOST_ASKED else CodeReading()
        if names.address:
            self._readings[names.address] = reading
        return reading

    def unseen_growth(self) -> OpenBranch | None:
        """Return code that would add to something that outlives a run, and that no run has reached yet."""
        found = (program.unseen_growth() for program in self._programs(NO_NAMES).values())
        return next((one for one in found if one is not None), None)

    def _read(self, names: Names) -> CodeReading:
        readings = [program.read(names) for program in self._programs(names).values()]
        return CodeReading(
            next((one.branch for one in readings if one.branch is not None), None),
            any(one.is_filled for one in readings),
            next((one.limit for one in readings if one.limit is not None), None),
            any(one.is_emptied for one in readings),
            all(one.is_new for one in readings),
        )

    def _programs(self, names: Names) -> dict[str, _RunFile]:
        """Return the files of what ran, with what was seen of it for *names*."""
        codes = list(self._watch.codes(names))
        if self._files is None:
            self._files = _files_of([code for code, _seen in codes])
            note_running(self._files, self._watch.running)
        files = self._files
        other = {
            code.co_filename
            for code, seen in codes
            if code.co_filename in files and files[code.co_filename].see(code, seen)
        }
        for filename in other:
            files[filename].look()
        return files


def _files_of(codes: Iterable[CodeType]) -> dict[str, _RunFile]:
    """Return the files of *codes*, all that ran, by their names; of one that cannot be read nothing."""
    sources: dict[str, ParsedFile | None] = {}
    files: dict[str, _RunFile] = {}
    for code in codes:
        filename = code.co_filename
        if filename not in sources:
            sources[filename] = ParsedFile.of(filename)
        if (source := sources[filename]) is not None:
            files.setdefault(filename, _RunFile(source, filename)).add(code)
    calls = [call for file in files.values() for call in file.own_calls()]
    for file in files.values():
        file.note_what_changes(calls)
    return files


def _given_container(call: ast.Call, callee: ast.FunctionDef | ast.AsyncFunctionDef, known: NamesHere) -> Iterator[str]:
    """Yield the parameters of *callee* that *call* gives the container itself."""
    names = [one.arg for one in (*callee.args.posonlyargs, *callee.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    for name, given in zip(names, call.args, strict=False):
        if isinstance(given, (ast.Name, ast.Attribute)) and known.is_container(given):
            yield name
    for word in call.keywords:
        if (
            word.arg is not None
            and isinstance(word.value, (ast.Name, ast.Attribute))
            and known.is_container(word.value)
        ):
            yield word.arg


_LEAVING = (ast.Return, ast.Continue, ast.Break)
_TEXT_LIMIT = 60
_DEPTH = 4
"""So many calls above the code that changes a container are looked at."""


class _RunFile(RanFile):
    """One file of the user's, with what ran of it."""

    def __init__(self, source: ParsedFile, filename: str) -> None:
        super().__init__(source, filename)
        self._is_users = origin_of(filename) is Origin.USER
        self._changed: set[str] = set()  # names of what runs may change, without those of the container
        self._changing: set[str] = set()  # ... and with them
        self._counted: set[str] = set()  # names of what runs count up
        self._container = NamesHere((), set())
        self._known: dict[ast.AST, NamesHere] = {}  # by function, with the other names that it gives the container
        self._has_identity_keys = False

    def read(self, names: Names) -> CodeReading:
        """As `OpenBranches.of`, in this file."""
        adding, dropping = self._sites(names)
        self._note_names(names)
        running = [site for site in self._with_calls(adding) if self._has_run(site)]
        dropped = [site for site in self._with_calls(dropping) if self._has_run(site)]
        # That a library might have added nothing is no reason to wait: what ends growth there is what drops.
        branch = next(filter(None, map(self._way_past, running)), None) if self._is_users else None
        # What has run is seen to drop nothing, by whichever call: `stream.flush()`.
        for site in self._with_calls([site for site in dropping if not self._has_run(site)]):
            if site not in dropped and not self._is_shut(site) and not self._is_over(site):
                line = getattr(site, "lineno", 0)
                branch = OpenBranch(
                    self._filename, line, f"line {line}, which drops entries, has not run yet", drops=True
                )
                break
        limits = (self._limit_of(site) for site in (*running, *dropped))
        return CodeReading(
            branch,
            bool(running),
            next(filter(None, limits), None),
            any(self._function_name(site) != "__init__" for site in dropped),
            all(map(self._is_new, running)),
        )

    def unseen_growth(self) -> OpenBranch | None:
        """As `OpenBranches.unseen_growth`, in this file."""
        self._note_names(NO_NAMES)
        for function, code in self._codes.items():
            own = {*code.co_varnames, *code.co_cellvars}
            for node in own_nodes(function):
                if (kept := kept_by(node)) is None or (isinstance(kept, ast.Name) and kept.id in own):
                    continue
                if not self._has_run(node) and self._may_run_later(node):
                    text, line = shorten(ast.unparse(node), _TEXT_LIMIT), kept.lineno
                    return OpenBranch(self._filename, line, f"`{text}` in line {line} has not run yet")
        return None

    def note_what_changes(self, calls: Sequence[ast.Call]) -> None:
        """Note what the functions of this file change and count; *calls* are all that stand in functions that ran."""
        self._changed = {name for function in self._codes for name in changed_in(function, calls)}
        self._counted = {name for function in self._codes for name in counted_in(function)}

    def _note_names(self, names: Names) -> None:
        own = {name for code in self._codes.values() for name in names.in_code(code)}
        self._container, self._has_identity_keys = NamesHere(names.anywhere, own), names.has_identity_keys
        self._changing = {*self._changed, *names.anywhere, *own}

    def _is_shut(self, site: ast.AST) -> bool:
        """Return whether *site* stands behind a condition that was asked and cannot turn."""
        node = site
        while (above := self._parents.get(node)) is not None and not isinstance(node, FUNCTION_NODES):
            if isinstance(above, ast.If) and node is not above.test and self._has_run(above.test):
                is_body = node in above.body
                if not self._went(above, into=is_body) and not self._may_turn(above.test, past_body=not is_body):
                    return True
            node = above
        return False

    def _may_run_later(self, node: ast.AST) -> bool:
        """Return whether *node* stands behind a condition that may turn, and not where an error is handled."""
        is_behind = False
        while (above := self._parents.get(node)) is not None and not isinstance(node, FUNCTION_NODES):
            if isinstance(above, ast.ExceptHandler):
                return False
            if isinstance(above, ast.If) and node is not above.test and self._has_run(above.test):
                is_behind |= is_of_time(above.test, self._counted) and self._may_turn(
                    above.test, past_body=node in above.orelse
                )
            node = above
        return is_behind

    def _sites(self, names: Names) -> tuple[list[ast.AST], list[ast.AST]]:
        """Return the code that adds to the container and the code that drops from it.

        Only code of functions that ran counts: a way to empty the container that nobody calls ends nothing.
        """
        adding: list[ast.AST] = []
        dropping: list[ast.AST] = []
        for function, code in self._codes.items():
            known = NamesHere(names.anywhere, set(names.in_code(code)))
            for node in own_nodes(function):  # `items = self.items`: another name for it here; a slice is a copy
                if not isinstance(node, ast.Assign) or isinstance(getattr(node.value, "slice", None), ast.Slice):
                    continue
                if known.is_container(node.value):
                    other_names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                    known.variables |= other_names
                    known.entries |= other_names if isinstance(node.value, (ast.Subscript, ast.Call)) else set()
            self._known[function] = known
        self._name_parameters()
        for function in self._codes:
            for node in own_nodes(function):
                if effect := self._known[function].effect_of(node):
                    (adding if effect > 0 else dropping).append(node)
        return adding, [*dropping, *self._droppers(names)]

    def _name_parameters(self) -> None:
        """Note the parameters by which functions of this file that are given the container know it: ``trim(items)``."""
        called = {getattr(function, "name", ""): function for function in self._codes}
        for _ in range(_DEPTH):
            found = False
            for function, known in self._known.items():
                calls = (node for node in own_nodes(function) if isinstance(node, ast.Call))
                for call in calls:
                    callee = called.get(last_name(call.func))
                    if isinstance(callee, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        fresh = set(_given_container(call, callee, known)) - self._known[callee].variables
                        self._known[callee].variables |= fresh
                        found |= bool(fresh)
            if not found:
                return

    def _droppers(self, names: Names) -> Iterator[ast.AST]:
        """Yield the code of functions that have not run and that would drop entries, found by attributes alone.

        Where one of the same name has run, as the ``emit`` of another class, a call by that name leads to that one.
        """
        known, ran = NamesHere(names.anywhere, set()), {getattr(function, "name", "") for function in self._codes}
        for function in self._parents:
            is_idle = isinstance(function, FUNCTION_NODES) and function not in self._codes
            if is_idle and getattr(function, "name", "") not in ran:
                yield from (node for node in own_nodes(function) if known.effect_of(node) < 0)

    def _with_calls(self, sites: list[ast.AST]) -> list[ast.AST]:
        """Return those of *sites* in functions that ran, and the calls in such functions that lead to *sites*."""
        found, new = [site for site in sites if self._is_reached(site)], sites
        for _ in range(_DEPTH):
            functions = {name for site in new if (name := self._function_name(site))}
            new = [call for call in self._calls(functions) if call not in found]
            found += new
            if not new:
                break
        return found

    def _limit_of(self, site: ast.AST) -> OpenBranch | None:
        """Return what keeps *site*, which ran, from filling the container for ever; *site* may trim it, too."""
        if self._here(site).trims(site):
            return self._branch(site, "`{}` in line {} keeps a part only")
        key = self._here(site).key_of(site)
        if key is not None and any(isinstance(part, ast.Mod) for part in ast.walk(key)):
            return self._branch(key, "the key `{}` in line {} comes again")
        asks_first = isinstance(site, ast.AugAssign) or self._is_setdefault(site)
        if key is not None and asks_first and not self._is_new(site):
            return self._branch(site, "`{}` in line {} finds keys again, as a cache does")
        if (handler := self._handler_of(site)) is not None:
            line = handler.lineno
            return OpenBranch(self._filename, line, f"line {line} is for keys that are missing, as in a cache")
        found = next((test for test in self._asked_before(site) if self._here(site).asks_for_key(test)), None)
        return None if found is None else self._branch(found, "`{}` in line {} finds keys again, as a cache does")

    def _is_setdefault(self, site: ast.AST) -> bool:
        """Return whether *site* is a call of ``setdefault``, and nothing is put into what that returns."""
        return isinstance(site, ast.Call) and not isinstance(self._parents.get(site), ast.Attribute)

    def _handler_of(self, site: ast.AST) -> ast.ExceptHandler | None:
        """Return the handler of a failed look into the container in which *site* stands."""
        node = site
        while (above := self._parents.get(node)) is not None and not isinstance(node, FUNCTION_NODES):
            if isinstance(above, ast.Try) and isinstance(node, ast.ExceptHandler):
                looks = (part for one in above.body for part in ast.walk(one) if isinstance(part, ast.Subscript))
                return node if any(self._here(site).is_container(look.value) for look in looks) else None
            node = above
        return None

    def _is_new(self, site: ast.AST) -> bool:
        """Return whether *site* adds one more each time: under a key that is counted up, or under none."""
        key = self._here(site).key_of(site)
        if key is None or self._has_identity_keys:
            return True
        return not self._counted.isdisjoint(map(last_name, ast.walk(key)))

    def _asked_before(self, site: ast.AST) -> Iterator[ast.expr]:
        """Yield the conditions that were seen to come out either way, and that lead to *site* or past it."""
        node: ast.AST = site
        while (above := self._parents.get(node)) is not None and not isinstance(node, FUNCTION_NODES):
            branches = [above] if isinstance(above, ast.If) and node is not above.test else []
            body = getattr(above, "body", None)
            if isinstance(body, list) and node in body:
                branches += [one for one in body[: body.index(node)] if isinstance(one, ast.If)]
            yield from (one.test for one in branches if self._went(one, into=True) and self._went(one, into=False))
            node = above

    def _here(self, site: ast.AST) -> NamesHere:
        """Return the names of the container in the function in which *site* stands."""
        return self._known.get(self._function_of(site) or self._tree, self._container)

    def _branch(self, node: ast.AST, words: str) -> OpenBranch:
        line = getattr(node, "lineno", 0)
        return OpenBranch(self._filename, line, words.format(shorten(ast.unparse(node), _TEXT_LIMIT), line))

    def _way_past(self, site: ast.AST) -> OpenBranch | None:
        """Return a branch by which the code would pass *site* by, and that was never taken."""
        node: ast.AST = site
        while (above := self._parents.get(node)) is not None and not isinstance(node, FUNCTION_NODES):
            if isinstance(above, (ast.If, ast.IfExp)) and node is not above.test:
                is_body = node in above.body if isinstance(above.body, list) else node is above.body
                if (
                    not self._went(above, into=not is_body)
                    and self._may_turn(above.test, past_body=is_body)
                    and not (is_body and keeps_record(above))
                ):
                    return self._one_way(above.test)
            for block in ("body", "orelse", "finalbody", "handlers"):
                statements = getattr(above, block, None)
                if isinstance(statements, list) and node in statements:
                    for before in statements[: statements.index(node)]:
                        if (found := self._unseen_exit(before)) is not None:
                            return found
            if isinstance(above, ast.BoolOp) and node is not above.values[0]:
                return self._one_way(above.values[0])
            if isinstance(above, ast.While) and self._here(site).asks_for(above.test) and not self._is_left(above):
                return self._one_way(above.test)
            node = above
        return None

    def _unseen_exit(self, statement: ast.stmt) -> OpenBranch | None:
        """Return a branch in *statement* to a ``return``, ``continue`` or ``break`` that was never taken."""
        if not isinstance(statement, (ast.If, ast.With, ast.Try)):
            return None
        for node in ast.walk(statement):
            if isinstance(node, _LEAVING) and self._function_of(node) is self._function_of(statement):
                branch = self._parents[node]
                is_body = isinstance(branch, ast.If) and node in branch.body
                if (
                    isinstance(branch, ast.If)
                    and not asks_kind(branch.test)
                    and not self._went(branch, into=is_body)
                    and self._may_turn(branch.test, past_body=not is_body)
                ):
                    return self._one_way(branch.test)
        return None

    def _may_turn(self, test: ast.expr, *, past_body: bool) -> bool:
        """Return whether *test* may come out differently later: not if nothing that runs changes what it asks for."""
        if self._asks_for_new_key(test) or asks_for_attribute(test):
            return False
        if is_missing(test, past_body=past_body):
            return is_from_iterator(test, self._function_of(test) or self._tree)
        if asks_data(test, self._container, self._counted):
            return False
        parts = list(ast.walk(test))
        asks_plainly = not any(isinstance(part, (ast.Call, ast.Subscript, ast.Await, ast.NamedExpr)) for part in parts)
        return not (asks_plainly and self._changing.isdisjoint(map(last_name, parts)))

    def _asks_for_new_key(self, test: ast.expr) -> bool:
        """Return whether *test* looks for a key in the container that only the very same object could be."""
        here = self._here(test)
        return self._has_identity_keys and (self._container.asks_for_key(test) or here.asks_for_new_entry(test))

    def _one_way(self, test: ast.expr) -> OpenBranch:
        return self._branch(test, "`{}` in line {} has gone one way only")
