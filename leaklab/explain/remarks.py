"""Name the holders of libraries that people meet, and how each is made to let go: a table."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from leaklab.explain.starts import Start


class _Known(NamedTuple):
    """A holder of a library: where its paths begin, what is on them, and what to say."""

    root: str
    reference: str
    words: str


_ANY = ""
_KNOWN: Final = tuple(
    _Known(*row)
    for row in (
        (
            "last exception",
            _ANY,
            "Python keeps the last uncaught exception, and with it the frames: delete sys.last_value and its kin",
        ),
        (
            "exception being handled",
            _ANY,
            "it lives as long as the except block that handles it",
        ),
        (
            r"module '(torch\._dynamo|torch\._inductor|torch\._functorch)",
            _ANY,
            "torch.compile keeps what it compiled, with its inputs: torch._dynamo.reset() lets go of it",
        ),
        (
            r"module '(pdb|bdb|debugpy|pydevd|_pydevd)",
            _ANY,
            "a debugger holds it: end the session, or turn off its data viewer",
        ),
        (
            _ANY,
            r"InteractiveTB|last_execution_result|SyntaxTB|\.displayhook|user_ns_hidden",
            "IPython keeps the last result and the last traceback: run another cell, then %reset -f out",
        ),
        (
            r"module '(matplotlib|pylab)",
            _ANY,
            "pyplot keeps every figure that is open: plt.close('all')",
        ),
        (
            r"module 'linecache'|module 'warnings'|module 'logging",
            _ANY,
            "a table of the standard library",
        ),
        (
            _ANY,
            r"_\w*hooks(_\w+)?\b",
            "a hook holds it: keep the handle that its registration returns, and call handle.remove()",
        ),
        (r"thread ", _ANY, "it goes when the thread's function returns"),
        (r"running function ", _ANY, "it goes when that function returns"),
        ("context variable", _ANY, "a context variable keeps it: var.reset(token), or set it to something else"),
        ("signal handler", _ANY, "a signal handler keeps it: signal.signal(number, signal.SIG_DFL)"),
    )
)
_HISTORY = (
    "the notebook remembers results: end a line with a semicolon so that nothing is stored; %reset -f out and then "
    "del _ , __ , ___ release what is there"
)


def remark_on(start: Start | None, references: str) -> str:
    """Return what is known of the holder of a path, empty if it is nobody's but the user's.

    Args:
        start: Where the path begins.
        references: All references of the path in one text.
    """
    if start is None:
        return ""
    if start.is_history:
        return _HISTORY
    for known in _KNOWN:
        if re.match(known.root, start.words) and re.search(known.reference, references):
            return known.words
    return f"a library holds it for itself: {start.words}" if start.is_library else ""
