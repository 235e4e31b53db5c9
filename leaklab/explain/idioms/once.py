"""What every run does, and nothing takes back, is done once: made, defined, registered by the first run only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case
from leaklab.cure.ends import is_of_run, statements
from leaklab.cure.live import evaluate, has_method
from leaklab.cure.source import Proposal, SourceText
from leaklab.explain.counterparts import undoing
from leaklab.explain.leaks.ownership import is_users_kind
from leaklab.runtime.containers import entries_in
from leaklab.runtime.objects import has_base, is_kind_of, loaded_type

_MADE_ONCE = re.compile(r"(^|\.)(jit\.(trace|script)|torch\.compile|make_fx|CFUNCTYPE|load_inline)$")
"""What makes something that nothing takes back: it serves all runs."""
_N_LAST = 4


def made_once(case: Case) -> Iterator[Proposal]:
    """Yield how what every run makes and nothing takes back is made by the first run only."""
    for source, statement, name, call in _made_in_run(case):
        if _MADE_ONCE.search(source.text_of(call.func)):
            yield from _once(case, source, statement, name, "Make")
            return


def reused(case: Case) -> Iterator[Proposal]:
    """Yield how an object of a library that each run makes of the same things, and that registers itself, is made once.

    Its class is not the user's, and has no way to take back what it has registered: ``cam = GradCAM(model, layer)``.
    """
    of_run = case.bound_in_run()
    for source, statement, name, call in _made_in_run(case):
        kind = evaluate(source.text_of(call.func), case.program.namespace)
        given = [node for one in (*call.args, *(word.value for word in call.keywords)) for node in ast.walk(one)]
        is_same = not any(isinstance(node, _MADE_ANEW) or getattr(node, "id", None) in of_run for node in given)
        if is_kind_of(kind, type) and not is_users_kind(kind) and is_same and not _is_trained(kind):
            yield from _once(case, source, statement, name, "Make")
            return


def _made_in_run(case: Case) -> Iterator[tuple[SourceText, ast.stmt, str, ast.Call]]:
    """Yield the statements of a cell that keep or make what leaks, ``name = make(...)``, with the name and the call."""
    for source, statement in statements(case) if not case.program.function else ():
        if source is not case.cell or statement not in case.run_body or not isinstance(statement, ast.Assign):
            continue
        target, call = statement.targets[0], statement.value
        if isinstance(target, ast.Name) and isinstance(call, ast.Call):
            yield source, statement, target.id, call


_MADE_ANEW = (ast.Call, ast.Lambda, ast.ListComp, ast.List, ast.Dict, ast.Set, ast.Await)


def _is_trained(kind: type) -> bool:
    """Return whether objects of *kind* learn: a run that makes one anew begins from the start, by intention."""
    bases = (loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer"))
    return any(base is not None and has_base(kind, base) for base in bases)


def defined_once(case: Case) -> Iterator[Proposal]:
    """Yield how a class that every run defines, and that a library's table remembers, is defined by the first only."""
    if case.program.function or case.cell is None:
        return
    kept = {thing.__name__ for thing in _classes_in(case.held)}
    for statement in case.run_body:
        if isinstance(statement, ast.ClassDef) and statement.name in kept:
            yield from _once(case, case.cell, statement, statement.name, "Define")
            return


def _classes_in(held: Any) -> Iterator[type]:
    """Yield the classes among the last keys and values of a dict, and in tuples of these."""
    for pair in list(entries_in(held))[-_N_LAST:] if has_base(type(held), dict) else ():
        for one in pair:
            yield from (part for part in (one if type(one) is tuple else (one,)) if is_kind_of(part, type))


def _once(case: Case, source: SourceText, statement: ast.stmt, name: str, verb: str) -> Iterator[Proposal]:
    """Yield how *statement*, which makes *name*, is for the first run; what the run deletes is kept by another name."""
    patch = case.patch()
    if case.is_deleted_in_run(name):
        kept = case.fresh(f"_{name}")
        patch.indent(source, [statement], f'if "{kept}" not in globals():')
        patch.after(source, statement, [f"    {kept} = {name}", f"{name} = {kept}"])
    else:
        patch.indent(source, [statement], f'if "{name}" not in globals():')
    yield from case.proposal(f"{verb} `{name}` once, in the first run, and use it again.", patch)


def added_once(case: Case) -> Iterator[Proposal]:
    """Yield how something is registered only where nothing of its kind is yet."""
    for source, statement in statements(case):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        above = source.text_of(call.func.value)
        guard = _GUARDS.get(call.func.attr)
        condition = ""
        if guard is not None and has_method(evaluate(above, case.program.namespace), guard):
            condition = f"not {above}.{guard}({', '.join(map(source.text_of, call.args[:2]))})"
        elif len(call.args) == 1 and (table := _TABLES.get(call.func.attr)) and _is_always_the_same(call.args[0]):
            condition = f"not {above}.{table}"
        if condition:
            words = f"Do it once: only `if {condition}`."
            yield from case.under(words, source, statement, f"if {condition}:")
        elif len(call.args) == 1 and (table := _TABLES.get(call.func.attr)) and not is_of_run(case, source, statement):
            yield from _instead_of_the_one_before(case, source, statement, f"{above}.{table}")


def _instead_of_the_one_before(case: Case, source: SourceText, statement: ast.stmt, table: str) -> Iterator[Proposal]:
    """Yield how what *statement*, a call of one argument, adds to *table* takes the place of the one of its class."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    made = call.args[0] if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not isinstance(made, ast.Call):
        return
    kind, undo = source.text_of(made.func), f"{source.text_of(call.func.value)}.{next(undoing(call.func.attr))}"
    if is_kind_of(evaluate(kind, case.program.namespace), type):
        patch = case.patch()
        lines = [f"for earlier in [one for one in {table} if type(one) is {kind}]:", f"    {undo}(earlier)"]
        patch.before(source, statement, lines)
        yield from case.proposal(f"Let it replace the one that the run before added to `{table}`.", patch)


_TABLES = {"addHandler": "handlers", "addFilter": "filters"}
"""Where what a call registers can be looked up."""
_GUARDS = {"register_parametrization": "is_parametrized"}
"""The function beside a call that says, of its first two arguments, whether it has been made."""


def _is_always_the_same(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    values = (*node.args, *(word.value for word in node.keywords))
    return all(isinstance(one, ast.Constant) for one in values)
