"""Write a file as a whole: whoever reads it sees what stood there before or what stands there now, never a part."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from leaklab.errors import ReportError

FilePath = str | os.PathLike[str]

_STDERR = 2
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NOT_SYNCED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # the file system has no such call
# A file that is a mount point of its own, as in containers, or somebody else's in a folder such as /tmp.
_NOT_REPLACED = (errno.EBUSY, errno.EPERM, errno.EACCES)
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


def write_bytes(path: FilePath, data: bytes | memoryview) -> None:
    """Write *data* to *path*, as `replacing` does."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: FilePath) -> Iterator[BinaryIO]:
    """Lend a new file; when the block ends, it is on the disk and stands at *path*.

    Where anything fails, the older file is as before, and the new one is removed. A link stays a link: what it names is
    replaced. The mode of the older file stays, and its owner where that is allowed. Devices and pipes are written to
    directly, and so is a file in a folder where no other can be made.

    Raises:
        ReportError: if the file cannot be written; the message says what to do.
    """
    try:
        with _replacing(Path(os.path.realpath(path))) as file:
            yield file
    except (OSError, ValueError) as error:  # a path with a zero in it is a ValueError
        is_full = getattr(error, "errno", None) in _NO_ROOM
        advice = "make room there, or give another folder" if is_full else "give a path in a folder that can be written"
        msg = f"cannot write {os.fspath(path)!r}: {getattr(error, 'strerror', None) or error}; {advice}"
        raise ReportError(msg) from error


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    older = target.stat() if os.path.lexists(target) else None
    beside = target.with_name(f".leaklab-{secrets.token_hex(8)}.tmp")
    descriptor = _made(beside, target, older)
    if descriptor is None:
        with target.open("wb") as file:
            yield file
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            _bring_to_disk(file)
        if older is not None:
            _take_over(beside, older)
        _put(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _made(beside: Path, target: Path, older: os.stat_result | None) -> int | None:
    """Return a descriptor of the new file *beside*; None where *target* must be written to directly."""
    if older is None:  # not `tempfile`: a new file gets the mode that every program of the user gives it
        return os.open(beside, _FLAGS, 0o666)
    if not stat.S_ISREG(older.st_mode):
        return None
    os.close(os.open(target, os.O_WRONLY))  # a file that is protected from being written raises here
    try:
        return os.open(beside, _FLAGS, 0o600)
    except PermissionError:
        return None


def _bring_to_disk(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def _take_over(beside: Path, older: os.stat_result) -> None:
    """Give the new file the owner and the mode of the older one, as far as the system allows."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(beside, older.st_uid, older.st_gid)
    with suppress(OSError):
        beside.chmod(stat.S_IMODE(older.st_mode))


def _put(beside: Path, target: Path) -> None:
    try:
        beside.replace(target)
    except OSError as error:
        if error.errno not in _NOT_REPLACED:
            raise
        shutil.copyfile(beside, target)


def say_on_stderr(text: str) -> None:
    """Write to the standard error itself: a program may have replaced `sys.stderr`, or be in the middle of a print."""
    with suppress(OSError):
        os.write(_STDERR, text.encode("utf-8", "backslashreplace"))
