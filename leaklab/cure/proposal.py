"""What passes between who proposes a change and who tries it: the program that leaks, and the change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leaklab.model.cure import Change


@dataclass(frozen=True, slots=True)
class Program:
    """The user's program, as far as a change to it can be thought out.

    Attributes:
        namespace: The global variables of the code that is checked; read, never changed.
        source: Returns the text behind the file name of a code object; None where there is none to be had.
        place: Returns how a reader knows a line of such a file: ``this cell, line 3``.
        checked: The file name of the code that runs again and again: the cell's, or that of the checked function.
        function: The name of the checked function; empty for a cell, all of which runs again and again.
    """

    namespace: Mapping[str, Any]
    source: Callable[[str], str | None]
    place: Callable[[str, int], str]
    checked: str
    function: str = ""

    def named(self, filename: str) -> str:
        """Return what a reader calls a file or a cell: ``this cell``, ``Cell In[2]``, ``train.py``."""
        return re.sub(r"(, line |:)1\Z", "", self.place(filename, 1))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change worth trying, or a cure that can be said in words only.

    Attributes:
        words: What to do, one sentence in the user's own names.
        changes: All of them together are tried; empty for a cure in words only.
        not_tried: Why the change must not be tried, one clause; empty if it may.
        emptied: Expressions, in the program's variables, of the containers (list, dict, set, deque, and subclasses of
            these) out of which the change takes entries, and of variables and attributes that it binds to less: where a
            trial in this process could not put these back, it is not made.
        drops: What of that may still be in use, one clause; empty if nothing: such a change cures nothing.
        again: File names of cells that ran once, before what is checked, and are run again: changed before a trial of
            the change, and unchanged before the runs that it is compared with.
    """

    words: str
    changes: tuple[Change, ...] = ()
    not_tried: str = ""
    emptied: tuple[str, ...] = ()
    drops: str = ""
    again: tuple[str, ...] = ()
