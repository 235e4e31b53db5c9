"""Open a pickled snapshot without running anything that it holds."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

from leaklab.errors import SnapshotError
from leaklab.snapshots.audit import audit, truncated
from leaklab.snapshots.ceiling import memory_ceiling
from leaklab.snapshots.pausing import collector_paused

MAX_FILE_BYTES = 8 << 30
"""A larger file would need some 40 GB in memory."""

AUDITED_BYTES = 32 << 20
"""Files up to this size are audited unless the caller says otherwise: at most 0.4 s more."""

_CEILING_PER_BYTE = 24
_LEAST_CEILING_BYTES = 1 << 30

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


class _Refusing(pickle.Unpickler):
    """The C unpickler without a way to anything outside the file."""

    def find_class(self, module: str, name: str) -> Any:
        msg = (
            f"refused: the file asks for {module[:80]}.{name[:80]}, but a memory snapshot holds data only;"
            " do not open this file with pickle"
        )
        raise SnapshotError(msg)

    def persistent_load(self, pid: object) -> Any:
        del pid
        msg = "refused: the file asks for an object outside of it (a persistent id); a memory snapshot holds data only"
        raise SnapshotError(msg)


class _Counted(io.RawIOBase):
    """A file that reports how much of it was read, and hands out no more than it holds.

    Without the second, a length claimed in the file would be allocated before it is found to be a lie.
    """

    def __init__(self, file: BinaryIO, n_bytes: int, progress: Progress | None) -> None:
        super().__init__()
        self._file, self._left, self._n_bytes, self._progress = file, n_bytes, n_bytes, progress

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size > self._left:
            raise truncated(self._n_bytes)
        data = self._file.read(size)
        self._count(len(data))
        return data

    def readinto(self, buffer: Any, /) -> int:
        n_read = self._file.readinto(buffer)  # type: ignore[attr-defined]  # buffered binary files have it
        self._count(n_read)
        return int(n_read)

    def peek(self, size: int = 0, /) -> bytes:
        return self._file.peek(size)  # type: ignore[attr-defined,no-any-return]  # buffered binary files have it

    def readline(self, size: int | None = -1, /) -> bytes:
        line = self._file.readline(1 << 16 if size is None or size < 0 else min(size, 1 << 16))
        self._count(len(line))
        return line

    def _count(self, n_read: int) -> None:
        self._left -= n_read
        if self._progress is not None:
            self._progress(self._n_bytes - self._left, self._n_bytes)


def read_pickle(
    path: str | os.PathLike[str], *, audited: bool | None = None, progress: Progress | None = None
) -> object:
    """Return what the pickle at *path* holds: built-in containers, strings and numbers.

    No code of the file runs: every global and every persistent id is refused. Beyond that, files of up to
    `AUDITED_BYTES` are audited opcode by opcode before anything is built; larger ones are built under a ceiling of
    memory (on Linux), because the audit takes longer than the loading.

    Args:
        path: The file.
        audited: True audits a file of any size, False none; None leaves it to the size.
        progress: Told how far the reading is.

    Raises:
        SnapshotError: if there is no such file, or it is too large, damaged, hostile or no pickle. One sentence.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - a name may be a str or any path
            n_bytes = os.fstat(file.fileno()).st_size
            _refuse_giant(n_bytes)
            is_audited = n_bytes <= AUDITED_BYTES if audited is None else audited
            return _load_audited(file, n_bytes, progress) if is_audited else _load(file, n_bytes, progress)
    except SnapshotError as error:
        msg = f"cannot open {name!r}: {error}"
        raise SnapshotError(msg) from None  # what pickle said adds nothing to the sentence
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot read {name!r}: {reason}; give a file written by torch.cuda.memory._dump_snapshot(path)"
        raise SnapshotError(msg) from error


def _refuse_giant(n_bytes: int) -> None:
    if n_bytes > MAX_FILE_BYTES:
        msg = (
            f"the file has {n_bytes:,} bytes, more than the {MAX_FILE_BYTES:,} that are opened;"
            " record with a smaller max_entries"
        )
        raise SnapshotError(msg)


def _load_audited(file: BinaryIO, n_bytes: int, progress: Progress | None) -> object:
    data = file.read(n_bytes + 1)
    audit(data)
    if progress is not None:
        progress(n_bytes // 2, n_bytes)
    loaded = _unpickle(io.BytesIO(data))
    if progress is not None:
        progress(n_bytes, n_bytes)
    return loaded


def _load(file: BinaryIO, n_bytes: int, progress: Progress | None) -> object:
    with memory_ceiling(_LEAST_CEILING_BYTES + _CEILING_PER_BYTE * n_bytes):
        return _unpickle(_Counted(file, n_bytes, progress))


def _unpickle(file: Any) -> object:
    try:
        with collector_paused():
            return _Refusing(file).load()
    except SnapshotError:
        raise
    except (EOFError, MemoryError) as error:
        msg = f"the file is cut off, or claims more than this machine holds ({type(error).__name__}); copy it again"
        raise SnapshotError(msg) from error
    except Exception as error:  # the unpickler raises nearly anything on data that is none
        reason = str(error)[:120].rstrip(".") or type(error).__name__
        msg = f"the file is damaged or no pickle ({reason}); write it again with torch.cuda.memory._dump_snapshot(path)"
        raise SnapshotError(msg) from error
