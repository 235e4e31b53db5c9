"""Read the stack of a running function, where the iterators of its ``for`` loops lie: Python shows nothing of it.

``for batch in batches():`` in a thread that waits inside keeps the generator, and all that this one keeps. The words of
the stack are copied, compared with addresses of living objects, and never followed: above its top lies what was there
before.
"""

from __future__ import annotations

import ctypes
import dis
import operator
import sys
from types import CodeType, FrameType
from typing import Final

import numpy as np

from leaklab.runtime.addresses import Addresses
from leaklab.runtime.gc_control import gc_paused
from leaklab.runtime.referents import WORD

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
_value_of = operator.attrgetter("value")

_copy_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_ssize_t, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


def stack_words(frame: FrameType) -> Addresses:
    """Return the words on the stack of *frame*, lowest first; none where this Python's layout is not known."""
    return _stack_words(frame) if _IS_KNOWN else np.zeros(0, np.int64)


def loops_in(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return the instructions (as ``f_lasti`` has them) at which each ``for`` loop of *code* begins and is over."""
    return tuple((one.offset, one.argval) for one in dis.get_instructions(code) if one.opname == "FOR_ITER")


def _stack_words(frame: FrameType) -> Addresses:
    """Copy the stack of *frame*, with what lies before it, and return its words.

    When a function of another thread returns, the memory of its stack may be given back. Threads take turns between two
    instructions of Python, and where the collector runs a finalizer: from the pointer to the end of the copy there is
    none of these.
    """
    code, pointer_at, code_at, n_before = frame.f_code, _VALUES_AT, -1, 0
    if _VERSION in _LAYOUTS:
        pointer_at, (code_at, variables_at) = _INNER_AT, _LAYOUTS[_VERSION]
        n_before = variables_at // WORD + len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
    n_bytes = (n_before + code.co_stacksize) * WORD
    with gc_paused():
        pointer = ctypes.c_ssize_t.from_address(id(frame) + pointer_at)
        content = next(map(_copy_of, map(_value_of, (pointer,)), (n_bytes,)))
    words = np.frombuffer(content, np.int64) & ~_TAGS
    is_right = code_at < 0 or words[code_at // WORD] == id(code)
    return words[n_before:] if is_right else np.zeros(0, np.int64)


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
            found = _stack_words(sys._getframe())[:2].tolist()  # noqa: SLF001 - the running function itself
    return found == [id(outer), id(inner)]


_IS_KNOWN: Final = _is_known()
