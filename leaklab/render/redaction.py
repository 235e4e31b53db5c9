"""Blank what a record tells of the user's data: summaries, keys, strings in quotes, folders.

Names of variables, attributes, functions and types stay, and so do shapes, figures and fingerprints: a redacted report
still says what grows and who holds it, and can still be compared with another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from leaklab.model import Check, Leak, RootPath
from leaklab.render.texts import with_texts

HIDDEN = "hidden"

_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# An apostrophe follows a letter ("the cell's"), the quote that opens a string does not. What was cut off for its length
# may have lost its closing quote: it ends with the text.
_QUOTED = re.compile(rf"(?<!\w)(?:[bBrRuUfF]{{1,2}})?(?:{_STRING}|'[^']*\Z|\"[^\"]*\Z)", re.DOTALL)
_OF_NAMES = re.compile(
    r"\b(?:attribute|cell|class|function|global|local|module|parameter|thread|variable)s? (?P<name>'[A-Za-z_][\w.]*')"
)
_SUBSCRIPT = re.compile(r"\[([^\[\]]*)\]\Z")
_MAPPING = re.compile(r"dict|mapping|cache|counter", re.IGNORECASE)
# A folder's name may have spaces within, so the path must begin with one that has none at its start.
_FOLDERS = re.compile(r"(?<![\w.<])(?:[A-Za-z]:)?[\\/](?=[^\s\\/])(?:[^\\/:'\"<>|\n]+[\\/])+(?=[^\s\\/:'\"]+)")


def redacted(check: Check) -> Check:
    """Return *check* without summaries, keys, strings and folders; the same string gets the same number everywhere."""
    blank = _Blank(check)
    bare = replace(
        check,
        settings=replace(check.settings, summaries=False),
        leaks=tuple(map(_without_summaries, check.leaks)),
        bounded=tuple(map(_without_summaries, check.bounded)),
    )
    told = with_texts(replace(bare, environment=()), blank.blanked)
    leaks = tuple(map(_with_fingerprint, told.leaks, check.leaks))
    bounded = tuple(map(_with_fingerprint, told.bounded, check.bounded))
    # The name is the user's own title, by which two reports are compared.
    settings = replace(told.settings, name=check.settings.name)
    return replace(told, leaks=leaks, bounded=bounded, settings=settings, environment=check.environment)


def _without_summaries(leak: Leak) -> Leak:
    steps = tuple(replace(step, summary="") for step in leak.path.steps)
    return replace(leak, path=RootPath(leak.path.root, steps))


def _with_fingerprint(told: Leak, leak: Leak) -> Leak:
    return replace(told, fingerprint=leak.fingerprint)


class _Blank:
    """The strings and keys that were met, each with its number.

    Args:
        check: The record whose paths say which subscripts are keys, and not positions in a list.
    """

    def __init__(self, check: Check) -> None:
        self._numbers: dict[str, int] = {}
        keys = {key for leak in (*check.leaks, *check.bounded) for key in _keys(leak.path)}
        listed = "|".join(map(re.escape, sorted(keys, key=len, reverse=True)))
        self._key = re.compile(rf"\[({listed})\]") if keys else None

    def blanked(self, text: str) -> str:
        """Return *text* with every string in quotes, every key of a mapping and every folder blanked."""
        names = {match.start("name") for match in _OF_NAMES.finditer(text)}
        text = _QUOTED.sub(lambda match: match[0] if match.start() in names else self._token(match[0]), text)
        if self._key is not None:
            text = self._key.sub(lambda match: f"[{self._token(match[1])}]", text)
        return _FOLDERS.sub("", text)

    def _token(self, found: str) -> str:
        inner = found.lstrip("bBrRuUfF").strip("'\"")
        number = self._numbers.setdefault(inner, len(self._numbers) + 1)
        return f"'{HIDDEN} {number}'"


def _keys(path: RootPath) -> Iterator[str]:
    """Yield the subscripts by which mappings are read on *path*, but for those in quotes."""
    for before, step in zip(path.steps, path.steps[1:], strict=False):
        match = _SUBSCRIPT.search(step.reference)
        if match and _MAPPING.search(before.kind) and not _QUOTED.match(match[1]):
            yield match[1]
