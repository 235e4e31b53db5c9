"""Causes in what the kernel keeps for a process: descriptors left open, child processes nobody waits for."""

from __future__ import annotations

from leaklab.collect.process_counts import CHILDREN, DESCRIPTORS, ENDED
from leaklab.explain.causes.advice import Advice
from leaklab.explain.evidence import Evidence

_CLOSING = {
    "file": "Close the file that each run opens: `with open(...) as file:`, or `os.close(fd)` for a number that "
    "`os.open`, `os.dup` or `tempfile.mkstemp` returned.",
    "socket": "Close the socket that each run opens: `with socket.create_connection(...) as sock:`; what "
    "`sock.detach()` returned is closed by `os.close(fd)` alone.",
    "pipe": "Close both ends of the pipe that each run opens (`os.close(fd)`, `connection.close()`).",
}
_CLOSING_ANY = (
    "Close what each run opens: by `with` or `close()` where an object has it, by `os.close(fd)` where it is a number."
)
_ENDED = (
    "Each run starts a child process that ends, and nobody asks for its exit status, so that the system keeps its "
    "entry. Wait for it: `process.join()` or `process.wait()`, `os.waitpid(pid, 0)` after `os.fork()`."
)
_RUNNING = (
    "Each run starts a child process that is still there. End it and wait for it when the run ends: `with` around a "
    "`subprocess.Popen` or an executor, `terminate()` and then `join()` or `wait()`; or start it once for all runs."
)


def left_open(e: Evidence) -> Advice | None:
    """File descriptors that no object keeps."""
    if e.unit != DESCRIPTORS.unit:
        return None
    text = next((text for kind, text in _CLOSING.items() if kind in e.kinds), _CLOSING_ANY)
    if e.holder:
        return Advice(text)
    return Advice(f"{text} No Python object that grows holds these descriptors: nothing closes them for you.")


def left_running(e: Evidence) -> Advice | None:
    """Child processes that no object keeps."""
    if e.unit != CHILDREN.unit:
        return None
    if ENDED in e.kinds:
        return Advice(_ENDED)
    return Advice(_RUNNING, "Not if each of them ends by itself soon after its run.")
