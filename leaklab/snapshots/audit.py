r"""Walk through the opcodes of a pickle before anything is built from it, and refuse what no snapshot contains.

An unpickler that refuses every global runs no code, but it still builds whatever it is told to: a few bytes can ask for
gigabytes (``LONG_BINPUT`` with a large index makes CPython allocate and fill that many slots; a string may claim any
length), and a tuple nested a million deep overflows the C stack when it is hashed. Snapshots are made of dicts, lists,
strings, numbers and pairs of integers; everything else is refused by its place in the file.

Runs of simple opcodes are skipped by one regular expression, only strings are stepped over one by one: 5 to 12 ns
per byte, one to two times as long as building the objects takes.
"""

from __future__ import annotations

import pickletools
import re

from leaklab.errors import SnapshotError

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
        msg = "this is no pickle of protocol 2 to 5; give a file written by torch.cuda.memory._dump_snapshot(path)"
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
