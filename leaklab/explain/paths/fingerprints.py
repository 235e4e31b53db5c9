"""Hash the parts of a path that are the same for the same leak tomorrow."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

N_HEX_DIGITS = 12

_CHANGING = (
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x"),  # addresses
    (re.compile(r"<locals>\."), ""),
    (re.compile(r"Cell In ?\[\d+\]"), "Cell In[*]"),  # what IPython 8 and 9 call a cell in tracebacks
    (re.compile(r"<ipython-input-[^>]*>"), "<ipython-input>"),  # and IPython 7
    (re.compile(r"\S*ipykernel_\d+\S*?\.py"), "<ipykernel>"),  # the file that ipykernel pretends a cell to be
    (re.compile(r"(?<![\w'\"])(_i{0,3})\d+\b"), r"\1*"),  # _12 and _i12, IPython's names for outputs and inputs
    (re.compile(r"\b(In|Out)\[\d+\]"), r"\1[*]"),
    (re.compile(r"\b(Thread|Task|Dummy|MainThread)-\d+"), r"\1-*"),
)


def stable_text(text: str) -> str:
    """Return *text* without addresses and without the numbers that IPython, threads and tasks count up."""
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


def fingerprint(parts: Sequence[str]) -> str:
    """Return 12 hexadecimal digits, the same for the same *parts*: their order counts, running numbers do not."""
    # A separator that no part contains: ("a", "bc") and ("ab", "c") are two different paths.
    joined = "\0".join(stable_text(part) for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:N_HEX_DIGITS]
