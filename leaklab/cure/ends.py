"""Write lines where code ends: the run, the function that a statement is in, the run that calls it."""

from __future__ import annotations

import ast
import builtins
import enum
import keyword
import re
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from leaklab.cure.case import Case, name_of
from leaklab.cure.edits import local_names, own_nodes, with_names
from leaklab.cure.live import MISSING, attribute, evaluate, has_method
from leaklab.cure.source import FUNCTIONS, Patch, SourceText

_MOST_CALLERS = 3
"""From the function that keeps so many calls are followed up to the run."""
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Written(enum.IntEnum):
    """Where lines were written that undo something; true if anywhere."""

    NOWHERE = 0
    AT_END = 1
    BEFORE_NEXT = 2


class Later(enum.Enum):
    """Whether what a statement registers is for what comes after the run: for the events of a window, of a clock."""

    NEVER = enum.auto()
    IF_LAST = enum.auto()
    """If the run does nothing with it: nothing is called behind the statement."""
    ALWAYS = enum.auto()


def end_of(
    case: Case,
    source: SourceText,
    statement: ast.stmt,
    patch: Patch,
    lines: list[str],
    *,
    n_above: int = _MOST_CALLERS,
    later: Later = Later.NEVER,
) -> Written:
    """Write *lines* where the code ends that *statement* is in: the run, or the function that it calls.

    In a function only what the function itself makes can be undone there, and what it returns must be computed before.
    Where nothing happens behind the statement they are written where that function is called, in the words used there.
    What is registered for *later* is undone by the next run of the cell, not at the end of its own.
    """
    function = source.function_of(statement)
    if function is None or is_of_run(case, source, statement):
        is_later = later is Later.ALWAYS or (later is Later.IF_LAST and _is_last(case, statement))
        if is_later and _before_next(case, source, statement, patch, lines):
            return Written.BEFORE_NEXT
        return _at_end_of_run(case, source, statement, patch, lines)
    if isinstance(function, ast.Lambda):
        return Written.NOWHERE
    if function.name == "__init__":
        return _at_end_of_owner(case, source, statement, patch, lines, later=later)
    if not _does_more(function, statement) or _is_callers(function, lines) or _is_returned(function, lines):
        site = call_site(case, source, function) if n_above else None
        translated = None if site is None else site.translated(lines, function)
        if site is None or translated is None:
            return Written.NOWHERE
        return end_of(case, site.source, site.statement, patch, translated, n_above=n_above - 1, later=later)
    return at_end_of(case, source, function, patch, lines)


def at_end_of(
    case: Case, source: SourceText, function: ast.FunctionDef | ast.AsyncFunctionDef, patch: Patch, lines: list[str]
) -> Written:
    """Write *lines* where *function* ends; what it returns is computed before. Nowhere where it may return earlier."""
    last = function.body[-1]
    if isinstance(last, ast.Return):
        if last.value is not None and not isinstance(last.value, (ast.Name, ast.Constant)):
            result = case.fresh("result")
            patch.replace(source, last, f"{result} = {source.text_of(last.value)}")
            patch.after(source, last, [*lines, f"return {result}"])
        else:
            patch.before(source, last, lines)
    else:
        patch.after(source, last, lines)
    returns_before = any(isinstance(node, ast.Return) and node is not last for node in own_nodes(function))
    return Written.NOWHERE if returns_before else Written.AT_END


def is_of_run(case: Case, source: SourceText, statement: ast.stmt) -> bool:
    """Return whether *statement* is in the code that runs again itself, not in a function that it calls."""
    function = source.function_of(statement)
    of_run = case.cell.function_of(case.run_body[0]) if case.cell is not None and case.run_body else None
    return function is of_run and source.filename == case.program.checked


def _at_end_of_run(case: Case, source: SourceText, statement: ast.stmt, patch: Patch, lines: list[str]) -> Written:
    """Write *lines* where the run ends, or the turn of the loop that *statement* is in.

    A loop in *lines* ends what all turns have collected.
    """
    if source.filename != case.program.checked:
        return Written.NOWHERE
    loop = next(source.loops_around(statement), None)
    if loop is not None and not lines[0].startswith("for "):
        patch.after(source, loop.body[-1], lines)
    else:
        case.at_end_of_run(patch, *lines)
    return Written.AT_END


