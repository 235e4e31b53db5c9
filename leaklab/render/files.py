"""Save a text in the form that the suffix of its file asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from leaklab.errors import ReportError

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
