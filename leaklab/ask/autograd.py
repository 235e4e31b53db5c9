"""Show what the autograd graph behind a tensor, a list of losses, a model or a whole notebook keeps alive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from leaklab.reports.autograd import AutogradReport
from leaklab.runtime.objects import running_shell
from leaklab.version import environment

_WHOLE_NAMESPACE = object()
_WHOLE_NAME = "all variables"
_DEFAULT_NAME = "the object"


def autograd(
    obj: object = _WHOLE_NAMESPACE, *, name: str = "", namespace: Mapping[str, object] | None = None
) -> AutogradReport:
    """Say what the autograd graphs behind *obj* keep alive: nodes, saved tensors, bytes, and by what they were made.

    Nothing is unpacked, recomputed or kept: saved tensors are read as they are stored. What a look leaves behind are
    Python wrappers of the nodes and of saved results, and 70 bytes per node, until the graph itself is dropped.

    Args:
        obj: A tensor, a container of tensors, a module, or anything that leads to tensors; without it, all variables
            of *namespace*.
        name: What the report calls *obj*.
        namespace: The variables among which other holders of the memory are looked for; by default those of the
            notebook, or of the script that runs.

    Returns:
        The report.

    Raises:
        ValueError: if there is no graph; the message says why.
        TypeError: if *name* is no str or *namespace* no mapping.
    """
    # Late, because these need torch: `leaklab.autograd` itself can be imported without.
    from leaklab.explain.autograd.retention import explain_retention  # noqa: PLC0415
    from leaklab.explain.autograd.saved import user_variables  # noqa: PLC0415

    _refuse_wrong_types(name, namespace)
    variables = user_variables(vars(sys.modules["__main__"]) if namespace is None else namespace)
    if obj is _WHOLE_NAMESPACE:
        starts, name = variables, name or _WHOLE_NAME
    else:
        name = name or _variable_name(obj, variables)
        starts = {name or _DEFAULT_NAME: obj}
    record = explain_retention(starts, variables, name or _DEFAULT_NAME, _file_namer())
    return AutogradReport(replace(record, environment=environment()))


def _refuse_wrong_types(name: object, namespace: object) -> None:
    if not isinstance(name, str):
        msg = f"name must be a str, not {type(name).__name__}"
        raise TypeError(msg)
    if namespace is not None and not isinstance(namespace, Mapping):
        msg = f"namespace must be a dict of variables, not {type(namespace).__name__}"
        raise TypeError(msg)


def _variable_name(obj: object, variables: Mapping[str, object]) -> str:
    """Return the first variable that is *obj*, empty for none."""
    return next((name for name, value in variables.items() if value is obj), "")


def _file_namer() -> Callable[[str], str | None]:
    """Return what tells a notebook's cell from a file, by the shell that runs here if there is one."""
    name_cell = getattr(getattr(running_shell(), "compile", None), "format_code_name", None)  # IPython 7 has none
    if name_cell is None:
        return lambda _file: None

    def name_file(file: str) -> str | None:
        words = name_cell(file)
        return " ".join(words) if words else None

    return name_file
