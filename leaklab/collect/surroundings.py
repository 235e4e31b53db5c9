"""Know where code runs: the user's variables, and what in them is the notebook's own."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leaklab.addresses import Addresses
from leaklab.collect.moment import take_moment
from leaklab.model.moments import HeapMoment

_HISTORY_RECORDS = (
    "input_hist_parsed", "input_hist_raw", "dir_hist", "output_hist_reprs", "outputs", "db_input_cache",
    "db_output_cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """Where code runs: what is looked at first for holders, and what is nobody's doing but the notebook's.

    Attributes:
        namespace: The user's variables.
        hidden_names: Names in it that the front end has put there.
        records: Containers in which the notebook keeps texts: its history, the source of its cells.
    """

    namespace: dict[str, Any] | None
    hidden_names: Collection[str] = ()
    records: tuple[object, ...] = ()

    def take(
        self,
        name: str,
        *,
        born: Addresses | None = None,
        exact_since: str = "",
        collects: bool = True,
        with_places: bool = True,
    ) -> HeapMoment:
        """Take a moment here; the arguments are those of `take_moment`.

        What was printed is flushed first: a kernel sends it from another thread, with objects of its own.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a stream of the user's may raise anything
                stream.flush()
        return take_moment(
            name,
            self.namespace,
            hidden_names=self.hidden_names,
            records=self.records,
            born=born,
            exact_since=exact_since,
            collects=collects,
            with_places=with_places,
        )


def surroundings(namespace: dict[str, Any] | None, shell: Any = None) -> Surroundings:
    """Return the surroundings of code in *namespace*, in the notebook *shell* or the running one, if any.

    IPython is looked up, never imported.
    """
    records: list[object] = [vars(sys.modules["linecache"])["cache"]] if "linecache" in sys.modules else []
    ipython = sys.modules.get("IPython")
    shell = shell or (ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None)
    if shell is None:
        return Surroundings(namespace, (), tuple(records))
    history = getattr(shell, "history_manager", None)
    records += [found for name in _HISTORY_RECORDS if (found := getattr(history, name, None)) is not None]
    records += [found for found in (getattr(shell.compile, "_filename_map", None),) if found is not None]
    if namespace is None:
        namespace = shell.user_ns
    is_notebook = namespace is shell.user_ns
    return Surroundings(namespace, frozenset(shell.user_ns_hidden) if is_notebook else (), tuple(records))