def _is_last(case: Case, statement: ast.stmt) -> bool:
    """Return whether the run calls nothing behind *statement*."""
    top = next((place for place, one in enumerate(case.run_body) if statement in ast.walk(one)), None)
    below = [] if top is None else case.run_body[top + 1 :]
    return top is not None and not any(isinstance(node, ast.Call) for one in below for node in ast.walk(one))


_OWN_UNDO = re.compile(r"[\w.]+\(\)")


def _before_next(case: Case, source: SourceText, statement: ast.stmt, patch: Patch, lines: list[str]) -> bool:
    """Write *lines*, which undo what *statement* of a cell does, where the next run of the cell begins to do it anew.

    They use what the run before has left in the cell's variables, and the first run has nothing to undo; or they call
    a method that needs nothing, ``stack.close()``.
    """
    if case.program.function or source is not case.cell or next(source.loops_around(statement), None) is not None:
        return False
    bound = case.bound_in_run()
    named = {node.id for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Name)}
    of_run = sorted(name for name in named if name in bound or name not in {*case.program.namespace, *dir(builtins)})
    first = next((one for one in case.run_body if _binds(one, of_run) or statement in ast.walk(one)), None)
    if first is None or any(case.is_deleted_in_run(name) or _is_begun_elsewhere(case, name) for name in of_run):
        return False
    if of_run:
        guarded = [f'if "{of_run[0]}" in globals():', *(f"    {line}" for line in lines)]
        patch.before(source, first, guarded, on_top=True)
    elif all(map(_OWN_UNDO.fullmatch, lines)):
        patch.before(source, first, lines, on_top=True)
    else:
        return False
    return True


def _is_begun_elsewhere(case: Case, name: str) -> bool:
    """Return whether other code gives *name* a value of another kind, which then stands there before the first run."""
    of_run = {ast.unparse(one) for one in case.run_body}
    others = (one for source in case.sources if source is not case.cell for one in source.tree.body)
    return any(_binds(one, [name]) and ast.unparse(one) not in of_run for one in others)


