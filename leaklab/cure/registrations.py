"""Take back what a run registers: the handle of a hook, the counterpart of the call that registers."""

from __future__ import annotations

import ast
import collections
import re
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, name_of
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.live_entries import dropped
from leaklab.cure.proposal import Proposal
from leaklab.cure.source import FUNCTIONS, Patch, SourceText
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_exactly, is_kind_of, static_attribute

_HOOK = re.compile(r"^(register_(\w+_)?hook|register_hook)$")
_COUNTERPARTS = (
    ("register", "unregister"), ("subscribe", "unsubscribe"), ("connect", "disconnect"), ("observe", "unobserve"),
    ("attach", "detach"), ("bind", "unbind"), ("on", "off"), ("listen", "unlisten"), ("watch", "unwatch"),
    ("mpl_connect", "mpl_disconnect"),
    ("install", "uninstall"),
)  # fmt: skip
_OF_CONTAINERS: dict[tuple[type, str], str] = {
    (list, "append"): "remove",
    (set, "add"): "discard",
    (collections.deque, "append"): "remove",
}
"""What takes one entry out of a plain container again that somebody uses as a registry."""
_MADE_ONCE = re.compile(r"(^|\.)(jit\.(trace|script)|torch\.compile|make_fx|CFUNCTYPE|load_inline)$")
"""What makes something that nothing takes back: it serves all runs."""


def hook_handles(case: Case) -> Iterator[Proposal]:
    """Yield how the handles of hooks are kept and removed where the run, or the function that registers, ends."""
    yield from _returned_handles(case)
    for source, statement in _statements(case):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and _is_hook_call(node)]
        if not calls or hasattr(statement, "body"):
            continue
        yield from _handle_removed(case, source, statement, calls)
        return


def _returned_handles(case: Case) -> Iterator[Proposal]:
    """Yield how handles are removed that a function returns to the run."""
    for source, statement in _statements(case):
        if source is not case.cell or not isinstance(statement, ast.Assign):
            continue
        if not isinstance(statement.value, ast.Call) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = source.text_of(statement.targets[0])
        held = evaluate(name, case.program.namespace)
        lines = []
        if _is_handle(held):
            lines = [f"{name}.remove()"]
        elif is_exactly(held, (list, tuple)) and held and all(map(_is_handle, items_in(held))):
            lines = [f"for handle in {name}:", "    handle.remove()"]
        if lines and not list(source.loops_around(statement)):
            patch = case.patch()
            case.at_end_of_run(patch, *lines)
            yield from case.proposal(f"Remove the hooks by the handles in `{name}` when the run ends.", patch)
            return


def _is_handle(thing: object) -> bool:
    return type(thing).__name__ == "RemovableHandle" and has_method(thing, "remove")


def _statements(case: Case) -> Iterator[tuple[SourceText, ast.stmt]]:
    """Yield the statements that keep and make what leaks, and those of the run that call the functions they are in."""
    functions: list[str] = []
    for filename, line in (*case.keeping, *case.making):
        source = case.source(filename)
        statement = source.statement_at(line) if source is not None else None
        if source is not None and statement is not None:
            function = source.function_of(statement)
            functions += [function.name] if isinstance(function, FUNCTIONS) else []
            yield source, statement
    if case.cell is None:
        return
    for statement in (node for one in case.run_body for node in ast.walk(one) if isinstance(node, ast.stmt)):
        calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
        if not hasattr(statement, "body") and any(name_of(call.func) in functions for call in calls):
            yield case.cell, statement


def _is_hook_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return _HOOK.match(name) is not None


def _handle_removed(case: Case, source: SourceText, statement: ast.stmt, calls: list[ast.Call]) -> Iterator[Proposal]:
    patch = case.patch()
    loops = list(source.loops_around(statement))
    call, above = calls[0], source.parent(calls[0])
    if len(calls) > 1:
        return
    undo: list[str]
    if isinstance(statement, ast.Expr) and statement.value is call:
        if loops:
            handles = case.fresh("handles")
            patch.before(source, loops[-1], [f"{handles} = []"])
            patch.replace(source, call, f"{handles}.append({source.text_of(call)})")
            undo = [f"for handle in {handles}:", "    handle.remove()"]
        else:
            handle = case.fresh("handle")
            patch.replace(source, call, f"{handle} = {source.text_of(call)}")
            undo = [f"{handle}.remove()"]
    elif isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        if loops or not isinstance(target, (ast.Name, ast.Attribute)):
            return
        undo = [f"{source.text_of(target)}.remove()"]
    elif isinstance(above, (ast.ListComp, ast.List)) and isinstance(statement, ast.Assign) and statement.value is above:
        undo = [f"for handle in {source.text_of(statement.targets[0])}:", "    handle.remove()"]
    elif isinstance(above, ast.ListComp) and isinstance(statement, ast.Expr) and statement.value is above:
        handles = case.fresh("handles")
        patch.replace(source, above, f"{handles} = {source.text_of(above)}")
        undo = [f"for handle in {handles}:", "    handle.remove()"]
    else:
        return
    if end_of(case, source, statement, patch, undo):
        yield from case.proposal(
            "Keep the handle that the registration returns, and remove the hook when the run ends.", patch
        )


