"""Let gdb have a running interpreter run some code: gdb runs this file, in its own Python.

The way of ``memray attach`` (bloomberg/memray, ``commands/_attach.gdb``) and of pyrasite, at points that are safer than
theirs. Where the main thread runs, the interpreter is only told of the code: ``Py_AddPendingCall``, which needs neither
the lock of the interpreter nor a point to stop at, and after which the main thread runs it between two bytecodes, as it
does handlers of signals. A thread that sleeps in a system call would come to that when it wakes, perhaps never. It has
let go of the lock and stands in no function that another call could disturb: there the code is run at once. The text of
the code goes into pages that are asked of the system itself: gdb would take them of ``malloc``, in which the thread may
just be.
"""

from __future__ import annotations

import json
import os

import gdb

_RUN = "PyRun_SimpleString"
_LIBRARIES = ("libpython", r"libc\.so", "ld-musl")
_READ_WRITE, _PRIVATE_ANONYMOUS = 3, 0x22
_PAGE = 4096
_MOST_OF_NAMES = 200


def main() -> None:
    """Attach to the process of the question in the environment, place its code, detach; print what came of it."""
    question = json.loads(os.environ["LEAKLAB_IN_GDB"])
    # A signal that comes in the meantime is the program's: it must not end a call halfway.
    gdb.execute("handle all nostop noprint pass", to_string=True)
    gdb.execute("handle SIGINT nostop noprint pass", to_string=True)
    try:
        gdb.execute(f"attach {question['pid']}", to_string=True)
    except gdb.error as error:
        print(f"refused: {error}")
        return
    try:
        print(_place(question))
    except gdb.error as error:
        print(f"failed: {error}")
    finally:
        gdb.execute("detach", to_string=True)


def _place(question: dict[str, object]) -> str:
    if not _load_symbols():
        return "no python"
    file = f"/proc/{question['pid']}/syscall"
    sleeps = question["asleep"] and _read(file) == question["asleep"] and not _call("int(*)(void)", "PyGILState_Check")
    if question["only_asleep"] and not sleeps:
        return "awake"
    beginning = f"exec(compile({question['source']!a}, {question['name']!a}, 'exec'), "
    n_bytes = -(-(len(beginning) + _MOST_OF_NAMES) // _PAGE) * _PAGE
    page = _call(
        "void*(*)(void*,unsigned long,int,int,int,long)",
        "mmap",
        f"0, {n_bytes}, {_READ_WRITE}, {_PRIVATE_ANONYMOUS}, -1, 0",
    )
    if page in (0, (1 << 64) - 1):
        return "failed: no memory"
    names = {"pages": (page, n_bytes), "in_thread": bool(sleeps)}
    code = f"{beginning}{names!a})".encode("ascii") + b"\0"
    if len(code) > n_bytes:
        return "failed: too long"
    gdb.selected_inferior().write_memory(page, code)
    if not sleeps:
        is_full = _call("int(*)(int(*)(void*),void*)", "Py_AddPendingCall", f"(int(*)(void*)){_RUN}, (void*){page}")
        return "failed: too many pending calls" if is_full else "pending"
    state = _call("int(*)(void)", "PyGILState_Ensure")
    _call("int(*)(const char*)", _RUN, f"(const char*){page}")
    _call("void(*)(int)", "PyGILState_Release", str(state))
    return "running"


def _load_symbols() -> bool:
    """Load the symbols of the few libraries that are needed: those of torch alone take seconds."""
    for pattern in (*_LIBRARIES, ""):
        gdb.execute(f"sharedlibrary {pattern}", to_string=True)
        if pattern != _LIBRARIES[0] and _is_known("mmap") and _is_known(_RUN):
            return True
    return False


def _is_known(name: str) -> bool:
    try:
        gdb.parse_and_eval(f"&{name}")
    except gdb.error:
        return False
    return True


def _call(signature: str, name: str, arguments: str = "") -> int:
    value = gdb.parse_and_eval(f"(({signature}){name})({arguments})")
    return 0 if value.type.code == gdb.TYPE_CODE_VOID else int(value)


def _read(file: str) -> str:
    with open(file, encoding="ascii") as opened:
        return opened.read()


main()