def _binds(statement: ast.stmt, names: list[str]) -> bool:
    """Return whether *statement* gives one of *names* a value."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return statement.name in names
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names
        for node in ast.walk(statement)
    )


def _does_more(function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.stmt) -> bool:
    """Return whether anything is called in *function* after *statement*: else the hook would be gone before its use."""
    calls = (node for node in own_nodes(function) if isinstance(node, ast.Call))
    return any(call.lineno > (statement.end_lineno or statement.lineno) for call in calls)


def _is_callers(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> bool:
    """Return whether *lines* undo what the caller of *function* has handed in: that is in use until the caller ends."""
    given = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    calls = (node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Call))
    return any(isinstance(arg, ast.Name) and arg.id in given - {"self"} for call in calls for arg in call.args)


def _is_returned(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> bool:
    """Return whether *lines* end what *function* returns: its caller is to use that."""
    last = function.body[-1]
    name = last.value.id if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) else ""
    calls = (node.func for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Call))
    return bool(name) and any(
        isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == name for one in calls
    )


@dataclass(frozen=True)
class CallSite:
    """The one statement that calls a function.

    Attributes:
        source: Its file.
        statement: The statement.
        names: What stands there for the function's own variables: arguments, the object of a method, the result.
        variables: What else can be named there.
    """

    source: SourceText
    statement: ast.stmt
    names: dict[str, str]
    variables: Collection[str]

    def translated(self, lines: list[str], function: ast.AST) -> list[str] | None:
        """Return *lines*, meant for the end of *function*, in the words of the caller; None where it lacks one."""
        text = "\n".join(lines)
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
        own = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        free = {node.id for node in nodes} - own - self.names.keys()
        is_known = all(name in self.variables and name not in local_names(function) for name in free)
        return with_names(text, self.names).split("\n") if is_known else None


def call_site(case: Case, source: SourceText, function: ast.FunctionDef | ast.AsyncFunctionDef) -> CallSite | None:
    """Return the only statement that calls *function*: of the run, of another function of its file, of another file."""
    found = [] if case.cell is None else _calls_in(case.cell, case.run_body, function)
    for texts in ((source,), [one for one in case.sources if one is not source]):
        for text in texts if not found else ():
            others = [node for node in text.nodes if isinstance(node, FUNCTIONS) and node is not function]
            found += [call for other in others for call in _calls_in(text, other.body, function)]
    if len(found) != 1:
        return None
    of, call = found[0]
    statement = of.statement_of(call)
    if statement is None:
        return None
    names = dict(_names_at(of, statement, call, source, function))
    return CallSite(of, statement, names, {*case.program.namespace, *dir(builtins)})


def _calls_in(
    source: SourceText, body: list[ast.stmt], function: ast.FunctionDef | ast.AsyncFunctionDef
) -> list[tuple[SourceText, ast.Call]]:
    calls = (node for one in body for node in ast.walk(one) if isinstance(node, ast.Call))
    return [(source, call) for call in calls if name_of(call.func) == function.name and not _is_repeated(source, call)]


def _is_repeated(source: SourceText, call: ast.Call) -> bool:
    return any(isinstance(above, (ast.ListComp, ast.GeneratorExp)) for above in source.above(call))


def _names_at(
    of: SourceText,
    statement: ast.stmt,
    call: ast.Call,
    source: SourceText,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[str, str]]:
    """Yield the variables of *function* that have words where it is called: a constant, a variable, an attribute."""
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    given: list[tuple[str, ast.expr]] = []
    if source.class_of(function) is not None and isinstance(call.func, ast.Attribute) and parameters:
        given.append((parameters.pop(0), call.func.value))
    given += zip(parameters, call.args, strict=False)
    given += [(word.arg, word.value) for word in call.keywords if word.arg]
    last = function.body[-1]
    if isinstance(statement, ast.Assign) and statement.value is call and isinstance(last, ast.Return):
        given += [(last.value.id, statement.targets[0])] if isinstance(last.value, ast.Name) else []
    for name, node in given:
        text = of.text_of(node)
        if isinstance(node, ast.Constant) or _PLACE.fullmatch(text):
            yield name, text


def _at_end_of_owner(
    case: Case, source: SourceText, statement: ast.stmt, patch: Patch, lines: list[str], *, later: Later
) -> Written:
    """Write *lines*, meant for the ``__init__`` that *statement* is in, where the run ends that makes the object.

    What they use of the variables of ``__init__`` becomes an attribute of the object.
    """
    function = source.function_of(statement)
    owner = source.class_of(function) if function is not None else None
    receiver = receiver_of(function)
    made = [] if owner is None else list(made_in_run(case, owner.name))
    elsewhere = [] if owner is None or made else list(_made_in_functions(case, owner.name))
    unnamed = [] if owner is None or made or elsewhere else list(_made_unnamed(case, owner.name))
    if len(made) + len(elsewhere) + len(unnamed) != 1 or not receiver:
        return Written.NOWHERE
    name = made[0] if made else elsewhere[0][2] if elsewhere else case.fresh(word_for(unnamed[0][2]))
    text = "\n".join(lines)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    own = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    kept = sorted(({node.id for node in nodes} - own - {receiver, *case.program.namespace}) & local_names(function))
    if kept:
        patch.after(source, statement, [f"{receiver}.{one} = {one}" for one in kept])
    renamed = {receiver: name, **{one: f"{name}.{one}" for one in kept}}
    written = with_names(text, renamed).split("\n")
    if elsewhere:
        return end_of(case, *elsewhere[0][:2], patch, written, n_above=_MOST_CALLERS - 1)
    if unnamed:
        return _behind_unnamed(case, unnamed[0], name, patch, written)
    making = next(one for one in case.run_body if _binds(one, [name]))
    is_made_always = isinstance(making, ast.Assign) and not kept
    if is_made_always and _registers_own_method(owner, statement, receiver) and _has_now(case, name, written):
        later = Later.ALWAYS  # it is in use as long as the object is
    return end_of(case, case.cell, making, patch, written, later=later) if case.cell is not None else Written.NOWHERE


def _registers_own_method(owner: ast.ClassDef | None, statement: ast.stmt, receiver: str) -> bool:
    """Return whether *statement* gives a method of its own object away: ``bus.connect(self.refresh)``."""
    methods = {one.name for one in owner.body if isinstance(one, FUNCTIONS)} if owner is not None else set()
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    given = [arg for call in calls for arg in (*call.args, *(word.value for word in call.keywords))]
    return any(
        isinstance(one, ast.Attribute) and one.attr in methods and name_of(one.value) == receiver for one in given
    )


def _has_now(case: Case, name: str, lines: list[str]) -> bool:
    """Return whether the object that is now called *name* has what *lines* use of it: no change has run for it yet."""
    found = evaluate(name, case.program.namespace)
    nodes = [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in nodes if name_of(node.value) == name and isinstance(node.value, ast.Name)}
    is_there = (attribute(found, one) is not MISSING or has_method(found, one) for one in used)
    return found is not MISSING and all(is_there)


def _made_unnamed(case: Case, name: str) -> Iterator[tuple[SourceText, ast.stmt, ast.Call]]:
    """Yield the statements whose value begins with making an object of the class *name*: ``return Cam(net)(image)``."""
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, (ast.Return, ast.Assign, ast.Expr)) or node.value is None:
                continue
            for call in (one for one in ast.walk(node.value) if isinstance(one, ast.Call)):
                is_first = source.span(call)[0] == source.span(node.value)[0] and call is not node.value
                is_rerun = source.function_of(node) is not None or is_of_run(case, source, node)
                if is_first and is_rerun and name_of(call.func) == name:
                    yield source, node, call


def _behind_unnamed(
    case: Case, made: tuple[SourceText, ast.stmt, ast.Call], name: str, patch: Patch, lines: list[str]
) -> Written:
    """Give an object that a statement makes a *name* above that, and write *lines* behind its use."""
    source, statement, call = made
    start, end = source.span(statement)
    at = source.span(call)
    used = source.text[start : at[0]] + name + source.text[at[1] : end]
    above = f"{name} = {source.text_of(call)}"
    if not isinstance(statement, ast.Return):
        patch.before(source, statement, [above])
        patch.replace(source, call, name)
        return end_of(case, source, statement, patch, lines, n_above=0)
    if list(source.loops_around(statement)):
        return Written.NOWHERE
    result = case.fresh("result")
    written = [above, f"{result} ={used.removeprefix('return')}", *lines, f"return {result}"]
    patch.replace(source, statement, f"\n{source.indent_of(statement.lineno)}".join(written))
    return Written.AT_END


def kept_name(case: Case, source: SourceText, statement: ast.stmt, word: str) -> str:
    """Return a name for what *statement* makes and the end of its code needs: *word*, or an attribute of the object.

    It is an attribute where the end is not that of the function.
    """
    function = source.function_of(statement)
    if not isinstance(function, FUNCTIONS) or source.class_of(function) is None or is_of_run(case, source, statement):
        return case.fresh(word)
    is_later = function.name == "__init__" or not _does_more(function, statement)
    return f"{receiver_of(function)}.{word}" if is_later and receiver_of(function) else case.fresh(word)


def receiver_of(function: ast.AST | None) -> str:
    """Return what a method calls its object."""
    return function.args.args[0].arg if isinstance(function, FUNCTIONS) and function.args.args else ""


def made_in_run(case: Case, name: str) -> Iterator[str]:
    """Yield the variables of the run that an object of the class *name* is assigned to."""
    nodes = (node for statement in case.run_body for node in ast.walk(statement))
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if name_of(node.value.func) == name and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def _made_in_functions(case: Case, name: str) -> Iterator[tuple[SourceText, ast.stmt, str]]:
    """Yield the statements of functions that assign an object of the class *name*, each with the variable."""
    for source in case.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Assign) or source.function_of(node) is None:
                continue
            target, made = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(made, ast.Call) and name_of(made.func) == name:
                yield source, node, target.id


def statements(case: Case) -> Iterator[tuple[SourceText, ast.stmt]]:
    """Yield the statements that keep and make what leaks, and those that call the functions they are in.

    Those of the run come before those of other functions of the same files.
    """
    names: list[str] = []
    for source, statement in case.statements:
        function = source.function_of(statement)
        names += _called_as(source, function) if isinstance(function, FUNCTIONS) else []
        yield source, statement
    yield from ((source, statement) for source, statement, called in case.calling if not called.isdisjoint(names))


def _called_as(source: SourceText, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names by which *function* is called: that of its class where it makes the object."""
    owner = source.class_of(function)
    yield owner.name if owner is not None and function.name == "__init__" else function.name


def definition_of(case: Case, function: types.FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the text of *function*."""
    source, line = case.source(function.__code__.co_filename), function.__code__.co_firstlineno
    nodes = [] if source is None else [node for node in source.nodes if isinstance(node, FUNCTIONS)]
    lines = {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node for node in nodes}
    return lines.get(line)


def word_for(node: ast.expr) -> str:
    """Return a name for what *node* makes: of ``RandomSampler(data)`` its last word."""
    if isinstance(node, ast.Call):
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name_of(node.func))
        name = words[-1].lower() if words else ""
        return name if name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name) else "entry"
    return "callback"
