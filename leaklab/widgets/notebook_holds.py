"""Tell what the notebook itself keeps alive - outputs, the last error - and let go of it when asked."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from leaklab.objects import type_name

_LAST_ERROR = ("last_exc", "last_value", "last_traceback", "last_type")
_LAST_OUTPUTS = ("_", "__", "___")
_MAX_KINDS = 4


def held_by_notebook(shell: Any) -> list[str]:
    """Return one sentence for each thing that *shell* keeps and `let_go` would drop; empty if there is none."""
    found = []
    outputs = _outputs(shell)
    if outputs:
        kinds = Counter(type_name(type(value)) for value in outputs.values())
        words = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common(_MAX_KINDS))
        found.append(f"Out, _, __, ___ and their hidden copies: {len(outputs)} values ({words})")
    if any(getattr(sys, name, None) is not None for name in _LAST_ERROR):
        kind = type_name(type(getattr(sys, "last_value", None)))
        found.append(f"the last uncaught exception ({kind}), with the variables of every function it went through")
    elif getattr(getattr(shell, "InteractiveTB", None), "tb", None) is not None:
        found.append("the traceback that %tb and %debug would show, with the variables of its functions")
    if getattr(getattr(shell, "last_execution_result", None), "result", None) is not None:
        found.append("the result of the last cell")
    return found


def let_go(shell: Any) -> list[str]:
    """Drop what `held_by_notebook` names, and return its sentences. ``_`` and ``Out`` work on afterwards."""
    found = held_by_notebook(shell)
    namespace, hidden = shell.user_ns, getattr(shell, "user_ns_hidden", {})
    names = [*_LAST_OUTPUTS, *(f"_{number}" for number in _outputs(shell))]
    for name in names:
        for variables in (namespace, hidden):
            variables.pop(name, None)
    outputs = namespace.get("_oh")
    if type(outputs) is dict:
        outputs.clear()
    for name in _LAST_OUTPUTS:
        namespace[name] = ""
        if hasattr(shell.displayhook, name):
            setattr(shell.displayhook, name, "")
    _forget_error(shell)
    return found


def _outputs(shell: Any) -> dict[int, object]:
    outputs = shell.user_ns.get("_oh")
    return dict(outputs) if type(outputs) is dict else {}


def _forget_error(shell: Any) -> None:
    for name in _LAST_ERROR:
        if hasattr(sys, name):
            delattr(sys, name)
    if hasattr(shell, "InteractiveTB"):
        shell.InteractiveTB.tb = None
    result = getattr(shell, "last_execution_result", None)
    if result is not None:
        result.result = result.error_in_exec = result.error_before_exec = None
