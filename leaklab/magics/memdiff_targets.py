"""Tell what stands behind ``%memdiff``: marks or files."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence

from leaklab.model.moments import HeapMoment

MOMENT_SUFFIX = ".npz"
_SUFFIXES = (".pickle", ".pkl", MOMENT_SUFFIX)


class Marks:
    """The moments that were marked, by name; the newest is the last."""

    def __init__(self) -> None:
        self._by_name: dict[str, HeapMoment] = {}

    def add(self, moment: HeapMoment) -> None:
        """Keep *moment* under its name, instead of an older one of that name."""
        self._by_name.pop(moment.name, None)
        self._by_name[moment.name] = moment

    def named(self, names: Sequence[str]) -> list[HeapMoment]:
        """Return the marks called *names*; the newest if there are none.

        Raises:
            LookupError: one sentence with the marks that exist, if one of them does not, or there are more than two.
        """
        if not self._by_name:
            asked = f"there is no mark {names[0]!r}, and none at all" if names else "there is no mark to compare with"
            msg = f"{asked}: make one with %memdiff --mark {names[0] if names else 'before'}"
            raise LookupError(msg)
        known = ", ".join(self._by_name)
        for name in names:
            if name not in self._by_name:
                marks = "mark is" if len(self._by_name) == 1 else "marks are"
                msg = f"there is no mark {name!r}; the {marks} {known}; to run it as code write %memdiff ({name})"
                raise LookupError(msg)
        if len(names) > 2:  # noqa: PLR2004
            msg = f"one mark is compared with now, or two with each other, not {len(names)}"
            raise LookupError(msg)
        return [self._by_name[name] for name in names or list(self._by_name)[-1:]]


def is_bare_name(word: str) -> bool:
    """Return whether *word* could be the name of a mark: what Python takes for a name."""
    return word.isidentifier()


def files_of(rest: str) -> list[str]:
    """Return the files that *rest* names; empty if it is no list of files. A file is known by its suffix.

    Patterns of saved moments are expanded; those of memory snapshots stay for their reader.
    """
    try:
        words = shlex.split(rest)
    except ValueError:  # the quotes of code
        return []
    if not words or not all(word.endswith(_SUFFIXES) for word in words):
        return []
    files: list[str] = []
    for word in words:
        expands = word.endswith(MOMENT_SUFFIX) and glob.has_magic(word)
        files += (sorted(glob.glob(word)) if expands else []) or [word]  # noqa: PTH207 - a pattern may be absolute
    return files
