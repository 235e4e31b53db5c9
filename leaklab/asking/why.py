"""Say why one object is alive: from Python, without a notebook."""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leaklab import __version__
from leaklab.addresses import addresses_of
from leaklab.collect.checkpoint import heap_objects
from leaklab.collect.gcstate import collect_quietly, user_has_frozen
from leaklab.explain.alive.alive import explain_alive
from leaklab.explain.alive.refcounts import read_counts
from leaklab.explain.heap.shared_values import words_if_shared
from leaklab.explain.heap.untracked import untracked_holders
from leaklab.explain.view import Births, heap_view
from leaklab.model.alive import ALIVE_SCHEMA_VERSION, Alive, Counts, Cut, Hold, Retained
from leaklab.pausing import gc_paused
from leaklab.render.alive_html import render_alive_html, render_alive_page
from leaklab.render.alive_tables import path_table, reference_table
from leaklab.render.alive_text import render_alive
from leaklab.render.exports import Exports
from leaklab.render.files import FilePath, read_source, save_by_suffix
from leaklab.render.graph import LEAKLAB, BackReferenceGraph
from leaklab.render.json import record_from_json, record_to_json
from leaklab.render.wording import shorten

if TYPE_CHECKING:
    import pandas as pd

_WHAT_LIMIT = 72
FORMAT = "leaklab whyalive"
"""What a file says it is, in its first field."""
SUFFIXES: Final = (".html", ".svg", ".dot", ".txt", ".json")
"""What `WhyAlive.save` can write."""


@dataclass(frozen=True, slots=True, repr=False)
class WhyAlive(Exports):
    """The answer to one question.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive; tables and graphs
    are made anew each time they are asked for.

    Attributes:
        record: Everything that was found out.
    """

    record: Alive

    @property
    def hold(self) -> Hold:
        """What keeps the object alive."""
        return self.record.hold

    @property
    def reason(self) -> str:
        """One sentence that says so."""
        return self.record.reason

    @property
    def holders(self) -> tuple[str, ...]:
        """For each path the expression for what refers to the object; empty where Python has none."""
        return tuple(path.holder for path in self.record.paths)

    @property
    def paths(self) -> pd.DataFrame:
        """The paths, one row for each step."""
        return path_table(self.record)

    @property
    def references(self) -> pd.DataFrame:
        """The direct references to the object, one row for each."""
        return reference_table(self.record)

    @property
    def cut(self) -> Cut | None:
        """The fewest references to let go of, with the proof; None where no root reaches the object."""
        return self.record.cut

    @property
    def counts(self) -> Counts:
        """The reference counts, explained."""
        return self.record.counts

    @property
    def retained(self) -> Retained:
        """What comes back if the object goes."""
        return self.record.retained

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats and observations."""
        return self.record.notes

    def graph(self, style: str = LEAKLAB) -> BackReferenceGraph:
        """Return all paths as one graph, drawn by leaklab or, with ``style="objgraph"``, by objgraph.

        Raises:
            ValueError: for any other style.
        """
        return BackReferenceGraph(self.record, style)

    def _html_file(self) -> str:
        return render_alive_page(self.record)

    def _json_file(self) -> str:
        return record_to_json(self.record, FORMAT, "record")

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> WhyAlive:
        """Return the answer that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no answer that this version can read.
        """
        return cls(record_from_json(read_source(path_or_text), Alive, FORMAT, ALIVE_SCHEMA_VERSION))

    def save(self, path: FilePath) -> None:
        """Write to *path*: ``.html`` a page, ``.svg`` or ``.dot`` the graph, ``.txt`` the text, ``.json`` the record.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        graph = self.graph()
        writers: Mapping[str, Callable[[], str]] = {
            ".html": self._html_file,
            ".svg": graph.svg_file,
            ".dot": lambda: graph.dot,
            ".txt": self.__str__,
            ".json": self._json_file,
        }
        save_by_suffix(path, writers)

    def __str__(self) -> str:
        return render_alive(self.record)

    def __repr__(self) -> str:
        return f"<WhyAlive {shorten(self.record.what, _WHAT_LIMIT)}: {shorten(self.reason, _WHAT_LIMIT)}>"

    def _fragment(self) -> str:
        return render_alive_html(self.record)


