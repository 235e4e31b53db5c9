"""Give a report its page and its record, as a text to work with or as a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import overload

from leaklab.errors import ReportError

# Show a view in a notebook as HTML and in a terminal as text, whatever goes wrong while it is drawn.


class Displayed(ABC):
    """What shows itself as the last line of a cell. Showing it never raises: an error must not hide what was found."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def _fragment(self) -> str:
        """Return it as HTML that survives the sanitizers of notebooks; empty where there is only text to show."""

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return it as text for terminals and as HTML for notebooks; never raises."""
        del include, exclude  # IPython drops what it did not ask for
        bundle = {"text/plain": repr(self)}
        try:
            bundle["text/plain"] = str(self)
            markup = self._fragment()
        except Exception as error:  # noqa: BLE001 - of whatever type it is: what could be drawn is shown
            bundle["text/plain"] += f"\n(not all of it could be drawn: {_named(error)})"
            return bundle
        return {**bundle, "text/html": markup} if markup else bundle


def _named(error: Exception) -> str:
    """Return the type of *error* with its message, if it has one that can be read."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - of whatever type the error is
        message = ""
    return ": ".join(filter(None, (type(error).__name__, message)))


# Save a text in the form that the suffix of its file asks for.


FilePath = str | os.PathLike[str]


def save_by_suffix(path: FilePath, writers: Mapping[str, Callable[[], str]]) -> None:
    """Write to *path* what the writer of its suffix returns, in UTF-8.

    Raises:
        ReportError: if no writer has that suffix, or the file cannot be written; the message says what to do.
    """
    write_text(path, writers[known_suffix(path, writers)]())


def known_suffix(path: FilePath, suffixes: Iterable[str]) -> str:
    """Return the suffix of *path* in small letters.

    Raises:
        ReportError: if it is none of *suffixes*.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        ending = f"not in {suffix!r}" if suffix else "and has no suffix"
        msg = f"cannot save as {os.fspath(path)!r}: the name must end in {' or '.join(suffixes)}, {ending}"
        raise ReportError(msg)
    return suffix


def check_target(path: FilePath, suffixes: Iterable[str]) -> None:
    """Find out before long work whether its result could be saved to *path*; writes nothing.

    Args:
        path: The file.
        suffixes: Of the files that the result can be saved to.

    Raises:
        ReportError: if the suffix is another one, the folder is missing or cannot be written, or *path* is a folder.
    """
    known_suffix(path, suffixes)
    folder = Path(path).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        msg = f"cannot write {os.fspath(path)!r}: there is no folder {str(folder)!r} that can be written; make it first"
        raise ReportError(msg)
    if Path(path).is_dir():
        msg = f"cannot write {os.fspath(path)!r}: this is a folder; give the name of a file"
        raise ReportError(msg)


def write_text(path: FilePath, text: str) -> None:
    """Write *text* to *path* in UTF-8, with the same line ends everywhere.

    Raises:
        ReportError: if the file cannot be written.
    """
    try:
        Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot write {os.fspath(path)!r}: {reason}; give the path of a folder that exists and can be written"
        raise ReportError(msg) from error


def read_source(path_or_text: FilePath) -> str | bytes:
    """Return *path_or_text* where it is JSON itself, else what the file of that name holds.

    Raises:
        ReportError: if the file cannot be read.
    """
    source = os.fspath(path_or_text)
    is_text = isinstance(path_or_text, str) and source.lstrip()[:1] in ("{", "[", '"')
    return source if is_text else read_bytes(source)


def read_bytes(path: FilePath) -> bytes:
    """Return what the file at *path* holds.

    Raises:
        ReportError: if it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot read {os.fspath(path)!r}: {reason}; give a file made by report.to_json(path)"
        raise ReportError(msg) from error


class Exports(Displayed):
    """A report with a page of its own and a record as JSON."""

    __slots__ = ()

    @abstractmethod
    def _html_file(self) -> str:
        """Return what a file with the page holds."""

    @abstractmethod
    def _json_file(self) -> str:
        """Return what a file with the record holds."""

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: None) -> str: ...

    @overload
    def to_html(self, path: FilePath) -> None: ...

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the report as a page of its own that needs no network; with *path* write it there and return None.

        The page of a `leaklab.LeakReport` carries its record within itself: `leaklab.load_report` reads it back.

        Raises:
            ReportError: if the file cannot be written.
        """
        return _returned_or_written(self._html_file(), path)

    @overload
    def to_json(self) -> str: ...

    @overload
    def to_json(self, path: None) -> str: ...

    @overload
    def to_json(self, path: FilePath) -> None: ...

    def to_json(self, path: FilePath | None = None) -> str | None:
        """Return the record, with every figure, as JSON; with *path* write it there and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return _returned_or_written(self._json_file(), path)


def _returned_or_written(text: str, path: FilePath | None) -> str | None:
    """Return *text*, or write it: what a notebook's last line returns would flood the cell."""
    if path is None:
        return text
    write_text(path, text)
    return None
