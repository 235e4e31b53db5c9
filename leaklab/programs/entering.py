"""Let a running interpreter run some code: through itself from Python 3.14 on, through gdb before; or say why not."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from leaklab.errors import LeaklabError

CODE = "code.py"
"""The file of a question that an interpreter runs itself; of no other file is code run."""
_FIRST_WITH_DOOR = (3, 14)
"""`sys.remote_exec` is there from this version on (PEP 768)."""
_REMOTE_EXEC = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_IN_GDB = Path(__file__).with_name("in_gdb.py")
_GDB_QUESTION = "LEAKLAB_IN_GDB"
_GDB_SETTINGS = (
    "auto-load no",  # no code from files that lie beside those of the program
    "auto-solib-add off",
    "confirm off",
    "debuginfod enabled off",
    "pagination off",
)
_PYTHON = re.compile(r"(?:lib)?python(?:(\d)\.(\d+))?t?d?(?:\.so.*|\.dll|\.exe)?", re.IGNORECASE)
_LEAST_SECONDS = 60.0
"""So long gdb may take at least: it is done in half a second, but it must be waited for on a busy machine, too."""
_SLEEP_SECONDS = 0.1
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_WAITS = {
    "x86_64": {
        0, 7, 23, 34, 35, 42, 43, 45, 47, 61, 72, 73, 128, 202, 219, 230, 232, 247, 270, 271, 281, 288, 299, 441,
    },
    "aarch64": {22, 25, 32, 63, 72, 73, 95, 98, 101, 115, 128, 137, 202, 203, 207, 212, 242, 243, 260, 441},
}  # fmt: skip
"""Numbers of the calls of Linux that wait for something outside: read, poll, select, nanosleep, accept, recv, ..."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_COMMAND, _WAIT_BITSET = 0x7F, 9
"""How a lock or condition of Python waits, and none of `malloc` or of a mutex does."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """How code gets into one process.

    Attributes:
        pid: The process.
        executable: What it runs.
        has_door: Whether its interpreter runs code for others by itself; otherwise gdb is needed.
    """

    pid: int
    executable: str
    has_door: bool

    def bring(self, source: str, name: str, folder: Path, until: float) -> None:
        """Let the main thread run *source* as soon as it can, with the names ``pages`` and ``in_thread`` given.

        Args:
            source: What to run.
            name: The file that it is said to be from.
            folder: One that only this user may write to.
            until: When to give up, of `time.monotonic`.

        Raises:
            LeaklabError: if that cannot be.
        """
        if self.has_door:
            self._through_door(source, name, folder, until)
        else:
            self._through_gdb(source, name, folder, until, asleep_in(self.pid))

    def _through_door(self, source: str, name: str, folder: Path, until: float) -> None:
        """Ask the interpreter itself, by another process of the same interpreter: both must be of one version."""
        file = folder / CODE
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:  # noqa: PTH123
            target.write(f"exec(compile({source!a}, {name!a}, 'exec'), {{'pages': None, 'in_thread': False}})\n")
        command = [self.executable, "-I", "-S", "-c", _REMOTE_EXEC, str(self.pid), str(file)]
        try:
            done = subprocess.run(  # noqa: S603 - what the process itself runs
                command, capture_output=True, text=True, timeout=max(until - time.monotonic(), 1), check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"process {self.pid} cannot be asked by its own interpreter: {error}"
            raise LeaklabError(msg) from error
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            file.unlink()
            if last.startswith("PermissionError"):
                raise LeaklabError(_no_right(self.pid))
            msg = f"process {self.pid} takes no code: {last}"
            raise LeaklabError(msg)

    def bring_to_sleeper(self, source: str, name: str, folder: Path, until: float) -> None:
        """Let a thread of its own run *source* if the main thread sleeps in a system call now; else do nothing."""
        if (self.has_door and not shutil.which("gdb")) or sys.platform != "linux":
            return
        if asleep := asleep_in(self.pid):
            self._through_gdb(source, name, folder, until, asleep, only_asleep=True)

    def _through_gdb(
        self, source: str, name: str, folder: Path, until: float, asleep: str, *, only_asleep: bool = False
    ) -> None:
        question = {"pid": self.pid, "source": source, "name": name, "asleep": asleep, "only_asleep": only_asleep}
        settings = [word for setting in _GDB_SETTINGS for word in ("-iex", f"set {setting}")]
        command = [_gdb(self.pid), "-nx", "-nh", "-batch", *settings, "-x", str(_IN_GDB)]
        said = folder / "gdb"
        with said.open("wb") as output:  # not a pipe: gdb is to end by itself, also if nobody listens any more
            gdb = subprocess.Popen(  # noqa: S603 - gdb, and a file of this package
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, _GDB_QUESTION: json.dumps(question)},
                start_new_session=True,  # Ctrl-C here must not end it in the middle of a call
            )
        try:
            gdb.wait(max(until - time.monotonic(), _LEAST_SECONDS))
        except subprocess.TimeoutExpired:
            msg = (
                f"gdb (process {gdb.pid}) waits for the interpreter of process {self.pid}, which runs C code and "
                "does not release its lock; gdb ends by itself when that code returns, so do not kill it"
            )
            raise LeaklabError(msg) from None
        self._refuse_by(said.read_text(encoding="utf-8", errors="replace"))

    def _refuse_by(self, output: str) -> None:
        """Raise what gdb has refused."""
        last = output.strip().rpartition("\n")[2]
        if last in ("pending", "running", "awake"):
            return
        if last == "no python":
            raise LeaklabError(_no_python(self.pid))
        if "not permitted" in output:
            raise LeaklabError(_no_right(self.pid))
        if "Python" in output and "not supported" in output:
            msg = "this gdb was built without Python: install one that has it (Debian: `apt-get install gdb`)"
            raise LeaklabError(msg)
        msg = f"gdb could not enter process {self.pid}: {last or 'it said nothing'}"
        raise LeaklabError(msg)


def entrance_to(pid: int) -> Entrance:
    """Return how to get into process *pid*.

    Raises:
        LeaklabError: if there is no way; the message says why, and what to do.
    """
    try:
        process = psutil.Process(pid)
        _refuse_others(process)
        state, executable = process.status(), process.exe()
    except psutil.NoSuchProcess as error:
        msg = f"there is no process {pid}: `ps` lists those that run"
        raise LeaklabError(msg) from error
    except psutil.AccessDenied as error:
        raise LeaklabError(_no_right(pid)) from error
    version = _version_of(pid, executable)
    if state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) and not _tracer_of(pid):
        msg = f"process {pid} is stopped and cannot answer: `kill -CONT {pid}` lets it go on"
        raise LeaklabError(msg)
    _refuse_unreachable(pid)
    if version >= _FIRST_WITH_DOOR:
        return Entrance(pid, executable, has_door=True)
    if sys.platform != "linux":
        msg = f"process {pid} runs a Python older than 3.14, which leaklab can enter on Linux only"
        raise LeaklabError(msg)
    _gdb(pid)
    return Entrance(pid, executable, has_door=False)


def refuse_shared_folder(folder: Path) -> None:
    """Refuse a folder in which others could put something in the place of what is made there.

    Raises:
        LeaklabError: if it is one.
    """
    status = folder.stat()
    is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    if hasattr(os, "getuid") and (is_open or status.st_uid not in (0, os.getuid())):
        msg = f"other users may replace files in {str(folder)!r}: set TMPDIR to a folder of your own"
        raise LeaklabError(msg)


def asleep_in(pid: int) -> str:
    """Return the system call in which the main thread of *pid* sleeps, as the kernel says it; empty if it does not.

    Only calls count that wait for something outside: in these, no thread has a lock of the C library.
    """
    machine = platform.machine()
    before = _sleep_of(pid)
    time.sleep(_SLEEP_SECONDS)
    call = before[0].split()
    if not call or not call[0].isdecimal() or before != _sleep_of(pid) or int(call[0]) not in _WAITS.get(machine, ()):
        return ""
    if int(call[0]) == _FUTEX[machine] and int(call[2], 16) & _FUTEX_COMMAND != _WAIT_BITSET:
        return ""
    return before[0]


def _sleep_of(pid: int) -> tuple[str, ...]:
    """Return the call that the main thread is in, and how often it has waited so far."""
    try:
        call = Path(f"/proc/{pid}/task/{pid}/syscall").read_text(encoding="ascii")
        status = Path(f"/proc/{pid}/task/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ("",)
    return call, *re.findall(r"^\w+_ctxt_switches:.*$", status, re.MULTILINE)


def _refuse_others(process: psutil.Process) -> None:
    if hasattr(os, "getuid") and set(process.uids()) != {os.geteuid()}:
        owner = process.username()
        msg = (
            f"process {process.pid} belongs to {owner}, and leaklab enters processes of its own user only: run "
            f"leaklab as {owner}"
        )
        raise LeaklabError(msg)


def _version_of(pid: int, executable: str) -> tuple[int, int]:
    """Return the version of the interpreter that process *pid* runs; zeros where no name tells it.

    Raises:
        LeaklabError: if it runs none.
    """
    try:
        mapped = {Path(region.path).name for region in psutil.Process(pid).memory_maps()}
    except (psutil.Error, AttributeError, OSError):  # macOS tells of no others
        mapped = set()
    found = [match for name in (Path(executable).name, *sorted(mapped)) if (match := _PYTHON.fullmatch(name))]
    if not found:
        raise LeaklabError(_no_python(pid))
    return next(((int(match[1]), int(match[2])) for match in found if match[1]), (0, 0))


def _refuse_unreachable(pid: int) -> None:
    """Refuse a process that another one traces, that lives in another container, or that may not be traced."""
    if sys.platform != "linux":
        return
    if tracer := _tracer_of(pid):
        msg = f"process {tracer}, a debugger or another leaklab, is attached to process {pid} already: end that first"
        raise LeaklabError(msg)
    try:
        for name in ("ns/mnt", "ns/pid", "root"):
            if Path(f"/proc/{pid}/{name}").readlink() != Path(f"/proc/self/{name}").readlink():
                msg = f"process {pid} lives in another container: run leaklab in there (docker exec, kubectl exec)"
                raise LeaklabError(msg)
        Path(f"/proc/{pid}/syscall").read_bytes()  # asks for the right that a debugger needs
    except PermissionError as error:
        raise LeaklabError(_no_right(pid)) from error
    except OSError as error:
        if not Path(f"/proc/{pid}").exists():
            msg = f"process {pid} ended"
            raise LeaklabError(msg) from error


def _tracer_of(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    return 0 if found is None else int(found[1])


def _gdb(pid: int) -> str:
    found = shutil.which("gdb")
    if found is None:
        msg = (
            f"process {pid} runs a Python older than 3.14, which leaklab can enter through gdb only: install gdb "
            "(Debian: `apt-get install gdb`)"
        )
        raise LeaklabError(msg)
    return found


def _no_python(pid: int) -> str:
    return f"process {pid} runs no CPython that leaklab knows: give the number of the Python process itself"


def _no_right(pid: int) -> str:
    """Say which right is missing."""
    if sys.platform != "linux":
        return f"the system does not let leaklab look into process {pid}: run leaklab as root"
    try:
        scope = _YAMA.read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    if scope in ("1", "2"):
        return (
            f"the system lets nobody look into process {pid} (kernel.yama.ptrace_scope is {scope}): "
            "`sysctl kernel.yama.ptrace_scope=0`, as root, allows it for your user until the next reboot"
        )
    if scope == "3":
        return (
            f"the system lets nobody look into process {pid} (kernel.yama.ptrace_scope is 3) until the system is "
            "started again with another value"
        )
    return (
        f"leaklab may not look into process {pid}: it lacks the right to trace; in a container, start the container "
        "with --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add)"
    )
