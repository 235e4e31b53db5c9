"""Put together what a check knows of one leak for those who look for its cures."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.cure.candidate import Finding, Program
from leaklab.cure.case import is_adding, last_name
from leaklab.cure.source import Source
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
    return Finding(leak, keeping or tuple(_by_name(leak, program)), making)


def _by_name(leak: Leak, program: Program) -> Iterator[tuple[str, int]]:
    """Yield the lines of the checked code that add to what is called as the holder is."""
    text, name = program.source(program.checked), last_name(leak.holder)
    if text is None or not name or " " in leak.holder:
        return
    try:
        source = Source(program.checked, text)
    except (SyntaxError, ValueError, RecursionError):
        return
    statements = (node for node in ast.walk(source.tree) if isinstance(node, ast.stmt))
    for statement in statements:
        if is_adding(source, statement, name):
            yield program.checked, statement.lineno
