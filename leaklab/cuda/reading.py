"""Open a pickled snapshot without running anything that it holds.

First the opcodes of the pickle are walked through, and what no snapshot contains is refused.

An unpickler that refuses every global runs no code, but it still builds whatever it is told to: a few bytes can ask
for gigabytes (``LONG_BINPUT`` with a large index makes CPython allocate and fill that many slots; a string may claim
any length), and a tuple nested a million deep overflows the C stack when it is hashed. Snapshots are made of dicts,
lists, strings, numbers and pairs of integers; everything else is refused by its place in the file.

Runs of simple opcodes are skipped by one regular expression, only strings are stepped over one by one: 5 to 12 ns
per byte, one to two times as long as building the objects takes.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from leaklab.errors import SnapshotError
from leaklab.runtime.gc_control import gc_paused

_INTEGER = rb"(?:K.|M..|J.{4}|\x8a(?:\x06.{6}|\x05.{5}|\x07.{7}|\x08.{8}|\x09.{9}|\x04.{4}|\x03.{3}|\x02..|\x01.|\x00))"
# MEMOIZE, MARK, EMPTY_TUPLE/DICT/LIST, APPEND(S), SETITEM(S), NONE, NEWTRUE/FALSE; gets; integers; floats; BINPUT.
# A run is bounded because the engine keeps a note of every repetition until the run ends.
_SIMPLE_RUN = re.compile(
    rb"(?s)(?:j.{4}|h.|[\x94()}\]euasN\x88\x89]+|"
    + _INTEGER + rb"(?:" + _INTEGER + rb"(?:\x86|" + _INTEGER + rb"\x87))?|G.{8}|q.){1,20000}"
)  # fmt: skip
_PROTO, _FRAME, _STOP, _LONG_BINPUT, _LONG1 = 0x80, 0x95, 0x2E, 0x72, 0x8A
_TEXT_SIZES = {0x8C: 1, ord("X"): 4, 0x8D: 8, ord("C"): 1, ord("B"): 4}
"""Opcodes of text and bytes, with the width of the length that follows."""

_TUPLES = frozenset(b"\x85\x86\x87t")
_MAX_TUPLES = 1000
"""Of anything but integers: no file has any, a later version may. So many can be nested without harm."""

_NAMES = {ord(code.code): code.name for code in pickletools.opcodes}
_RUNS_CODE = frozenset(
    {"GLOBAL", "STACK_GLOBAL", "INST", "REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
)
_ASKS_OUTSIDE = frozenset({"PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER"})

_CONTAINER_BYTES = {b"]": 64, b"}": 72, b"u": 120, b"s": 120, b"\x86": 56, b"\x87": 64}
"""What an opcode makes at most, in bytes, on CPython 3.10 to 3.14; ``u`` and ``s`` fill a dict's first table."""
_LEAST_ALLOWANCE_BYTES = 64 << 20
_ALLOWANCE_PER_BYTE = 16
"""Real files need 4 bytes for each of theirs; with no frame shared, 10."""


def audit(data: bytes) -> None:
    """Look at every opcode of the pickle in *data*; build nothing.

    Raises:
        SnapshotError: at the first opcode that no snapshot contains, at a length that goes beyond the data, or if what
            it would build is out of proportion to its size.
    """
    position, end = _start(data), len(data)
    skip_simple = _SIMPLE_RUN.match
    simple: list[bytes] = []
    n_tuples = 0
    while True:
        run = skip_simple(data, position)
        if run is not None:
            simple.append(run.group())
            position = run.end()
        if position >= end:
            raise truncated(end)
        code = data[position]
        if code == _STOP:
            break
        if code in _TEXT_SIZES:
            position = _after_text(data, position, _TEXT_SIZES[code])
        elif code in _TUPLES and n_tuples < _MAX_TUPLES:
            n_tuples += 1
            position += 1
        elif run is None or code not in _SIMPLE_STARTS:
            position = _after_rare(data, position, code)
    _refuse_bomb(b"".join(simple), end)


_SIMPLE_STARTS = frozenset(b"jh\x94()}]euasNGqKMJ\x8a\x88\x89")
"""What the expression begins with: if a run of the greatest length ended here, another begins."""


def truncated(n_bytes: int) -> SnapshotError:
    """Return the error of a pickle that ends before its end."""
    return SnapshotError(f"the file ends after {n_bytes:,} bytes in the middle of its data: write or copy it again")


def _start(data: bytes) -> int:
    if not data:
        msg = "the file is empty: write it again with torch.cuda.memory._dump_snapshot(path)"
        raise SnapshotError(msg)
    if data[0] != _PROTO or len(data) < 2 or not 2 <= data[1] <= 5:  # noqa: PLR2004 - protocols 2 to 5
        msg = "this is not a pickle of protocol 2 to 5; give a file written by torch.cuda.memory._dump_snapshot(path)"
        raise SnapshotError(msg)
    return 2


def _after_text(data: bytes, position: int, width: int) -> int:
    begin = position + 1 + width
    length = int.from_bytes(data[position + 1 : begin], "little")
    if begin + length > len(data):
        claim = f"at byte {position:,} a text claims {length:,} bytes, but {max(len(data) - begin, 0):,} are left"
        msg = f"the file is damaged or cut off: {claim}; write or copy it again"
        raise SnapshotError(msg)
    return begin + length


