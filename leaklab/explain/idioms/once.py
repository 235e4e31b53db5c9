"""What every run does, and nothing takes back, is done once: made, defined, registered by the first run only."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from leaklab.cure.case import Case, name_of
from leaklab.cure.ends import definition_of, is_of_run, statements
from leaklab.cure.live import evaluate, has_method
from leaklab.cure.source import Proposal, SourceText
from leaklab.explain.counterparts import undoing
from leaklab.explain.leaks.ownership import is_users_kind
from leaklab.runtime.containers import entries_in, items_in
from leaklab.runtime.objects import attributes_of, has_base, is_exactly, is_kind_of, loaded_type

_MADE_ONCE = re.compile(r"(^|\.)(jit\.(trace|script)|torch\.compile|make_fx|CFUNCTYPE|load_inline)$")
"""What makes something that nothing takes back: it serves all runs."""
_N_LAST = 4


def made_once(case: Case) -> Iterator[Proposal]:
    """Yield how what every run makes and nothing takes back is made by the first run only."""
    of_run = case.bound_in_run()
    for source, statement, name, call in _made_in_run(case):
        if _MADE_ONCE.search(source.text_of(call.func)) or _makes_once(case, call, of_run):
            yield from _once(case, source, statement, name, "Make")
            return


def _makes_once(case: Case, call: ast.Call, of_run: set[str]) -> bool:
    """Return whether *call* calls a function of the user's that makes such a thing, and gives it nothing of the run."""
    function = evaluate(ast.unparse(call.func), case.program.namespace)
    definition = definition_of(case, function) if type(function) is types.FunctionType else None
    if definition is None or not _is_given_the_same(call, of_run):
        return False
    made = (node for node in ast.walk(definition) if isinstance(node, ast.Call))
    return any(_MADE_ONCE.search(ast.unparse(one.func)) for one in made)


def reused(case: Case) -> Iterator[Proposal]:
    """Yield how an object of a library that each run makes of the same things, and that registers itself, is made once.

    Its class is not the user's, and has no way to take back what it has registered: ``cam = GradCAM(model, layer)``.
    """
    of_run = case.bound_in_run()
    for source, statement, name, call in _made_in_run(case):
        kind = evaluate(source.text_of(call.func), case.program.namespace)
        is_same = _is_given_the_same(call, of_run)
        if is_kind_of(kind, type) and not is_users_kind(kind) and is_same and not _is_trained(kind):
            yield from _once(case, source, statement, name, "Make")
            return


def registered_once(case: Case) -> Iterator[Proposal]:
    """Yield how hooks that learn from call to call are registered once: removed, they would begin anew in each run.

    They are functions that change what they close over or have as a default: a momentum, a running mean. Gradients are
    others then, by intention: so far each run was taught by one hook more than the run before.
    """
    of_run = case.bound_in_run()
    for source, statement, name, call in _made_in_run(case):
        hooks = _hooks_of(evaluate(name, case.program.namespace))
        if _is_given_the_same(call, of_run) and any(_changes_own(case, hook) for hook in hooks):
            found = _once(case, source, statement, name, "Register")
            yield from (replace(one, cuts_history=True) for one in found)
            return


def _hooks_of(handles: Any) -> Iterator[Any]:
    """Yield the hooks that a handle of torch's, or each of a list of them, would remove."""
    for handle in items_in(handles)[-_N_LAST:] if is_exactly(handles, (list, tuple)) else [handles]:
        found = attributes_of(handle) if type(handle).__name__ == "RemovableHandle" else {}
        hooks = found["hooks_dict_ref"]() if "hooks_dict_ref" in found else None
        if hooks is not None and found.get("id") in hooks:
            yield hooks[found["id"]]


