"""`leaklab attach` asks programs that were not prepared, watches their loop, and leaves them as they were."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from running_program import BEGIN, Running

from leaklab.cli import main
from leaklab.errors import LeaklabError
from leaklab.programs import attaching, entering

pytestmark = pytest.mark.untraced
SECONDS = "100"

SLEEPER = f"""{BEGIN}
began = time.monotonic()
time.sleep(float(sys.argv[1]))
print("slept", time.monotonic() - began >= float(sys.argv[1]))
"""
TRAINING = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    history = []
    for line in sys.stdin:  # as many steps as the test says
        for step in range(int(line)):
            loss = net(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss)
        print(loss.item(), flush=True)
print("ready", flush=True)
train()
"""
IN_C = f"""{BEGIN}
import hashlib
hashlib.pbkdf2_hmac("sha256", b"word", b"salt", int(sys.argv[1]))  # without a line of Python, and without the lock
for _ in range(100000):
    pass
print("leaklab" in sys.modules, sorted(globals()))
"""
FORKING = f"""{BEGIN}
statuses = set()
while not os.path.exists(sys.argv[1]):
    if (child := os.fork()) == 0:
        for _ in range(1000):
            pass
        os._exit(0)
    statuses.add(os.waitpid(child, 0)[1])
print(statuses)
"""
STATE = f"""
import asyncio, ctypes, gc, signal, threading, warnings
import torch.optim, torch.utils.data
{BEGIN}
def state():
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as hooks
    return {{
        "threads": [[thread.name for thread in threading.enumerate()], len(os.listdir("/proc/self/task"))],
        "hooks": [len(hooks._global_optimizer_post_hooks), len(modules._global_forward_hooks)],
        "functions": [torch.autograd.backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
                      asyncio.base_events.BaseEventLoop.create_task],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)],
        "signals": [signal.getsignal(each) for each in sorted(signal.valid_signals())],
        "imports": [list(sys.path), list(sys.meta_path), list(sys.path_hooks), dict(os.environ)],
        "switches": [sys.excepthook, sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), list(warnings.filters)],
        "variables": sorted(globals()), "files": len(os.listdir("/proc/self/fd")),
    }}
class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks map mapped u f in_use g keep".split()]
def level():  # what malloc has handed out: the resident size also has what malloc keeps in reserve, tens of MiB or none
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Mallinfo2
    return (ask().in_use + ask().mapped) // 1024
level(), state()
before, line = None, ""
before = state()
for line in sys.stdin:
    gc.collect()
    after = state()
    differ = [name for name in before if before[name] != after[name] and name != "variables"]
    differ += sorted(set(after["variables"]) - set(before["variables"]) - {{"after", "differ"}})
    print(level(), sys.getallocatedblocks(), differ, flush=True)
"""


def sleeps(program):
    """Wait until the main thread sleeps."""
    until = time.monotonic() + 60
    while not entering.asleep_in(int(program.pid)):
        assert time.monotonic() < until


def test_sleeping_program_answers_and_sleeps_on(gdb, capsys, tmp_path):
    with Running(SLEEPER, 15) as program:
        sleeps(program)
        assert main(["attach", program.pid, "--timeout", SECONDS, "--report", str(tmp_path / "answer.json")]) == 0
        text = capsys.readouterr().out
        assert program.process.poll() is None
        assert program.ends() == (0, "slept True\n", "")
    assert text.startswith("asked for by leaklab attach\n")
    assert re.search(r"\n  <string>:\d+ in <module>\n", text)
    assert "4.00 MiB  kept\n" in text
    assert (tmp_path / "answer.json").read_text().startswith('{"format":"leaklab process"')


