"""Tell whose an object is: the user's, or a library's or the notebook's own affair."""

from __future__ import annotations

import sys
import types

import numpy as np
import numpy.typing as npt

from leaklab.explain.heap.starts import Start
from leaklab.explain.source.origins import Origin, origin_of
from leaklab.explain.view import HeapView
from leaklab.objects import has_base, is_kind_of, type_name

_INTERPRETER_COST = 40
_KEPT_BY_CODE = ("last exception", "exception being handled", "context variable", "signal handler")
_FRONT_ENDS = (
    "IPython.", "ipykernel.", "traitlets.", "zmq.", "tornado.", "jupyter_client.", "comm.", "prompt_toolkit.",
    "matplotlib_inline.", "debugpy.",
)  # fmt: skip
_HISTORY = ("In", "Out", "_ih", "_oh", "_dh")
_module_of = type.__dict__["__module__"].__get__


class Belonging:
    """Whose each vertex of a view is.

    An object is nobody's concern if nothing in Python leads to it, if its path begins in a library or in the
    interpreter, or if its path leads through code of a library or an object of the notebook's own: the tables inside a
    class that the user has merely imported are none of the user's.
    """

    def __init__(self, view: HeapView) -> None:
        self._view = view
        self._is_aside_start = [*map(_is_aside, view.starts), True]
        self._history = {start.address for start in view.starts if start.expression in _HISTORY}
        self._known: dict[int, bool] = {}

    def is_aside(self, vertices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of *vertices* are no concern of the user's."""
        return np.fromiter((self.is_aside_one(vertex) for vertex in vertices.tolist()), bool, len(vertices))

    def is_aside_one(self, vertex: int) -> bool:
        """Return whether *vertex* is no concern of the user's."""
        view, above = self._view, []
        if vertex == view.namespace:
            return False
        if self._is_aside_start[view.tree.root_of[vertex]] or int(view.index.ids[vertex]) in self._history:
            return True
        before = int(view.tree.parent[vertex])
        while before >= 0 and before not in self._known:
            above.append(before)
            before = int(view.tree.parent[before])
        answer = before >= 0 and self._known[before]
        for passed in reversed(above):
            answer = answer or _is_foreign(view.objects[passed])
            self._known[passed] = answer
        return answer

    def place_of(self, vertex: int) -> str:
        """Return where *vertex* is kept, in a few words."""
        root = int(self._view.tree.root_of[vertex])
        return self._view.starts[root].words if root >= 0 else "held by nothing in Python"


def _is_aside(start: Start) -> bool:
    if start.is_library:
        return True
    return start.cost >= _INTERPRETER_COST and start.words not in _KEPT_BY_CODE


def _is_foreign(thing: object) -> bool:
    kind = type(thing)
    if kind is types.FrameType:
        return origin_of(thing.f_code.co_filename) is not Origin.USER  # type: ignore[attr-defined]  # the type was asked
    if kind is types.FunctionType:
        return origin_of(thing.__code__.co_filename) is not Origin.USER  # type: ignore[attr-defined]
    if is_kind_of(thing, type):
        return not _is_users_class(thing)
    if has_base(kind, types.ModuleType):
        return False  # where a path begins, and judged there
    return type_name(kind).startswith(_FRONT_ENDS)


def _is_users_class(kind: object) -> bool:
    try:
        name = _module_of(kind)
    except (AttributeError, TypeError):
        return True
    if type(name) is not str or name == "__main__":
        return True
    module = sys.modules.get(name)
    file = vars(module).get("__file__") if type(module) is types.ModuleType else None
    if type(file) is not str:
        package = name.partition(".")[0]
        return package not in sys.stdlib_module_names and package not in sys.builtin_module_names and package != "torch"
    return origin_of(file) is Origin.USER