def _after_rare(data: bytes, position: int, code: int) -> int:
    """Return the position after an opcode that is no text and part of no run, or refuse it."""
    if code == _FRAME:
        return _after_frame(data, position)
    if code == _LONG_BINPUT:
        if int.from_bytes(data[position + 1 : position + 5], "little") > len(data):
            raise _refused(_NAMES[code], position, "with an index beyond any object of the file")
        return position + 5
    if code == _LONG1 and position + 1 < len(data):
        return position + 2 + data[position + 1]
    if code in _SIMPLE_STARTS and len(data) - position < 9:  # noqa: PLR2004 - its argument is cut off
        raise truncated(len(data))
    name = _NAMES.get(code, f"0x{code:02x}")
    if name in _RUNS_CODE:
        raise _refused(name, position, "which would import or call something")
    if name in _ASKS_OUTSIDE:
        raise _refused(name, position, "which asks for an object outside the file")
    raise _refused(name, position, "which no memory snapshot contains")


def _after_frame(data: bytes, position: int) -> int:
    begin = position + 9
    length = int.from_bytes(data[position + 1 : begin], "little")
    if begin + length > len(data):
        claim = f"at byte {position:,} a frame claims {length:,} bytes, but {max(len(data) - begin, 0):,} are left"
        msg = f"the file is damaged or cut off: {claim}; write or copy it again"
        raise SnapshotError(msg)
    return begin


def _refuse_bomb(simple: bytes, n_bytes: int) -> None:
    needed = sum(simple.count(code) * size for code, size in _CONTAINER_BYTES.items())
    if needed > max(_LEAST_ALLOWANCE_BYTES, _ALLOWANCE_PER_BYTE * n_bytes):
        msg = (
            f"refused: its {n_bytes:,} bytes would unfold to {needed:,} or more, which no memory snapshot does;"
            " do not open this file"
        )
        raise SnapshotError(msg)


def _refused(name: str, position: int, what: str) -> SnapshotError:
    return SnapshotError(
        f"refused: at byte {position:,} the file holds the opcode {name}, {what};"
        " a memory snapshot holds data only: do not open this file with pickle"
    )


resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

_STATUS = Path("/proc/self/status")


@contextmanager
def memory_ceiling(extra_bytes: int) -> Iterator[None]:
    """Let allocations fail with `MemoryError` once the process holds *extra_bytes* more than now.

    The limit is on private writable memory (``RLIMIT_DATA``): address space that CUDA only reserves does not count. It
    holds for all threads of the process, so *extra_bytes* should be far above what others may ask for meanwhile. Where
    the system does not tell what the process holds (anything but Linux), nothing is limited.
    """
    held = _held_bytes()
    if resource is None or held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + extra_bytes
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _held_bytes() -> int | None:
    try:
        found = re.search(r"VmData:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


MAX_FILE_BYTES = 8 << 30
"""A larger file would need some 40 GB in memory."""

AUDITED_BYTES = 32 << 20
"""Files up to this size are audited unless the caller says otherwise: at most 0.4 s more."""

_CEILING_PER_BYTE = 24
_LEAST_CEILING_BYTES = 1 << 30

ReadingProgress = Callable[[int, int], None]
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


class _MeteredFile(io.RawIOBase):
    """A file that reports how much of it was read, and hands out no more than it holds.

    Without the second, a length claimed in the file would be allocated before it is found to be a lie.
    """

    def __init__(self, file: BinaryIO, n_bytes: int, progress: ReadingProgress | None) -> None:
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
    path: str | os.PathLike[str], *, audited: bool | None = None, progress: ReadingProgress | None = None
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


def _load_audited(file: BinaryIO, n_bytes: int, progress: ReadingProgress | None) -> object:
    data = file.read(n_bytes + 1)
    audit(data)
    if progress is not None:
        progress(n_bytes // 2, n_bytes)
    loaded = _unpickle(io.BytesIO(data))
    if progress is not None:
        progress(n_bytes, n_bytes)
    return loaded


def _load(file: BinaryIO, n_bytes: int, progress: ReadingProgress | None) -> object:
    with memory_ceiling(_LEAST_CEILING_BYTES + _CEILING_PER_BYTE * n_bytes):
        return _unpickle(_MeteredFile(file, n_bytes, progress))


def _unpickle(file: Any) -> object:
    try:
        with gc_paused():
            return _Refusing(file).load()
    except SnapshotError:
        raise
    except (EOFError, MemoryError) as error:
        msg = f"the file is cut off, or claims more memory than there is ({type(error).__name__}); copy it again"
        raise SnapshotError(msg) from error
    except Exception as error:  # the unpickler raises nearly anything on data that is none
        reason = str(error)[:120].rstrip(".") or type(error).__name__
        msg = (
            f"the file is damaged or not a pickle ({reason}); write it again with "
            "torch.cuda.memory._dump_snapshot(path)"
        )
        raise SnapshotError(msg) from error