def test_training_is_watched_and_computes_what_it_would(gdb, capsys):
    with Running(TRAINING) as program:
        plain = program.tell(50), program.tell(600), program.tell(50)
    with Running(TRAINING) as program:
        pid, limit = program.pid, ["--timeout", SECONDS]
        losses = [program.tell(50)]
        assert main(["attach", pid, "--stop", *limit]) == 1
        assert main(["attach", pid, "--watch", *limit]) == 0
        assert main(["attach", pid, "--watch", *limit]) == 1
        losses.append(program.tell(600))
        assert main(["attach", pid, *limit]) == 0
        assert main(["attach", pid, "--stop", *limit]) == 0
        losses.append(program.tell(50))
        assert program.ends() == (0, "", "")
    said = capsys.readouterr()
    assert tuple(losses) == plain
    assert said.err.splitlines() == [
        f"leaklab: process {pid} is not watched: `leaklab attach {pid} --watch` begins that",
        f"leaklab: process {pid} is watched already: `leaklab attach {pid} --stop` ends that",
    ]
    begun, looked, stopped = re.split("(?=asked for by|loop 'leaklab attach')", said.out)
    assert begun.startswith(f"process {pid} is watched: ")
    assert "\n  leaklab attach: step 600, " in looked
    assert "`history in train()` grows by 1 tensor" in stopped
    assert "a step is a step of the optimizer torch.optim.sgd.SGD" in stopped


def test_named_function_of_the_program_is_the_step_and_comes_back(gdb, capsys):
    source = f"""{BEGIN}
kept.clear()
def handle(word):
    kept.append(bytearray(5000))
plain = handle
for line in sys.stdin:
    for _ in range(int(line)):
        handle(line)
    print(handle is plain, flush=True)
"""
    with Running(source) as program:
        limit = ["--timeout", SECONDS]
        assert main(["attach", program.pid, "--watch", "--step", "nothing", *limit]) == 1
        assert program.tell(1) == "True\n"
        assert main(["attach", program.pid, "--watch", "--step", "handle", "--steps", "2000", *limit]) == 0
        assert program.tell(1000) == "False\n"
        assert main(["attach", program.pid, "--stop", *limit]) == 0
        assert program.tell(1) == "True\n"
    said = capsys.readouterr()
    assert said.err == (f"leaklab: process {program.pid} has no function nothing: give one as --step module:function\n")
    assert "a step is a call of handle" in said.out


WITHOUT_TORCH = """
import sys
class Session:
    def __init__(self, number):
        self.number, self.body = number, bytearray(5000)
sessions = {}
def handle(number):
    sessions[number] = Session(number)
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        handle(len(sessions))
    print(len(sessions), "torch" in sys.modules, flush=True)
"""


def test_program_without_torch_answers_and_is_watched(gdb, capsys, tmp_path):
    file = tmp_path / "service.py"
    file.write_text(WITHOUT_TORCH)
    source = f"exec(compile({WITHOUT_TORCH!r}, {str(file)!r}, 'exec'))"
    with Running(source, python=(sys.executable, "-I", "-S")) as program:  # no package is found there
        limit = ["--timeout", SECONDS]
        assert program.tell(1000) == "1000 False\n"
        assert main(["attach", program.pid, *limit]) == 0
        assert main(["attach", program.pid, "--watch", "--step", "handle", *limit]) == 0
        assert program.tell(2000) == "3000 False\n"
        assert main(["attach", program.pid, "--stop", *limit]) == 0
        assert program.tell(1) == "3001 False\n"
    looked, _, stopped = capsys.readouterr().out.partition("is watched: ")
    assert "no tensor)" in looked
    assert re.search(r"4\.\d\d MiB  sessions\n\s+1,000 arrays, the largest 4\.94 KiB", looked)
    assert "  leaklab." not in looked  # of its own objects
    assert re.search(r"`sessions` grows by 1 Session object \(5\.0\d KiB\) every step", stopped)
    assert "service.py:8 in handle: sessions[number] = Session(number)  <- keeps it" in stopped


