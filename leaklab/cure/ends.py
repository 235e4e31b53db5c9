"""Write lines where code ends: the run, the function that a statement is in, the run that makes an object."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.cure.case import Case, name_of
from leaklab.cure.source import FUNCTIONS, Patch, SourceText


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
    receiver = receiver_of(function)
    made = [] if owner is None else list(made_in_run(case, owner.name))
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
    case.at_end_of_run(patch, *(with_names(line, renamed) for line in lines))
    return True


def _local_names(function: ast.AST | None) -> set[str]:
    nodes = ast.walk(function) if function is not None else ()
    return {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in nodes
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


def with_names(line: str, names: dict[str, str]) -> str:
    """Return *line*, a statement on one line, with other words for some of its variables."""
    found = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(found, key=lambda node: -node.col_offset):
        encoded = line.encode()
        start, end = encoded[: node.col_offset].decode(), encoded[node.end_col_offset :].decode()
        line = f"{start}{names[node.id]}{end}"
    return line


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


def statements(case: Case) -> Iterator[tuple[SourceText, ast.stmt]]:
    """Yield the statements that keep and make what leaks, and those of the run that call the functions they are in."""
    functions: list[str] = []
    for source, statement in case.statements:
        function = source.function_of(statement)
        functions += [function.name] if isinstance(function, FUNCTIONS) else []
        yield source, statement
    if case.cell is None:
        return
    for statement in (node for one in case.run_body for node in ast.walk(one) if isinstance(node, ast.stmt)):
        calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
        if not hasattr(statement, "body") and any(name_of(call.func) in functions for call in calls):
            yield case.cell, statement
