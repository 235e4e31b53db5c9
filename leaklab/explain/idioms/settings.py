"""What is put in place for a while and must be brought back: handlers, functions of modules, settings, contexts."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import types
from collections.abc import Iterator
from dataclasses import replace

from leaklab.cure.case import Case, name_of
from leaklab.cure.ends import call_site, end_of, is_of_run, statements
from leaklab.cure.live import evaluate
from leaklab.cure.source import FUNCTIONS, Patch, Proposal, SourceText
from leaklab.explain.counterparts import SCOPES
from leaklab.explain.idioms.advice import Advice, named
from leaklab.explain.leaks.evidence import Evidence
from leaklab.lines.syntax import assigned
from leaklab.runtime.objects import is_exactly

_SET_BY = {
    "sys.getprofile()": "sys.setprofile(...)", "sys.gettrace()": "sys.settrace(...)",
    "sys.excepthook": "sys.excepthook = ...", "sys.displayhook": "sys.displayhook = ...",
    "sys.stdout": "sys.stdout = ...", "sys.stderr": "sys.stderr = ...",
}  # fmt: skip
"""What the interpreter has one of, by the expression for it, and what puts another one in its place."""
_CALLED = (types.FunctionType, types.MethodType, functools.partial)


def chained_handler(e: Evidence) -> Advice | None:
    """Of what the interpreter has one each run installs another, which keeps the one before it."""
    first = e.path.steps[0].reference if e.path.steps else ""
    number = re.fullmatch(r"signal\.getsignal\((\d+)\)", first)
    call = f"signal.signal({number[1]}, ...)" if number else _SET_BY.get(first, "")
    if not call or e.in_cycle or e.crossing is None or e.is_collected:
        return None
    what = "signal handler" if number else "one"
    back = call.replace("...", "previous")
    return Advice(
        f"Every run installs a new {what} (`{call}`), which keeps the one before it (in {named(e.place)}), and so all "
        f"of them. Put the one before back when the run ends (`{back}`, in a `finally`), or install one, outside the "
        "repeated code.",
        "Not while the new one is still needed.",
    )


_VALUE_OF = re.compile(r"value of context variable '(.+)'")
_TEES = frozenset({"itertools._tee", "itertools._tee_dataobject"})


def left_set(e: Evidence) -> Advice | None:
    """Each run sets a context variable to something that has the value before it."""
    names = [found[1] for step in e.path.steps if (found := _VALUE_OF.fullmatch(step.reference))]
    if e.path.root != "context variable" or not names or e.crossing is None or e.is_collected:
        return None
    return Advice(
        f"Every run sets the context variable {names[0]!r} to something new, which keeps what was there before "
        f"({named(e.place)}), and so all of them. Keep the token that its `set(...)` returns, and give it to "
        "`reset(token)` on every way out (`try: ... finally:`), an error's too.",
        "Not while what was set last is still to be found there.",
    )


def unread_tee(e: Evidence) -> Advice | None:
    """Of two iterators of one `itertools.tee` one is read, and the other keeps all that it has not."""
    if not any(step.kind in _TEES for step in e.steps_above):
        return None
    first = next(step.reference for step in e.steps_above if step.kind in _TEES)
    return Advice(
        f"{named(first)} is one of the iterators of `itertools.tee(...)`, and keeps all that another of them has read "
        "and it has not. Read them at one pace, or let go of the one that nobody reads on. Where the newest item is "
        "all that is wanted, keep that one instead of a second iterator.",
        "Not if it is to read everything later on; then a list takes no more room.",
    )


def left_again(case: Case) -> Iterator[Proposal]:
    """Yield how a context that is entered, or a setting that is changed, is left again: by ``with``."""
    for source, statement in statements(case):
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
            continue
        context, is_kept = _context(source, statement.value)
        if not context and (context := _of_users_class(case, statement)):
            is_kept = False
        block = source.siblings(statement)
        below = block[block.index(statement) + (not is_kept) :]
        if not context or not below:
            continue
        name = f" as {source.text_of(statement.targets[0])}" if isinstance(statement, ast.Assign) else ""
        patch = case.patch()
        if not is_kept:
            patch.remove(source, statement)
        patch.indent(source, below, f"with {context}{name}:")
        yield from case.proposal(f"Enter it by `with {context}{name}:`, so that it is left again.", patch)


def _context(source: SourceText, call: ast.Call) -> tuple[str, bool]:
    """Return the context manager that *call* should be written with, empty without one, and whether *call* stays."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "__enter__" and isinstance(call.func, ast.Attribute):
        return source.text_of(call.func.value), False
    if method == "enter_context" and len(call.args) == 1:
        return source.text_of(call.args[0]), False
    return SCOPES.get(source.text_of(call.func), ""), True


