"""End what a run begins: exceptions with their frames, executors, threads, figures, files, caches of results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.cure.candidate import Candidate
from leaklab.cure.case import Case
from leaklab.cure.live import MISSING, evaluate
from leaklab.cure.source import Source

_ENDS = {
    "ThreadPoolExecutor": "shutdown()", "ProcessPoolExecutor": "shutdown()", "Pool": "terminate()",
    "ThreadPool": "terminate()", "Timer": "cancel()", "SummaryWriter": "close()", "socket": "close()",
    "open": "close()", "TemporaryFile": "close()", "NamedTemporaryFile": "close()", "StringIO": "close()",
    "TemporaryDirectory": "cleanup()", "figure": "", "subplots": "", "mmap": "close()", "Manager": "shutdown()",
    "FileHandler": "close()", "StreamHandler": "close()", "Popen": "wait()", "connect": "close()", "Session": "close()",
    "Client": "close()",
}  # fmt: skip
"""What a constructor's object is ended by."""


def exceptions(case: Case) -> Iterator[Candidate]:
    """Yield how an exception is kept as its text, without the frames that its traceback keeps."""
    if not any("raceback" in step.kind or step.reference == ".__traceback__" for step in case.leak.path.steps):
        return
    for store in case.stores:
        handler = _handler_around(store.source, store.statement)
        if handler is None or handler.name is None or store.value is None:
            continue
        names = [
            node
            for node in ast.walk(store.value)
            if isinstance(node, ast.Name) and node.id == handler.name and not _is_asked(store.source, node)
        ]
        if len(names) != 1:
            continue
        for text, words in (
            (f"repr({handler.name})", "Keep the text of the exception"),
            (f"{handler.name}.with_traceback(None)", "Keep the exception without its traceback"),
        ):
            patch = case.patch()
            patch.replace(store.source, names[0], text)
            yield from case.candidate(f"{words}: the traceback keeps the local variables of every frame.", patch)
        return


def _is_asked(source: Source, node: ast.Name) -> bool:
    """Return whether only something of the exception is taken: ``str(error)``, ``error.args``."""
    above = source.parent(node)
    return isinstance(above, ast.Attribute) or (
        isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in ("str", "repr", "type")
    )


def _handler_around(source: Source, node: ast.AST) -> ast.ExceptHandler | None:
    above = source.parent(node)
    while above is not None and not isinstance(above, ast.ExceptHandler):
        above = source.parent(above)
    return above


def ended(case: Case) -> Iterator[Candidate]:
    """Yield how something with an end (an executor, a timer, a figure, a file) is ended where the run ends."""
    for filename, line in (*case.finding.keeping_lines, *case.finding.making_lines):
        source = case.source(filename)
        statement = source.statement_at(line) if source is not None else None
        if source is None or statement is None or filename != case.program.checked:
            continue
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and _end_of(node) is not None]
        if not calls or hasattr(statement, "body") or list(source.loops_around(statement)):
            continue
        call, end = calls[0], _end_of(calls[0]) or ""
        patch = case.patch()
        if isinstance(statement, ast.Assign) and statement.value is call:
            target = statement.targets[0]
            first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
            if not isinstance(first, (ast.Name, ast.Attribute)):
                continue
            name = source.text_of(first)
        else:
            name = case.fresh(call.func.attr.lower() if isinstance(call.func, ast.Attribute) else call.func.id.lower())  # type: ignore[attr-defined]
            patch.before(source, statement, [f"{name} = {source.text_of(call)}"])
            patch.replace(source, call, name)
        if not end:
            plt = next((one for one in ("plt", "pyplot") if one in case.program.namespace), "")
            if not plt:
                continue
            lines = [f"{plt}.close({name})"]
        else:
            lines = [f"{name}.{end}"]
        case.at_end_of_run(patch, *lines)
        yield from case.candidate(f"End it when the run has used it: `{lines[0]}`.", patch)
        return


def _end_of(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return _ENDS.get(name)


def cached_results(case: Case) -> Iterator[Candidate]:
    """Yield how a cache of results is emptied where the run ends."""
    name = case.holder
    held = evaluate(name, case.program.namespace)
    if held is MISSING or type(held).__name__ != "_lru_cache_wrapper":
        return
    patch = case.patch()
    case.at_end_of_run(patch, f"{name}.cache_clear()")
    yield from case.candidate(f"Empty the cache of `{name}` when the run has used it.", patch)
    yield Candidate(f"Bound the cache of `{name}`: `@functools.lru_cache(maxsize=16)`.")
