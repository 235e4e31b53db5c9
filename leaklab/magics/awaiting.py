"""Let a cell magic wait for a cell that awaits."""

from __future__ import annotations

import ast
from typing import Any

from leaklab.cells import awaits

_CALLS = tuple(f"get_ipython().run_cell_magic({name!r}" for name in ("leakcheck", "memdiff"))


class AwaitRewriter:
    """Put ``await`` before the call of ``%%leakcheck`` or ``%%memdiff`` where the cell below it awaits.

    A magic cannot wait for a running event loop; the shell can, if the cell that it runs is a coroutine.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Rewrite the transformed *lines* of a cell."""
        text = "".join(lines)
        if not text.startswith(_CALLS):
            return lines
        return ["await " + text] if self._awaits(text) else lines

    def _awaits(self, text: str) -> bool:
        try:
            call = ast.parse(text).body[0].value  # type: ignore[attr-defined]  # the shell wrote one expression
            return awaits(self._shell.transform_cell(ast.literal_eval(call.args[2])))
        except (SyntaxError, ValueError, AttributeError, IndexError):
            return False