def end_of(case: Case, source: SourceText, statement: ast.stmt, patch: Patch, lines: list[str]) -> bool:
    """Write *lines* where the code ends that *statement* is in: the run, or the function that it calls.

    In a function only what the function itself makes can be undone there, and what it returns must be computed before.
    """
    function = source.function_of(statement)
    of_run = case.cell.function_of(case.run_body[0]) if case.cell is not None and case.run_body else None
    if function is None or (function is of_run and source.filename == case.program.checked):
        if source.filename != case.program.checked:
            return False
        case.at_end_of_run(patch, *lines)
        return True
    if isinstance(function, ast.Lambda):
        return False
    if function.name == "__init__":
        return _at_end_of_owner(case, source, statement, patch, lines)
    last = function.body[-1]
    if not _does_more(function, statement):
        return False
    if isinstance(last, ast.Return):
        if last.value is not None and not isinstance(last.value, (ast.Name, ast.Constant)):
            result = case.fresh("result")
            patch.replace(source, last, f"{result} = {source.text_of(last.value)}")
            patch.after(source, last, [*lines, f"return {result}"])
        else:
            patch.before(source, last, lines)
    else:
        patch.after(source, last, lines)
    return not any(isinstance(node, ast.Return) and node is not last for node in ast.walk(function))


def _does_more(function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.stmt) -> bool:
    """Return whether anything is called in *function* after *statement*: else the hook would be gone before its use."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(call.lineno > (statement.end_lineno or statement.lineno) for call in calls)


def _at_end_of_owner(case: Case, source: SourceText, statement: ast.stmt, patch: Patch, lines: list[str]) -> bool:
    """Write *lines*, meant for the ``__init__`` that *statement* is in, where the run ends that makes the object.

    What they use of the variables of ``__init__`` becomes an attribute of the object.
    """
    function = source.function_of(statement)
    owner = source.class_of(function) if function is not None else None
    receiver = _receiver(function)
    made = [] if owner is None else list(_made_in_run(case, owner.name))
    if len(made) != 1 or not receiver or any("\n" in line or line.endswith(":") for line in lines):
        return False
    local = _local_names(function)
    nodes = [node for line in lines for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)]
    kept = sorted({node.id for node in nodes if node.id in local and node.id != receiver} - {*case.program.namespace})
    known = {receiver, *kept, *case.program.namespace}
    new = [node.id for node in nodes if node.id not in known]
    if new and not (isinstance(statement, ast.Expr) and len(set(new)) == 1):
        return False
    if new:  # the handle, which the patch has just made a variable of the function's
        patch.forget(source)
        patch.replace(source, statement, f"{receiver}.{new[0]} = {source.text_of(statement)}")
    if kept:
        patch.after(source, statement, [f"{receiver}.{name} = {name}" for name in kept])
    renamed = {receiver: made[0], **{name: f"{made[0]}.{name}" for name in (*kept, *new)}}
    case.at_end_of_run(patch, *(_renamed(line, renamed) for line in lines))
    return True


def _local_names(function: ast.AST | None) -> set[str]:
    nodes = ast.walk(function) if function is not None else ()
    return {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in nodes
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


def _renamed(line: str, names: dict[str, str]) -> str:
    """Return *line*, a statement on one line, with other words for some of its variables."""
    found = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(found, key=lambda node: -node.col_offset):
        encoded = line.encode()
        start, end = encoded[: node.col_offset].decode(), encoded[node.end_col_offset :].decode()
        line = f"{start}{names[node.id]}{end}"
    return line


def _receiver(function: ast.AST | None) -> str:
    """Return what a method calls its object."""
    return function.args.args[0].arg if isinstance(function, FUNCTIONS) and function.args.args else ""


def _made_in_run(case: Case, name: str) -> Iterator[str]:
    """Yield the variables of the run that an object of the class *name* is assigned to."""
    nodes = (node for statement in case.run_body for node in ast.walk(statement))
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if name_of(node.value.func) == name and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def counterparts(case: Case) -> Iterator[Proposal]:
    """Yield how a registration is taken back by the call that its library has for it."""
    for source, statement in _statements(case):
        yield from _entry_taken_out(case, source, statement)
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
            continue
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or not call.args or _is_hook_call(call):
            continue
        undo = _counterpart(case, source, call)
        if undo:
            yield from _taken_back(case, source, statement, undo)
            return


def _entry_taken_out(case: Case, source: SourceText, statement: ast.stmt) -> Iterator[Proposal]:
    """Yield how the entry that *statement* puts into a dict of callbacks, ``handlers[token] = f``, leaves it again."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, (ast.Name, ast.Attribute, ast.Constant)):
        return
    place = source.text_of(target.value)
    if type(evaluate(place, case.program.namespace)) is not dict or not dropped(case, (place,)):
        return
    line = f"{place}.pop({source.text_of(target.slice)}, None)"
    patch = case.patch()
    if not list(source.loops_around(statement)) and end_of(case, source, statement, patch, [line]):
        yield from case.proposal(f"Take it out again when the run ends: `{line}`.", patch)


