"""Read the stack of a running function, where the iterators of its ``for`` loops lie: Python shows nothing of it.

``for batch in batches():`` in a thread that waits inside keeps the generator, and all that this one keeps. The words of
the stack are compared with addresses of living objects, and never followed: above its top lies what was there before.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType
from typing import Final

import numpy as np

from leaklab.runtime.addresses import Addresses
from leaklab.runtime.referents import WORD, word_at, words_at

_VERSION: Final = sys.version_info[:2]
_INNER_AT: Final = 3 * WORD
"""From 3.11 on a frame has the pointer to what the interpreter runs behind an object's header and the outer frame."""
_VALUES_AT: Final = 8 * WORD
"""Where a frame of Python 3.10 has the pointer to its stack (``f_valuestack``)."""
_LAYOUTS: Final[dict[tuple[int, int], tuple[int, int]]] = {
    (3, 11): (4 * WORD, 9 * WORD), (3, 12): (0, 9 * WORD), (3, 13): (0, 9 * WORD), (3, 14): (0, 10 * WORD),
}  # fmt: skip
"""Where what the interpreter runs (``_PyInterpreterFrame``) has its code, and where its variables begin."""
_TAGS: Final = 7
"""Python 3.14 has marks in the lowest bits of what is on a stack."""


def stack_words(frame: FrameType) -> Addresses:
    """Return the words on the stack of *frame*, lowest first; none where this Python's layout is not known."""
    bottom = _bottom_of(frame) if _IS_KNOWN else 0
    if not bottom:
        return np.zeros(0, np.int64)
    return words_at(bottom + WORD * np.arange(frame.f_code.co_stacksize)) & ~_TAGS


def n_open_loops(code: CodeType, at: int) -> int:
    """Return in how many ``for`` loops of *code* an interpreter is that runs the instruction *at* (``f_lasti``)."""
    loops = (one for one in dis.get_instructions(code) if one.opname == "FOR_ITER")
    return sum(loop.offset <= at < loop.argval for loop in loops)


def _bottom_of(frame: FrameType) -> int:
    """Return the address of the lowest value on the stack of *frame*; 0 where something is not as it should be."""
    if _VERSION == (3, 10):
        return word_at(id(frame) + _VALUES_AT)
    code, (code_at, variables_at) = frame.f_code, _LAYOUTS[_VERSION]
    inner = word_at(id(frame) + _INNER_AT)
    if not inner or word_at(inner + code_at) & ~_TAGS != id(code):
        return 0
    n_variables = len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
    return inner + variables_at + n_variables * WORD


def _is_known() -> bool:
    """Return whether the iterators of two loops are found where they must be."""
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    is_plain = sys.implementation.name == "cpython" and not hasattr(sys, "getobjects")
    if not is_locked or not is_plain or not (_VERSION == (3, 10) or _VERSION in _LAYOUTS):
        return False
    outer, inner = iter([1]), iter([2])
    found: list[int] = []
    for _one in outer:
        for _other in inner:
            bottom = _bottom_of(sys._getframe())  # noqa: SLF001 - the running function itself
            found = [word_at(bottom + place * WORD) & ~_TAGS for place in range(2)] if bottom else []
    return found == [id(outer), id(inner)]


_IS_KNOWN: Final = _is_known()
