"""A file that leaklab writes is the old one or the new one, never a part; on a full disk the old one stays."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import sys
import threading
from pathlib import Path

import pytest
import samples

import leaklab
from leaklab.cuda.recording import _write
from leaklab.errors import LeaklabError
from leaklab.reports.check import LeakReport

LEAKY = LeakReport(samples.leaky_check())
BEFORE = b"what stood here before"
WRITERS = {
    "r.html": LEAKY.save,
    "r.json": LEAKY.to_json,
    "r.txt": LEAKY.save,
    "r.md": LEAKY.save,
    "r.csv": LEAKY.save,
    "g.dot": lambda path: LEAKY.graph().save(path),
    "m.npz": lambda path: leaklab.snapshot().save(path),
    "c.pickle": lambda path: _write(path, {"segments": [b"x" * 5_000], "device_traces": []}),
}


@contextlib.contextmanager
def room_for(n_bytes: int):
    """Let no file of this process grow beyond *n_bytes*."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", WRITERS)
def test_where_there_is_no_room_the_older_file_stays_and_one_sentence_says_so(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(BEFORE)
    with room_for(100), pytest.raises(LeaklabError, match=r"^cannot write '.*': File too large; make room [^\n]*$"):
        WRITERS[name](file)
    assert file.read_bytes() == BEFORE
    assert list(tmp_path.iterdir()) == [file]
    WRITERS[name](file)
    assert file.read_bytes()[:22] != BEFORE
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", WRITERS)
def test_mode_and_link_of_the_older_file_stay(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / name, tmp_path / name
    file.write_bytes(BEFORE)
    file.chmod(0o640)
    link.symlink_to(file)
    WRITERS[name](link)
    assert link.is_symlink()
    assert file.read_bytes() != BEFORE
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert {*tmp_path.rglob("*")} == {file.parent, file, link}


def test_a_new_file_has_the_mode_of_every_new_file(tmp_path):
    LEAKY.save(tmp_path / "r.txt")
    (tmp_path / "plain").touch()
    assert (tmp_path / "r.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_that_leads_nowhere_yet_leads_to_the_report(tmp_path):
    (tmp_path / "r.txt").symlink_to(tmp_path / "later.txt")
    LEAKY.save(tmp_path / "r.txt")
    assert (tmp_path / "r.txt").is_symlink()
    assert (tmp_path / "later.txt").read_text() == str(LEAKY)


def test_links_that_lead_to_each_other_are_refused(tmp_path):
    (tmp_path / "r.txt").symlink_to(tmp_path / "s.txt")
    (tmp_path / "s.txt").symlink_to(tmp_path / "r.txt")
    with pytest.raises(LeaklabError, match=r"^cannot write "):
        LEAKY.save(tmp_path / "r.txt")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.txt", "s.txt"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="nothing is protected from root")
def test_a_file_that_is_protected_stays(tmp_path):
    file = tmp_path / "r.txt"
    file.write_bytes(BEFORE)
    file.chmod(0o444)
    with pytest.raises(LeaklabError, match=r"^cannot write .*Permission denied"):
        LEAKY.save(file)
    assert file.read_bytes() == BEFORE


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "r.txt"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    LEAKY.save(pipe)
    reader.join()
    assert heard == [str(LEAKY)]
    assert pipe.is_fifo()


@pytest.mark.parametrize("text", ["r\0.txt", "x" * 300 + ".txt"])
def test_names_that_no_file_can_have_are_refused_in_one_sentence(tmp_path, text):
    with pytest.raises(LeaklabError, match=r"^cannot write '[^\n]*; give a path [^\n]*$"):
        LEAKY.save(os.fspath(tmp_path) + os.sep + text)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_is_written(tmp_path):
    LEAKY.save(tmp_path / ("x" * 251 + ".txt"))
    assert len(list(tmp_path.iterdir())) == 1


def test_readers_see_whole_files_while_others_write(tmp_path):
    file = tmp_path / "r.json"
    LEAKY.save(file)
    whole, is_over = file.read_bytes(), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            LEAKY.save(file)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen = {file.read_bytes() for _ in range(300)}
    is_over.set()
    for writer in writers:
        writer.join()
    assert seen == {whole}


def test_what_stops_the_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "r.txt"
    file.write_bytes(BEFORE)
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LEAKY.save(file)
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (BEFORE, [file])


@pytest.mark.parametrize("number", ["EBUSY", "EPERM"])
def test_a_file_whose_place_cannot_be_taken_is_written_over(tmp_path, monkeypatch, number):
    import errno

    def refused(_self: Path, _target: Path) -> None:
        raise OSError(getattr(errno, number), "no")

    file = tmp_path / "r.txt"
    file.write_bytes(BEFORE)
    monkeypatch.setattr(Path, "replace", refused)
    LEAKY.save(file)
    assert (file.read_text(encoding="utf-8"), list(tmp_path.iterdir())) == (str(LEAKY), [file])
