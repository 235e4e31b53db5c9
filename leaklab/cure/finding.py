"""Put together what a check knows of one leak for those who look for its cures."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.collect.registries import registry_on
from leaklab.cure.candidate import Finding, Program
from leaklab.cure.case import is_adding, last_name
from leaklab.cure.source import SourceText
from leaklab.model import Leak

Places = tuple[tuple[str, int], ...]


def finding_of(leak: Leak, program: Program, keeping: Places = (), making: Places = ()) -> Finding:
    """Return *leak* with the lines that keep and make what leaks.

    Args:
        leak: The record.
        program: Its code is read where the traced runs found no line that keeps.
        keeping: The lines that keep, of the traced runs: ``FoundLines.keeping[leak.fingerprint]``.
        making: The same for those that make: ``FoundLines.making[leak.fingerprint]``.
    """
    files = dict.fromkeys((program.checked, *(filename for filename, _ in making)))
    return Finding(leak, keeping or tuple(place for name in files for place in _by_text(leak, program, name)), making)


def _by_text(leak: Leak, program: Program, filename: str) -> Iterator[tuple[str, int]]:
    """Yield the lines of a file that, as they read, add to the holder, or to the table that is suspected."""
    text, name = program.source(filename), last_name(leak.holder)
    if text is None:
        return
    try:
        source = SourceText(filename, text)
    except (SyntaxError, ValueError, RecursionError):
        return
    registry = registry_on(leak.path)
    calls = () if registry is None else tuple(last_name(call) for call in registry.adds.split(" or "))
    for statement in ast.walk(source.tree):
        if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
            continue
        is_call = any(_called(node) in calls for node in ast.walk(statement))
        if is_call or (" " not in leak.holder and is_adding(source, statement, name)):
            yield filename, statement.lineno


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