def _counterpart(case: Case, source: SourceText, call: ast.Call) -> str:
    """Return the name of the function that undoes *call*, if the object that it is called on has one."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    name, owner = call.func.attr, _live_owner(case, source, call)
    if owner is MISSING:
        return ""
    undo = _OF_CONTAINERS.get((type(owner), name), "")
    if undo:
        return undo if dropped(case, (source.text_of(call.func.value),)) else ""
    for adds, undoes in _COUNTERPARTS:
        if name == adds and has_method(owner, undoes):
            return undoes
    for adds, undoes in (("add_", "remove_"), ("add", "remove"), ("register_", "unregister_"), ("on_", "off_")):
        if name.startswith(adds) and name != adds and has_method(owner, undoes + name.removeprefix(adds)):
            return undoes + name.removeprefix(adds)
    return ""


def _live_owner(case: Case, source: SourceText, call: ast.Call) -> Any:
    """Return the object that *call* registers something with, `MISSING` if it cannot be told.

    What the code calls ``self.bus`` in a method is looked for in the object that the run makes and names.
    """
    if not isinstance(call.func, ast.Attribute):
        return MISSING
    text = source.text_of(call.func.value)
    function = source.function_of(call)
    owner = source.class_of(function) if function is not None else None
    if owner is not None and len(made := list(_made_in_run(case, owner.name))) == 1:
        text = _renamed(text, {_receiver(function): made[0]})
    return evaluate(text, case.program.namespace)


def _taken_back(case: Case, source: SourceText, statement: ast.Expr | ast.Assign, undo: str) -> Iterator[Proposal]:
    call = statement.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    place = source.text_of(call.func.value)
    patch = case.patch()
    if undo in ("mpl_disconnect", "disconnect") and (isinstance(statement, ast.Assign) or undo == "mpl_disconnect"):
        if isinstance(statement, ast.Assign):
            args = [source.text_of(statement.targets[0])]
        else:
            args = [case.fresh("connection")]
            patch.replace(source, call, f"{args[0]} = {source.text_of(call)}")
    else:
        args = []
        named: list[str] = []
        for arg in call.args[: _n_arguments(_live_owner(case, source, call), undo, len(call.args))]:
            text = source.text_of(arg)
            if isinstance(arg, (ast.Call, ast.Lambda)):
                name = case.fresh(_word_for(arg))
                named.append(f"{name} = {text}")
                patch.replace(source, arg, name)
                text = name
            args.append(text)
        if named:
            patch.before(source, statement, named)
    lines = [f"{place}.{undo}({', '.join(args)})"]
    if undo == "removeHandler" and args[0].isidentifier():
        lines.append(f"{args[0]}.close()")
    if list(source.loops_around(statement)):
        return
    if not end_of(case, source, statement, patch, lines):
        return
    yield from case.proposal(f"Take it out again when the run ends: `{place}.{undo}({', '.join(args)})`.", patch)


def _n_arguments(owner: object, undo: str, given: int) -> int:
    """Return how many of the arguments of the registration its counterpart takes."""
    is_module = is_kind_of(owner, types.ModuleType)
    function = static_attribute(owner if is_module else type(owner), undo)
    is_static = type(function) is staticmethod
    if is_exactly(function, (staticmethod, classmethod)):
        function = function.__func__
    if type(function) is not types.FunctionType:
        return 1
    code = function.__code__
    is_bound = not is_module and not is_static
    return max(0, min(given, code.co_argcount - is_bound))


def _word_for(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        name = re.findall(r"[A-Z][a-z]+|[a-z]+", name_of(node.func))
        return name[-1].lower() if name and name[-1].lower().isidentifier() else "entry"
    return "callback"


def once(case: Case) -> Iterator[Proposal]:
    """Yield how what every run makes and nothing takes back is made by the first run only."""
    for source, statement in _statements(case):
        if source.filename != case.program.checked or case.program.function or statement not in case.run_body:
            continue
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        if not (isinstance(statement.value, ast.Call) and _MADE_ONCE.search(source.text_of(statement.value.func))):
            continue
        name = statement.targets[0].id
        patch = case.patch()
        text = source.text_of(statement)
        indented = "\n".join(f"    {line}" if line.strip() else line for line in text.splitlines())
        patch.replace(source, statement, f'if "{name}" not in globals():\n{indented}')
        yield from case.proposal(f"Make `{name}` once, in the first run, and use it again.", patch)
        return
