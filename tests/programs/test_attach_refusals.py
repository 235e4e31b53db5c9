"""What `leaklab attach` cannot do, it says in one sentence, and does nothing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from leaklab.cli import main
from leaklab.errors import LeaklabError
from leaklab.programs import entering, entry

BARE = (sys.executable, "-I", "-S")


def refused(pid, capsys):
    """The one sentence with which *pid* is refused."""
    assert main(["attach", str(pid), "--timeout", "5"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.removeprefix("leaklab: ").removesuffix("\n")


def test_process_that_is_gone_or_no_python_is_refused(capsys):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert refused(process.pid, capsys) == f"there is no process {process.pid}: `ps` lists those that run"
    with subprocess.Popen(["/bin/sleep", "100"]) as process:
        words = refused(process.pid, capsys)
        process.kill()
    assert words == (
        f"process {process.pid} runs no CPython that leaklab knows: give the number of the Python process itself"
    )


@pytest.fixture
def waiting():
    """A Python process that waits."""
    with subprocess.Popen([*BARE, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        yield process
        process.kill()


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux is asked")


@linux_only
def test_processes_that_cannot_be_entered_are_refused_each_in_one_sentence(waiting, capsys, monkeypatch):
    pid = waiting.pid
    with monkeypatch.context() as patch:
        patch.setattr(entering.os, "geteuid", lambda: 12345)
        owner = psutil.Process(pid).username()
        assert refused(pid, capsys) == (
            f"process {pid} belongs to {owner}, and leaklab enters processes of its own user only: run "
            f"leaklab as {owner}"
        )
    waiting.send_signal(signal.SIGSTOP)
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert refused(pid, capsys) == (f"process {pid} is stopped and cannot answer: `kill -CONT {pid}` lets it go on")
    waiting.send_signal(signal.SIGCONT)
    with monkeypatch.context() as patch:
        patch.setattr(entering, "_tracer_of", lambda _pid: 77)
        assert refused(pid, capsys) == (
            f"process 77, a debugger or another leaklab, is attached to process {pid} already: end that first"
        )
    with monkeypatch.context() as patch:
        patch.setattr(entering.shutil, "which", lambda _name: None)
        assert refused(pid, capsys) == (
            f"process {pid} runs a Python older than 3.14, which leaklab can enter through gdb only: install gdb "
            "(Debian: `apt-get install gdb`)"
        )
    with monkeypatch.context() as patch:
        patch.setattr(entering.sys, "platform", "darwin")
        assert refused(pid, capsys) == (
            f"process {pid} runs a Python older than 3.14, which leaklab can enter on Linux only"
        )
    with monkeypatch.context() as patch:
        patch.setattr(entering.Path, "readlink", lambda path: Path(path.parts[2]))
        assert refused(pid, capsys) == (
            f"process {pid} lives in another container: run leaklab in there (docker exec, kubectl exec)"
        )


@linux_only
@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            None,
            (
                "leaklab may not look into process {pid}: it lacks the right to trace; in a container, start the "
                "container with --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add)"
            ),
        ),
        (
            "1",
            (
                "the system lets nobody look into process {pid} (kernel.yama.ptrace_scope is 1): `sysctl "
                "kernel.yama.ptrace_scope=0`, as root, allows it for your user until the next reboot"
            ),
        ),
        (
            "3",
            (
                "the system lets nobody look into process {pid} (kernel.yama.ptrace_scope is 3) until the system is "
                "started again with another value"
            ),
        ),
    ],
)
def test_missing_right_is_named(scope, words, waiting, monkeypatch, tmp_path):
    def refuses(_path):
        raise PermissionError

    if scope:
        (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(entering, "_YAMA", tmp_path / "scope")
    monkeypatch.setattr(entering.Path, "read_bytes", refuses)
    with pytest.raises(LeaklabError) as error:
        entering.entrance_to(waiting.pid)
    assert str(error.value) == words.format(pid=waiting.pid)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("no python\n", "process 7 runs no CPython that leaklab knows: give the number of the Python process itself"),
        ("refused: ptrace: Operation not permitted.\n", entering._no_right(7)),
        (
            'Scripting in the "Python" language is not supported in this copy of GDB.\n',
            "this gdb was built without Python: install one that has it (Debian: `apt-get install gdb`)",
        ),
        ("", "gdb could not enter process 7: it said nothing"),
    ],
)
def test_what_gdb_refuses_is_one_sentence(said, words):
    entrance = entering.Entrance(7, "python", has_door=False)
    with pytest.raises(LeaklabError, match=f"^{re.escape(words)}$"):
        entrance._refuse_by(said)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ModuleNotFoundError("No module named 'msgspec'", name="msgspec"),
            (
                "process {pid} cannot import msgspec, which leaklab needs, and the one of this leaklab does not fit: "
                "install leaklab there ({python} -m pip install leaklab), or run leaklab with that Python"
            ),
        ),
        (
            ModuleNotFoundError("No module named 'leaklab.programs'", name="leaklab.programs"),
            (
                "process {pid} has a leaklab that is too old for attach: install this version there ({python} -m pip "
                "install -U leaklab)"
            ),
        ),
        (LeaklabError("process 7 is not watched"), "process 7 is not watched"),
        (entry._ImportingError("torch"), "process {pid} is just importing torch: ask again when it has done that"),
        (RecursionError("too deep"), "process {pid} could not answer: RecursionError: too deep"),
    ],
)
def test_what_fails_in_the_program_is_one_sentence(error, words):
    assert entry._words_of(error) == words.format(pid=os.getpid(), python=sys.executable)


def test_program_in_the_middle_of_an_import_is_asked_to_finish_it(monkeypatch):
    spec = importlib.machinery.ModuleSpec("leaklab_half", None)
    spec._initializing = True
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "leaklab_half", module)
    question = {"python": [], "packages": [("leaklab_half", None, False)]}
    with pytest.raises(entry._ImportingError, match=r"^leaklab_half$"):
        entry._load(question)


def test_folder_in_which_others_can_replace_files_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(
        LeaklabError, match=r"^other users may replace files in '.*': set TMPDIR to a folder of your own$"
    ):
        entering.refuse_shared_folder(tmp_path)
    tmp_path.chmod(0o1777)
    entering.refuse_shared_folder(tmp_path)


def test_question_in_a_folder_of_others_is_not_answered(tmp_path):
    question = {"pid": os.getpid(), "folder": str(tmp_path)}
    tmp_path.chmod(0o770)
    entry.enter(question, None, False)
    assert list(tmp_path.iterdir()) == []
    entry.enter({**question, "folder": str(tmp_path / "gone")}, None, False)
    tmp_path.chmod(0o700)
    entry.enter({**question, "pid": 1}, None, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stop", "--steps", "5"], "--step and --steps say how a watch counts: give them with --watch"),
        (["--watch", "--report", "a.html"], "a watch that begins has nothing to report yet: give --report with --stop"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words, capsys):
    assert main(["attach", "1", *options]) == 1
    assert capsys.readouterr().err == f"leaklab: {words}\n"
