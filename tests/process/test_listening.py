"""A running process answers a signal: from another process, in the middle of its loop, with its own handler kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import torch

import leaklab
from leaklab.cli import main
from leaklab.process import ask

posix_only = pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="there are no such signals on Windows")
TIMEOUT_SECONDS = 100

BUSY = """
import signal, sys
import torch, leaklab

listener = leaklab.listen(signal.SIGUSR2, sys.argv[1])
leaklab.listen(signal.SIGTERM, sys.argv[1])
history = [torch.ones(1 << 18) for _ in range(4)]

def train():
    weights = torch.randn(200, 200)
    with leaklab.monitor("busy loop", total_steps=10**6) as monitor:
        print("ready", flush=True)
        while True:
            weights = torch.tanh(weights @ weights)
            monitor.step()

train()
"""


@posix_only
def test_busy_loop_answers_another_process(tmp_path, capsys):
    asked = [sys.executable, "-c", BUSY, str(tmp_path)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert main(["ask", str(process.pid), "--timeout", str(TIMEOUT_SECONDS)]) == 0
            text = capsys.readouterr().out
            process.terminate()  # SIGTERM is answered too, and ends the process all the same
            _out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()
    assert text.startswith("asked for by SIGUSR2\n")
    assert "4.00 MiB  history\n" in text
    assert re.search(r"\n  busy loop: step [\d,]+ of 1,000,000, ", text)
    assert re.search(r"<string>:\d+ in train\n", text)
    assert err.startswith(text)
    assert "asked for by SIGTERM\n" in err
    assert process.returncode == -signal.SIGTERM
    assert len(list(tmp_path.glob(f"process_*_{process.pid}.html"))) == 1


@pytest.fixture
def handler():
    """Is there before `listen` is called; notes what it was called with."""
    calls = []

    def handle(signum, frame):
        calls.append((signum, frame is not None))

    before = signal.signal(signal.SIGUSR1, handle)
    handle.calls = calls
    yield handle
    signal.signal(signal.SIGUSR1, before)


@posix_only
def test_handler_that_was_there_is_called_and_comes_back(tmp_path, handler, capfd):
    kept = torch.ones(1 << 18)
    with leaklab.listen(signal.SIGUSR1, tmp_path) as listener:
        assert repr(listener).endswith(": waiting>")
        os.kill(os.getpid(), signal.SIGUSR1)
        assert handler.calls == [(signal.SIGUSR1, True)]
        text = listener.file.read_text("utf-8")
        assert "kept in test_handler_that_was_there_is_called_and_comes_back()" in text
        assert capfd.readouterr().err == f"{text}leaklab: also written to {listener.file}\n"
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert repr(listener).endswith(": stopped>")
    del kept


@posix_only
def test_question_in_the_middle_of_an_answer_is_answered_after_it(tmp_path, handler, capfd, monkeypatch):
    """The text of the first may have been read already when the page of it is still being written."""
    from leaklab.process.stock import ReportFiles

    write = ReportFiles.write
    written = []

    def asks_again(files, report):
        write(files, report)
        written.append(report)
        if len(written) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(ReportFiles, "write", asks_again)
    with leaklab.listen(signal.SIGUSR1, tmp_path):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert len(written) == 2
    assert capfd.readouterr().err.count("asked for by SIGUSR1\n") == 2


@posix_only
def test_listener_over_which_another_handler_was_put_only_hands_on(tmp_path, handler):
    listener = leaklab.listen(signal.SIGUSR1, tmp_path)
    ours = signal.getsignal(signal.SIGUSR1)

    def theirs(signum, frame):
        ours(signum, frame)

    signal.signal(signal.SIGUSR1, theirs)
    listener.stop()
    assert signal.getsignal(signal.SIGUSR1) is theirs
    os.kill(os.getpid(), signal.SIGUSR1)
    assert len(handler.calls) == 1
    assert listener.file is None


@posix_only
def test_report_that_fails_ends_no_program(tmp_path, handler, capfd, monkeypatch):
    def fails(*_args, **_named):
        raise MemoryError

    monkeypatch.setattr("leaklab.process.listen.take_stock", fails)
    with leaklab.listen(signal.SIGUSR1, tmp_path):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert capfd.readouterr().err == "leaklab: no report was made: MemoryError: \n"
    assert len(handler.calls) == 1


@posix_only
@pytest.mark.parametrize(
    ("signum", "words"),
    [
        (9, "no program can catch SIGKILL: give another signal, such as SIGUSR2"),
        (11, "SIGSEGV says that C code failed, after which Python cannot go on: give another signal, such as SIGUSR2"),
        (999, rf"{sys.platform} has no signal 999; it has .*SIGUSR1.*"),
    ],
)
def test_signals_that_python_cannot_catch_are_refused(signum, words, tmp_path):
    with pytest.raises(ValueError, match=f"^{words}$"):
        leaklab.listen(signum, tmp_path)


@posix_only
def test_other_threads_are_refused(tmp_path):
    problems = []

    def ask():
        try:
            leaklab.listen(folder=tmp_path)
        except leaklab.LeaklabError as error:
            problems.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert problems == ["call listen() in the main thread: Python allows signal handlers there only"]


@posix_only
def test_signal_that_c_code_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)
    with pytest.raises(leaklab.LeaklabError, match=r"^C code handles SIGUSR2"):
        leaklab.listen(folder=tmp_path)


def test_windows_says_which_signals_there_are(tmp_path, monkeypatch):
    there = [signal.SIGINT, signal.SIGTERM, signal.SIGABRT]
    monkeypatch.setattr(signal, "valid_signals", lambda: set(there))
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ValueError, match=r"^win32 has no signal 77; it has SIGINT, SIGTERM$"):
        leaklab.listen(77, tmp_path)


@posix_only
def test_process_that_does_not_listen_gets_no_signal(capsys, monkeypatch):
    """SIGUSR2 would kill it."""
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    assert main(["ask", str(os.getpid())]) == 1
    assert capsys.readouterr().err.startswith(f"leaklab: process {os.getpid()} does not listen: call leaklab.listen()")


@posix_only
def test_file_of_a_process_that_is_gone_is_not_believed(tmp_path, monkeypatch):
    """Its number may be another process's by now."""
    ask.announce(signal.SIGUSR2, tmp_path / "answer.txt")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    file = ask._announcement(os.getpid())
    file.write_text(file.read_text().replace('"started": ', '"started": 1'))
    with pytest.raises(leaklab.LeaklabError, match=r"does not listen"):
        ask.ask(os.getpid(), 1)
    ask.withdraw()
    assert not file.exists()


@posix_only
def test_files_of_processes_that_were_killed_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(ask.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in (
        "leaklab_listening_999999999.json",
        f"leaklab_listening_{os.getppid()}.json",
        "leaklab_listening_x.json",
    ):
        (tmp_path / name).touch()
    ask.announce(signal.SIGUSR2, tmp_path / "answer.txt")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {f"leaklab_listening_{pid}.json" for pid in (os.getppid(), os.getpid(), "x")}


@posix_only
def test_answer_that_does_not_come_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "kill", lambda *_: None)
    ask.announce(signal.SIGUSR2, tmp_path / "answer.txt")
    with pytest.raises(leaklab.LeaklabError, match=r"did not answer within 0\.1 s: .*; its answer will be written to "):
        ask.ask(os.getpid(), 0.1)
    ask.withdraw()
