"""Say of a path's holder how it is made to let go: what is known of libraries, then of where paths begin."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from leaklab.explain.heap.starts import Start
from leaklab.explain.paths.known_holders import known_holder
from leaklab.model import RootPath


class _Known(NamedTuple):
    """A kind of holder that is no one library's: where its paths begin, what is on them, and what to say."""

    root: str
    reference: str
    words: str


_ANY = ""
_KNOWN: Final = tuple(
    _Known(*row)
    for row in (
        (
            "exception being handled",
            _ANY,
            "it lives as long as the except block that handles it",
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


def remark_on(start: Start | None, path: RootPath) -> str:
    """Return what is known of the holder of a path, empty if it is nobody's but the user's.

    Args:
        start: Where the path begins.
        path: The path, of which the table of `known_holders` is asked first.
    """
    if start is None:
        return ""
    if start.is_history:
        return _HISTORY
    if (found := known_holder(path)) is not None:
        return found[1].words
    references = " ".join(step.reference for step in path.steps)
    for known in _KNOWN:
        if re.match(known.root, start.words) and re.search(known.reference, references):
            return known.words
    return f"a library holds it for itself: {start.words}" if start.is_library else ""