def _changes_own(case: Case, hook: Any) -> bool:
    """Return whether *hook*, a function, changes in place what it closes over or has as the default of a parameter."""
    definition = definition_of(case, hook) if type(hook) is types.FunctionType else None
    if definition is None:
        return False
    n_defaults = len(hook.__defaults__ or ())
    code = hook.__code__
    own = {*code.co_freevars, *code.co_varnames[code.co_argcount - n_defaults : code.co_argcount]}
    return any(name_of(changed) in own for node in ast.walk(definition) for changed in _changed_by(node))


def _changed_by(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what *node* changes in place: by a method of torch's for that, ``mul_``, by ``+=``, under a key."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _IN_PLACE.search(node.func.attr):
        inside = node.func.value
        while isinstance(inside, ast.Call) and isinstance(inside.func, ast.Attribute):  # buf.mul_(0.9).add_(grad)
            inside = inside.func.value
        yield inside
    elif isinstance(node, ast.AugAssign):
        yield node.target.value if isinstance(node.target, (ast.Attribute, ast.Subscript)) else node.target
    elif isinstance(node, ast.Assign):
        yield from (one.value for one in node.targets if isinstance(one, (ast.Attribute, ast.Subscript)))


_IN_PLACE = re.compile(r"[a-z]_$")


def _made_in_run(case: Case) -> Iterator[tuple[SourceText, ast.stmt, str, ast.Call]]:
    """Yield the statements of a cell that keep or make what leaks, ``name = make(...)``, with the name and the call."""
    for source, statement in statements(case) if not case.program.function else ():
        if source is not case.cell or statement not in case.run_body or not isinstance(statement, ast.Assign):
            continue
        target, call = statement.targets[0], statement.value
        if isinstance(target, ast.Name) and isinstance(call, ast.Call):
            yield source, statement, target.id, call


def _is_given_the_same(call: ast.Call, of_run: set[str]) -> bool:
    """Return whether *call* gets nothing that the run makes: neither there nor in one of its variables, *of_run*."""
    given = (node for one in (*call.args, *(word.value for word in call.keywords)) for node in ast.walk(one))
    return not any(isinstance(node, _MADE_ANEW) or getattr(node, "id", None) in of_run for node in given)


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
        if any(_is_drawn_anew(case, one) for one in call.args):
            continue  # the first one would stand for all that were to be drawn
        if guard is not None and has_method(evaluate(above, case.program.namespace), guard):
            condition = f"not {above}.{guard}({', '.join(map(source.text_of, call.args[:2]))})"
        elif len(call.args) == 1 and (table := _TABLES.get(call.func.attr)) and _is_always_the_same(call.args[0]):
            condition = f"not {above}.{table}"
        if condition:
            words = f"Do it once: only `if {condition}`."
            yield from case.under(words, source, statement, f"if {condition}:")
        elif len(call.args) == 1 and (table := _TABLES.get(call.func.attr)) and not is_of_run(case, source, statement):
            yield from _instead_of_the_one_before(case, source, statement, f"{above}.{table}")


def _is_drawn_anew(case: Case, node: ast.expr) -> bool:
    """Return whether *node* makes what has random numbers, and nothing that learns from there: a noise, a mask."""
    made = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    names = {name_of(one.func) for one in made}
    classes = [one for source in case.sources for one in source.nodes if isinstance(one, ast.ClassDef)]
    bodies = [part for one in classes if one.name in names for part in one.body if isinstance(part, ast.FunctionDef)]
    begins = [part for part in bodies if part.name == "__init__"]
    inside = {name_of(one.func) for top in begins for one in ast.walk(top) if isinstance(one, ast.Call)}
    return any(map(_RANDOM.match, names | inside)) and not any(map(_LEARNS.match, inside))


_RANDOM = re.compile(r"(rand\w*|normal_?|uniform_?|bernoulli_?|multinomial|choices?|sample|shuffle|permutation)$")
_LEARNS = re.compile(
    r"(Parameter\w*|Linear|Bilinear|Conv\w*|Embedding\w*|\w*Norm|(GRU|LSTM|RNN)\w*|Lazy\w*|Multihead\w*|Transformer\w*)$"
)


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
