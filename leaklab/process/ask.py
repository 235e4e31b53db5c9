"""Find the processes of this user that listen, and ask one of them.

A process says in a small file which signal it answers, and where it writes the answer. A signal that nobody waits for
would kill it, so none is sent to a process whose file is missing, older than the process, or somebody else's.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from leaklab.errors import LeaklabError
from leaklab.files import write_bytes

_PREFIX = "leaklab_listening_"
_POLL_SECONDS = 0.02


def announce(signum: int, text_file: Path) -> None:
    """Say that this process answers *signum* in *text_file*; where nothing can be written, ``kill`` still asks it."""
    started = psutil.Process().create_time()
    words = json.dumps({"signum": int(signum), "file": str(text_file), "started": started})
    _remove_stale()
    with suppress(LeaklabError):
        write_bytes(_announcement(os.getpid()), words.encode())


def _remove_stale() -> None:
    """Remove what processes have left that were killed."""
    with suppress(OSError):
        for file in _announcement(0).parent.glob(f"{_PREFIX}*.json"):
            number = file.stem.removeprefix(_PREFIX)
            if number.isdecimal() and not psutil.pid_exists(int(number)):
                with suppress(OSError):  # somebody else's
                    file.unlink(missing_ok=True)


def withdraw() -> None:
    """Say no more that this process listens."""
    with suppress(OSError):
        _announcement(os.getpid()).unlink(missing_ok=True)


def ask(pid: int, max_seconds: float) -> str:
    """Return what process *pid* answers.

    Raises:
        LeaklabError: if it does not listen, or does not answer in time.
    """
    said = _said_by(pid)
    file = Path(said["file"])
    before = _written_at(file)
    os.kill(pid, int(said["signum"]))
    until = time.monotonic() + max_seconds
    while (written := _written_at(file)) == before or written is None:
        if time.monotonic() > until:
            msg = (
                f"process {pid} did not answer within {max_seconds:g} s: it runs C code, or has very many objects; "
                f"its answer will be written to {file}"
            )
            raise LeaklabError(msg)
        time.sleep(_POLL_SECONDS)
    return file.read_text(encoding="utf-8")


def _announcement(pid: int) -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{pid}.json"


def _said_by(pid: int) -> dict[str, Any]:
    file = _announcement(pid)
    try:
        process = psutil.Process(pid)
        said: dict[str, Any] = json.loads(file.read_bytes())
        is_its = said["started"] == process.create_time() and _is_of_owner(file, process)
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        is_its = False
        said = {}
    if not is_its:
        msg = f"process {pid} does not listen: call leaklab.listen() in it, as the same user"
        raise LeaklabError(msg)
    return said


def _is_of_owner(file: Path, process: psutil.Process) -> bool:
    """Return whether the file is the process's own: anybody may write to the folder for such files."""
    return not hasattr(os, "getuid") or file.stat().st_uid == process.uids().effective


def _written_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
