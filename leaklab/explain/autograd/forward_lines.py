"""Tell which line of the forward pass made an autograd node, where anomaly mode was on to record it.

``torch.autograd.set_detect_anomaly(True)`` writes the stack into ``grad_fn.metadata['traceback_']``. Asking a node of
which nothing was recorded leaves an empty dict on it, some 70 bytes, for as long as the graph lives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from leaklab.explain.source.origins import Origin, origin_of
from leaklab.graph_walk import descriptors_of

NameFile = Callable[[str], str | None]
"""Returns what a reader calls a file, ``Cell In[7]`` for one that a notebook made up; None for a real file."""

_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)(?:\n    (.*))?')


class LineReader:
    """Reads the forward lines of nodes; a stack that many nodes share is understood once."""

    def __init__(self, name_file: NameFile) -> None:
        self._name_file = name_file
        self._readers: dict[int, Callable[[Any], Any]] = {}
        self._known: dict[str, str] = {}

    def line_of(self, node: Any) -> str:
        """Return ``Cell In[7], line 3 in step: loss = ...``, empty where nothing was recorded."""
        kind = type(node)
        read = self._readers.get(id(kind))
        if read is None:
            read = self._readers[id(kind)] = descriptors_of(kind)["metadata"].__get__
        stack = read(node).get("traceback_")
        if type(stack) is not list or not stack or not all(type(entry) is str for entry in stack):
            return ""
        key = "".join(stack)
        if key not in self._known:
            self._known[key] = self._innermost(stack)
        return self._known[key]

    def _innermost(self, stack: list[str]) -> str:
        """Return the innermost line of the user's own code; of whosoever where there is none."""
        frames = [match.groups() for match in map(_FRAME.match, stack) if match is not None]
        own = [frame for frame in frames if origin_of(frame[0]) is Origin.USER]
        for file, number, function, code in (own or frames)[-1:]:
            place = self._name_file(file) or file
            where = f" in {function}" if function != "<module>" else ""
            return f"{place}, line {number}{where}" + (f": {code.strip()}" if code else "")
        return ""
