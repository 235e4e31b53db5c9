"""Whatever ends a program, its post-mortem names who held the memory, how much, and what its monitor knew."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from leaklab.loop import running
from leaklab.process.last_moments import LimitThread

TIMEOUT_SECONDS = 300
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals on Windows")

DYING = """
import os, signal, sys
import torch, leaklab

def keep(history, end):
    with leaklab.monitor(quiet=True, first_step=10) as loop:
        for step in range(400):
            history.append(torch.ones(1 << 12))
            loop.step()
        end()

def by(signum):
    return lambda: os.kill(os.getpid(), signum)

history = []
leaklab.on_oom(sys.argv[1], any_death=True)
"""


@posix_only
@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        pytest.param("by(signal.SIGTERM)", -signal.SIGTERM, "SIGTERM ended the program", id="SIGTERM"),
        pytest.param("int); 1 / 0; (", 1, "an error ended the program: ZeroDivisionError", id="error after the loop"),
        pytest.param(
            "lambda: 1 / 0", 1, "an error ended the program: ZeroDiv", id="error in it", marks=pytest.mark.nightly
        ),
        pytest.param(
            "by(signal.SIGINT)",
            -signal.SIGINT,
            "an error ended the program: KeyboardInterrupt",
            id="Ctrl-C",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_file_names_the_holder_its_bytes_and_the_last_words_of_the_monitor(tmp_path, end, status, words):
    asked = [sys.executable, "-c", f"{DYING}keep(history, {end})", str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert done.returncode == status, done.stderr
    text = next(tmp_path.glob("post_mortem_*.txt")).read_text("utf-8")
    assert text.startswith(words)
    assert "6.25 MiB  history\n             400 tensors" in text  # all of them, each of 16 KiB
    assert re.search(r"the monitor at step [\d,]+: `history` grows by 1 tensor", text)


class Loop:
    """A monitor, as far as it is known to those who tell last words."""

    def __init__(self, name="", places=()):
        self.name, self.places, self.failure = name, places, ""
        self.record = self.status = self


@pytest.fixture
def no_words():
    running._last_words.clear()
    yield
    running._last_words.clear()


@pytest.mark.usefixtures("no_words")
def test_words_on_a_loop_that_left_a_growth_behind_stay_until_it_begins_again():
    training, evaluation = Loop("training", ["history"]), Loop("evaluation")
    for loop in (training, evaluation):
        running.begin(loop)
        running.end(loop, "")
    assert running.last_words() == (training,)  # nothing grew in the other
    running.begin(Loop("training"))
    assert running.last_words() == ()


@pytest.mark.usefixtures("no_words")
def test_what_is_set_aside_is_free_while_last_words_are_found_after_an_error():
    class Room:
        is_free = False

        def free(self):
            self.is_free = True

        def take(self):
            self.is_free = False

    room = Room()
    running.add_room(room)
    try:
        for failure in ("", "MemoryError"):
            with running.room_for_last_words(failure):
                assert room.is_free == bool(failure)
            assert not room.is_free
    finally:
        running.remove_room(room)


def test_a_limit_is_told_while_there_is_room_to_look_at_the_objects(monkeypatch):
    monkeypatch.setattr("leaklab.process.last_moments._SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr("leaklab.process.last_moments._LONGEST_PAUSE", 0.001)
    uses = iter([100, 400, 690, 750, 950, None])
    told = []

    class Limit:
        n_bytes = 1000

        def used_bytes(self):
            return next(uses)

    class Answers:
        def on_limit(self, _limit, used):
            told.append(used)

    thread = LimitThread(Answers(), Limit(), 0.9, needed=lambda: 250)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    assert told == [750]