def _of_users_class(case: Case, statement: ast.Expr | ast.Assign) -> str:
    """Return the call by which *statement* makes a context manager of the user's own; empty if it makes none."""
    call, target = statement.value, statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Name):
        return ""
    for source in case.sources:
        for owner in (node for node in source.nodes if isinstance(node, ast.ClassDef)):
            methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
            enters = methods.get("__enter__")
            if owner.name != name_of(call.func) or enters is None or "__exit__" not in methods:
                continue
            last = enters.body[-1]
            is_itself = isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and len(enters.body) == 1
            return ast.unparse(call) if is_itself else ""
    return ""


def put_back(case: Case) -> Iterator[Proposal]:
    """Yield how a function that every run puts in the place of the one before, which it keeps, is replaced again."""
    for source, statement, patch, line in itertools.chain(_signals(case), _attributes(case)):
        if end_of(case, source, statement, patch, [line]):
            for one in case.proposal(f"When the run ends, put back what was there before: `{line}`.", patch):
                yield replace(one, begun=_wrapped_place(case, line))
            return


def _wrapped_place(case: Case, line: str) -> tuple[str, ...]:
    """Return the attribute that *line* assigns to, if a function is there."""
    place = line.partition(" = ")[0]
    return (place,) if type(evaluate(place, case.program.namespace)) is types.FunctionType and "." in place else ()


_Written = tuple[SourceText, ast.stmt, Patch, str]
"""The statement of the run, the patch that keeps what was there before it, and the line that puts it back."""


def _signals(case: Case) -> Iterator[_Written]:
    if not any(step.reference.startswith("signal.getsignal") for step in case.leak.path.steps[:1]) or case.cell is None:
        return
    for statement in case.run_body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and case.cell.text_of(call.func) == "signal.signal" and call.args:
            patch, name = case.patch(), case.fresh("previous")
            patch.replace(case.cell, call, f"{name} = {case.cell.text_of(call)}")
            yield case.cell, statement, patch, f"signal.signal({case.cell.text_of(call.args[0])}, {name})"


def _attributes(case: Case) -> Iterator[_Written]:
    """Yield what puts a function into an attribute that leads to the leak.

    Where the same function has kept what was there before, that is put back there.
    """
    texts = (case.holder, *(step.reference for step in case.leak.path.steps))
    words = {name for text in texts for name in re.findall(r"[^\W\d]\w*", text)}
    for source in case.sources:
        for node in source.nodes:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute) or target.attr not in words:
                continue
            place = source.text_of(target)
            at = _in_run(case, source, node, place)
            if at is None or not is_exactly(evaluate(at[2], case.program.namespace), _CALLED):
                continue
            if kept := _kept_before(source, node, place):
                yield source, node, case.patch(), f"{place} = {kept}"
            patch, name = case.patch(), case.fresh("previous")
            patch.before(at[0], at[1], [f"{name} = {at[2]}"])
            yield at[0], at[1], patch, f"{at[2]} = {name}"


def _kept_before(source: SourceText, statement: ast.stmt, place: str) -> str:
    """Return the variable that what *place* has is assigned to above *statement*, in its block; empty without one."""
    block = source.siblings(statement)
    for one in reversed(block[: block.index(statement)]):
        pairs = assigned(one) if isinstance(one, ast.Assign) else ()
        for target, value in pairs:
            if isinstance(target, ast.Name) and source.text_of(value) == place:
                return target.id
    return ""


def _in_run(case: Case, source: SourceText, statement: ast.stmt, place: str) -> tuple[SourceText, ast.stmt, str] | None:
    """Return the statement of the run that makes *statement* run, and *place* in its words; None if it has none."""
    function = source.function_of(statement)
    if is_of_run(case, source, statement):
        return source, statement, place
    site = call_site(case, source, function) if isinstance(function, FUNCTIONS) else None
    found = None if site is None or function is None else site.translated([place], function)
    return None if site is None or found is None else _in_run(case, site.source, site.statement, found[0])