def whyalive(obj: object, *, namespace: dict[str, Any] | None = None, max_paths: int = 8) -> WhyAlive:
    """Say why *obj* is alive: every independent path to it, its holders, what would free it.

    The question itself is no holder: neither its argument nor leaklab's own frames appear. A variable of the function
    that asks does.

    Args:
        obj: Any object that a collector or a reference count can free: no number, no text, not None.
        namespace: The variables among which holders are looked for first, and in which the expressions of the answer
            can be evaluated; by default the global variables of the caller.
        max_paths: How many independent paths to show, at least 1.

    Returns:
        The answer. It is made of records: it keeps nothing alive.

    Raises:
        TypeError: if the object is a value that all code shares, or an argument is of the wrong type.
        ValueError: if *max_paths* is less than 1.
    """
    borrowed = [obj]
    del obj
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's variables
    return answer(borrowed, variables, max_paths=max_paths)


def answer(
    borrowed: list[Any], namespace: dict[str, Any], *, asked: str = "", max_paths: int = 8, summaries: bool = True
) -> WhyAlive:
    """Answer for the only item of *borrowed*, which is emptied: no other reference of ours would be counted out.

    Args:
        borrowed: The object, and nothing else.
        namespace: The user's variables.
        asked: The expression that was asked about.
        max_paths: How many independent paths to show.
        summaries: Whether shapes and lengths may be told.

    Raises:
        TypeError: as `whyalive`.
        ValueError: as `whyalive`.
    """
    try:
        _refuse_wrong_types(namespace, max_paths)
        _refuse_shared(borrowed)
        return WhyAlive(_explain(borrowed, namespace, asked, max_paths, summaries=summaries))
    finally:
        borrowed.clear()


def _explain(borrowed: list[Any], namespace: dict[str, Any], asked: str, max_paths: int, *, summaries: bool) -> Alive:
    if gc.isenabled():
        collect_quietly()  # garbage that waits for a collection is nobody's holder
    raw = read_counts(borrowed)
    none = np.empty(0, np.int64)
    births = Births(none, none, 1)
    with gc_paused():
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            address = id(borrowed[0])
            if not (addresses_of(objects) == address).any():
                objects += [borrowed[0], *untracked_holders(objects, borrowed[0])]
            borrowed.clear()  # the list of the heap has it: any other reference would look like somebody's
            with heap_view(objects, births, namespace, (borrowed,), summaries=summaries) as view:
                vertex = view.index.vertex_of(address)
                found = explain_alive(view, vertex, raw, asked=asked, max_paths=max_paths)
        finally:
            objects.clear()
    return replace(found, environment=_environment())


def _refuse_wrong_types(namespace: object, max_paths: object) -> None:
    if not isinstance(namespace, dict):
        msg = f"namespace must be a dict of variables, not {type(namespace).__name__}"
        raise TypeError(msg)
    if not isinstance(max_paths, int) or isinstance(max_paths, bool):
        msg = f"max_paths must be a whole number, not {type(max_paths).__name__}"
        raise TypeError(msg)
    if max_paths < 1:
        msg = f"max_paths must be at least 1, not {max_paths}"
        raise ValueError(msg)


def _refuse_shared(borrowed: list[Any]) -> None:
    words = words_if_shared(borrowed[0])
    if words:
        msg = f"{words}: no reference keeps it, and cutting none frees it; ask about the object that holds it"
        raise TypeError(msg)


def _environment() -> tuple[tuple[str, str], ...]:
    versions = [("leaklab", __version__), ("Python", platform.python_version())]
    torch = sys.modules.get("torch")
    if torch is not None:
        versions.append(("torch", str(torch.__version__)))
    return tuple(versions)