def test_program_in_c_code_is_left_alone_and_the_question_withdrawn(gdb, capsys):
    with Running(IN_C, 4_000_000) as program:
        assert main(["attach", program.pid, "--timeout", "0.1"]) == 1
        code, out, err = program.ends()
    assert re.fullmatch(
        rf"leaklab: process {program.pid} did not answer within 0\.1 s: its main thread runs C code, .* withdrawn\)\n",
        capsys.readouterr().err,
    )
    assert (code, err) == (0, "")
    assert out.startswith("False [")
    assert "'hashlib', 'kept', 'os', 'sys', 'time', 'torch']" in out


def test_children_that_are_forked_off_meanwhile_take_no_question(gdb, capsys, tmp_path):
    with Running(FORKING, tmp_path / "end") as program:
        for _ in range(3):
            assert main(["attach", program.pid, "--timeout", SECONDS]) == 0
        (tmp_path / "end").touch()
        assert program.ends() == (0, "{0}\n", "")
    text = capsys.readouterr().out
    assert text.count("4.00 MiB  kept\n") == text.count(f"\n  process {program.pid} at ") == 3


@pytest.mark.parametrize("n_times", [8, pytest.param(50, marks=pytest.mark.nightly)])
def test_many_questions_leave_the_program_as_it_was(gdb, n_times, tmp_path, monkeypatch):
    monkeypatch.setattr(attaching.tempfile, "tempdir", str(tmp_path))
    with Running(STATE) as program:
        assert program.tell("before").endswith(" []\n")

        def levels(n_questions):
            for _ in range(n_questions):
                attaching.attach(int(program.pid), max_seconds=100)
            attaching.attach(int(program.pid), "watch", max_seconds=100)
            with pytest.raises(LeaklabError, match="is no longer watched, and nothing was found: no optimizer made a"):
                attaching.attach(int(program.pid), "stop", max_seconds=100)
            kib, blocks, differ = program.tell("asked").split(maxsplit=2)
            assert differ == "[]\n"
            return int(kib), int(blocks)

        kib, blocks = levels(2)
        later_kib, later_blocks = levels(n_times)
    assert later_kib - kib < 1 << 10
    assert later_blocks - blocks < 4_000
    assert list(tmp_path.iterdir()) == []


def test_interpreter_that_lets_code_in_is_asked_without_gdb(tmp_path, monkeypatch, capsys):
    """By the contract of `sys.remote_exec`: the main thread runs a file, which it opens when it comes to that."""
    source = f"""{BEGIN}
import stat
for line in sys.stdin:
    path = open(sys.argv[1]).read()
    modes = [oct(stat.S_IMODE(os.stat(each).st_mode)) for each in (path, os.path.dirname(path))]
    exec(open(path).read(), {{}})
    print(modes, flush=True)
"""
    inbox, python = tmp_path / "inbox", tmp_path / "python3.14"
    tell = f"lambda pid, file: open({str(inbox)!r}, 'w').write(file)"
    python.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:4] == ['-I', '-S', '-c']\nsys.remote_exec = {tell}\n"
        f"sys.argv[1:] = sys.argv[5:]\nexec({entering._REMOTE_EXEC!r})\n"
    )
    python.chmod(0o700)
    monkeypatch.setattr(attaching.tempfile, "tempdir", str(tmp_path))
    modes = []
    with Running(source, inbox) as program:
        entrance = entering.Entrance(int(program.pid), str(python), has_door=True)
        monkeypatch.setattr(attaching, "entrance_to", lambda _pid: entrance)
        monkeypatch.setattr(entering.Entrance, "bring_to_sleeper", lambda *_: modes.append(program.tell("run")))
        assert main(["attach", program.pid, "--timeout", SECONDS]) == 0
        assert "4.00 MiB  kept\n" in capsys.readouterr().out
        monkeypatch.setattr(entering.Entrance, "bring_to_sleeper", lambda *_: None)
        assert main(["attach", program.pid, "--timeout", "0.1"]) == 1
        assert Path(inbox.read_text()).exists()  # the interpreter will still open it
        modes.append(program.tell("run"))
    assert modes == ["['0o600', '0o700']\n"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {"inbox", "python3.14"}
