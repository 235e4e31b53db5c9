"""How to let go: which call undoes which other one, what ends what was begun, what lets go by its name.

The only home of that knowledge, for advice and for changes: what is entered here is said, and written, everywhere.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import Final

from leaklab.runtime.objects import type_name

_PAIRS: Final = (
    ("register", "unregister"), ("subscribe", "unsubscribe"), ("connect", "disconnect"), ("observe", "unobserve"),
    ("attach", "detach"), ("bind", "unbind"), ("on", "off"), ("listen", "unlisten"), ("watch", "unwatch"),
    ("mpl_connect", "mpl_disconnect"), ("install", "uninstall"),
)  # fmt: skip
_BEGINNINGS: Final = (("add_", "remove_"), ("add", "remove"), ("register_", "unregister_"), ("on_", "off_"))
_ONE_ENTRY: Final = ((list, "append", "remove"), (set, "add", "discard"), (collections.deque, "append", "remove"))
_OF_MODULES: Final = ("close", "clear", "reset", "remove", "unregister", "free", "release", "shutdown", "cancel")
_OF_OBJECTS: Final = (
    *_OF_MODULES, "shut_down", "stop", "terminate", "detach", "unsubscribe", "disconnect", "off", "discard", "pop",
    "flush", "drain",
)  # fmt: skip
OF_HANDLES: Final = ("cancel", "remove", "disconnect", "unsubscribe", "unobserve", "dispose", "unregister", "off")
"""Methods of the handle that a registration returns: whatever has one keeps something that is called back."""
ENDS: Final = {
    "ThreadPoolExecutor": "shutdown()", "ProcessPoolExecutor": "shutdown()", "Pool": "terminate()",
    "ThreadPool": "terminate()", "Timer": "cancel()", "SummaryWriter": "close()", "socket": "close()",
    "open": "close()", "TemporaryFile": "close()", "NamedTemporaryFile": "close()",
    "TemporaryDirectory": "cleanup()", "figure": "", "subplots": "", "mmap": "close()", "Manager": "shutdown()",
    "Popen": "wait()", "connect": "close()", "Session": "close()", "Client": "close()",
}  # fmt: skip
"""What a constructor's object is ended by; empty for a figure, which pyplot closes."""
OF_LIBRARIES: Final = (
    (r"matplotlib\._pylab_helpers", "plt.close('all')"),
    (r"^linecache\.cache", "linecache.clearcache()"),
    (r"^torch\._(dynamo|inductor)", "torch._dynamo.reset()"),
    (r"^pyro\.params", "pyro.clear_param_store()"),
    (r"Widget\._instances|_instances$", "Widget.close_all()"),
    (r"history_manager\.outputs", "get_ipython().history_manager.outputs.clear()"),
)
"""What empties a table that a library keeps for all of its users, by the expression of the table."""
OF_OWNERS: Final = ((r"^torchmetrics\.", "reset"), (r"^accelerate\.", "free_memory"), (r"tensorboard", "close"))
"""The method by which an object of a library lets go of what it has collected, by its type."""
WORKERS: Final = (
    "multiprocessing.context.", "multiprocessing.process.", "multiprocessing.pool.", "multiprocessing.managers.",
    "concurrent.futures.thread.", "concurrent.futures.process.",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",
)  # fmt: skip
"""How the types of threads, processes and pools begin that work for somebody until they are ended."""
STARTERS: Final = ("multiprocessing.", "concurrent.futures.process.", "torch.utils.data.", "joblib.")
"""How the types of all begin that start processes, whatever of them it is that keeps one."""


def undoing(call: str) -> Iterator[str]:
    """Yield the names of the methods that may take back what the method *call* has registered."""
    yield from (undoes for does, undoes in _PAIRS if call == does)
    yield from (
        undoes + call.removeprefix(does) for does, undoes in _BEGINNINGS if call.startswith(does) and call != does
    )


def takes_one_out(kind: str, call: str = "") -> str:
    """Return the method that takes one entry out of a plain container again; empty if it is none.

    Args:
        kind: Name of its type.
        call: The method that put the entry there; empty where that does not matter.
    """
    fitting = (out for of, puts, out in _ONE_ENTRY if type_name(of) == kind and call in ("", puts))
    return next(fitting, "")


def lets_go(name: str, *, of_module: bool = False) -> bool:
    """Return whether a method, or a function of a module, lets go of something by its name: ``clear_cache``."""
    return (_FUNCTION if of_module else _METHOD).match(name) is not None


_METHOD, _FUNCTION = (re.compile(rf"^({'|'.join(names)})(_\w+)?$") for names in (_OF_OBJECTS, _OF_MODULES))
