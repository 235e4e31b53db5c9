"""Show what the autograd graph behind a tensor, a list of losses, a model or a whole notebook keeps alive."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from leaklab.model.retention import RETENTION_SCHEMA, DrawnBy, Retention
from leaklab.render.exports import Exports
from leaklab.render.files import FilePath, known_suffix, read_source, save_by_suffix
from leaklab.render.json import record_from_json, record_to_json
from leaklab.render.retention_graph import RetentionGraph
from leaklab.render.retention_html import retention_fragment, retention_page
from leaklab.render.retention_tables import kept_csv, kept_table, part_table
from leaklab.render.retention_text import render_retention
from leaklab.render.retention_words import headline

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "leaklab autograd"
"""What a file says it is, in its first field."""

_WRITERS: Mapping[str, Callable[[Retention], str]] = {
    ".html": retention_page,
    ".json": lambda retention: record_to_json(retention, FORMAT, "retention"),
    ".csv": kept_csv,
    ".txt": render_retention,
}
_DRAWN = (".svg", ".dot")
SUFFIXES = (*_WRITERS, *_DRAWN)
"""Of the files that a report can be saved to."""
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
    from leaklab.explain.autograd.found_tensors import user_variables  # noqa: PLC0415
    from leaklab.explain.autograd.retention import explain_retention  # noqa: PLC0415

    _refuse_wrong_types(name, namespace)
    variables = user_variables(vars(sys.modules["__main__"]) if namespace is None else namespace)
    if obj is _WHOLE_NAMESPACE:
        starts, name = variables, name or _WHOLE_NAME
    else:
        name = name or _variable_name(obj, variables)
        starts = {name or _DEFAULT_NAME: obj}
    record = explain_retention(starts, variables, name or _DEFAULT_NAME, _file_namer())
    return AutogradReport(replace(record, environment=_environment()))


@dataclass(frozen=True, slots=True, repr=False)
class AutogradReport(Exports):
    """What a graph keeps alive.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        retention: The record, with every figure.
    """

    retention: Retention

    @property
    def operations(self) -> pd.DataFrame:
        """The operations, most bytes first."""
        return part_table(self.retention.operations, "operation")

    @property
    def lines(self) -> pd.DataFrame:
        """The lines of the forward pass, most bytes first; empty where anomaly mode did not record them."""
        return part_table(self.retention.lines, "line")

    @property
    def tensors(self) -> pd.DataFrame:
        """The saved tensors, largest first."""
        return kept_table(self.retention)

    def graph(self, by: str = "") -> RetentionGraph:
        """Return the graph drawn: by node where it is small, else by module, forward line or operation.

        Args:
            by: ``node``, ``module``, ``line`` or ``operation``; without it the finest that there is.

        Raises:
            ValueError: if there is no such drawing of this graph; the message lists those there are.
        """
        drawings = {drawing.by.value: drawing for drawing in self.retention.drawings}
        chosen = by or next(iter(drawings))
        if chosen not in drawings:
            every = [each.value for each in DrawnBy]
            why = "is none of" if chosen not in every else "is not possible for this graph; there are"
            msg = f"by={chosen!r} {why} {', '.join(every if chosen not in every else drawings)}"
            raise ValueError(msg)
        return RetentionGraph(self.retention.name, drawings[chosen])

    def _html_file(self) -> str:
        return retention_page(self.retention)

    def _json_file(self) -> str:
        return _WRITERS[".json"](self.retention)

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> AutogradReport:
        """Return the report that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no report that this version can read.
        """
        return cls(record_from_json(read_source(path_or_text), Retention, FORMAT, RETENTION_SCHEMA))

    def save(self, path: FilePath) -> None:
        """Write the report to *path*: ``.html``, ``.json``, ``.csv`` the saved tensors, ``.txt``, ``.svg`` the graph.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        if known_suffix(path, SUFFIXES) in _DRAWN:
            self.graph().save(path)
        else:
            save_by_suffix(path, {suffix: partial(write, self.retention) for suffix, write in _WRITERS.items()})

    def __str__(self) -> str:
        return render_retention(self.retention)

    def __repr__(self) -> str:
        return f"<AutogradReport {headline(self.retention)}>"

    def _fragment(self) -> str:
        return retention_fragment(self.retention)


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
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    name_cell = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 7 has none
    if name_cell is None:
        return lambda _file: None

    def name_file(file: str) -> str | None:
        words = name_cell(file)
        return " ".join(words) if words else None

    return name_file


def _environment() -> tuple[tuple[str, str], ...]:
    from leaklab import __version__  # noqa: PLC0415 - the package imports this module

    torch: Any = sys.modules["torch"]
    return (("leaklab", __version__), ("torch", str(torch.__version__)), ("Python", platform.python_version()))
