from __future__ import annotations

import os
import subprocess
import time

import pytest
import samples

from leaklab.render import drawing as draw
from leaklab.render.drawing import draw_svg
from leaklab.reports.graphs import path_graph

DOT = 'digraph { a -> b [label="x"] }'
SVG = "<svg><text>fake</text></svg>"
needs_posix = pytest.mark.skipif(os.name != "posix", reason="fake programs are shell scripts")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder in which programs are found; nothing else can draw."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(draw.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(draw.importlib.util, "find_spec", lambda name: None)
    return tmp_path


def install(folder, name, script):
    program = folder / name
    program.write_text(f"#!/bin/sh\nexport PATH=/bin:/usr/bin\n{script}\n")
    program.chmod(0o755)
    return program


@needs_posix
def test_dot_is_asked_first(folder):
    install(folder, "dot", f"echo '<?xml?><!DOCTYPE svg>{SVG}'")
    install(folder, "graphviz-pure", "echo '<svg>wrong</svg>'")
    assert draw_svg(DOT) == SVG


@needs_posix
def test_the_program_reads_the_source_from_its_input_and_is_told_the_format(folder):
    install(folder, "dot", 'echo "<svg>$* $(cat)</svg>"')
    assert draw_svg(DOT) == f"<svg>-Tsvg {DOT}</svg>"


@needs_posix
def test_graphviz_pure_is_the_second_choice(folder):
    install(folder, "graphviz-pure", f"echo '{SVG}'")
    assert draw_svg(DOT) == SVG


@needs_posix
@pytest.mark.parametrize("script", ["exit 1", f"echo '{SVG}'; exit 3", "echo nonsense", "kill -9 $$"])
def test_a_program_that_fails_hands_over_to_the_next(folder, script):
    install(folder, "dot", script)
    install(folder, "graphviz-pure", "echo '<svg>second</svg>'")
    assert draw_svg(DOT) == "<svg>second</svg>"


@needs_posix
def test_a_file_that_cannot_be_executed_hands_over_to_the_next(folder):
    (folder / "dot").write_bytes(b"\x00not a program")
    (folder / "dot").chmod(0o755)
    install(folder, "graphviz-pure", f"echo '{SVG}'")
    assert draw_svg(DOT) == SVG


@needs_posix
def test_a_program_beside_the_interpreter_is_found_without_a_path(folder, monkeypatch):
    install(folder, "dot", f"echo '{SVG}'")
    monkeypatch.setenv("PATH", "")
    assert draw_svg(DOT) == SVG


def test_none_is_returned_where_nothing_can_draw(folder):
    assert draw_svg(DOT) is None


def test_pygraphviz_draws_in_a_process_of_its_own(monkeypatch):
    pytest.importorskip("pygraphviz")
    monkeypatch.setattr(draw, "_LADDER", (draw._pygraphviz,))
    drawing = draw_svg(path_graph(samples.history_leak()).source)
    assert drawing is not None
    assert drawing.startswith("<svg")
    assert drawing.endswith("</svg>")
    assert ".history" in drawing


def test_pygraphviz_is_not_taken_from_the_working_folder(monkeypatch, tmp_path):
    pytest.importorskip("pygraphviz")
    (tmp_path / "pygraphviz.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(draw, "_LADDER", (draw._pygraphviz,))
    assert draw_svg(DOT) is not None


def test_hostile_text_can_be_drawn(monkeypatch):
    pytest.importorskip("pygraphviz")
    monkeypatch.setattr(draw, "_LADDER", (draw._pygraphviz,))
    drawing = draw_svg(path_graph(samples.hostile_leak()).source)
    assert drawing is not None
    assert "<script" not in drawing


def test_damaged_source_draws_nothing():
    assert draw_svg("digraph { a -> ") is None


def test_a_child_without_interpreter_is_not_tried(monkeypatch):
    monkeypatch.setattr(draw.sys, "executable", "")
    assert draw._pygraphviz() is None


@needs_posix
def test_a_layout_that_takes_too_long_is_tried_again_with_straight_edges(folder):
    install(
        folder, "dot", 'source=$(cat); case "$source" in *splines=line*) echo "<svg>fast</svg>";; *) sleep 20;; esac'
    )
    started = time.monotonic()
    assert draw_svg(DOT, seconds=1) == "<svg>fast</svg>"
    assert time.monotonic() - started < 2


@needs_posix
def test_the_time_limit_holds_for_a_program_whose_child_keeps_the_output_open(folder):
    install(folder, "dot", "sleep 20 & sleep 20")
    install(folder, "graphviz-pure", f"echo '{SVG}'")
    started = time.monotonic()
    assert draw_svg(DOT, seconds=0.5) is None
    assert time.monotonic() - started < 1.5


@needs_posix
def test_nothing_that_was_started_outlives_the_time_limit(folder):
    install(folder, "dot", f"sleep 20 & echo $! >> {folder}/pids; sleep 20")
    assert draw_svg(DOT, seconds=0.5) is None
    for pid in (folder / "pids").read_text().split():
        state = subprocess.run(
            ["/bin/ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False
        ).stdout
        assert state.strip()[:1] in ("", "Z")


@needs_posix
def test_ctrl_c_ends_the_program_and_is_passed_on(folder, monkeypatch):
    install(folder, "dot", "sleep 20")
    started = []
    real_wait = subprocess.Popen.wait

    def interrupted(process, timeout=None):
        if timeout is not None and process not in started:
            started.append(process)
            raise KeyboardInterrupt
        return real_wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draw_svg(DOT)
    assert started[0].returncode is not None


@needs_posix
def test_a_full_disk_draws_nothing_and_raises_nothing(folder, monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    install(folder, "dot", f"echo '{SVG}'")
    monkeypatch.setattr(draw.tempfile, "TemporaryFile", full)
    assert draw_svg(DOT) is None


def test_the_simpler_layout_is_set_last():
    assert draw._simplified("digraph { a }") == (
        "digraph { a \ngraph [splines=line nslimit=1 nslimit1=1 mclimit=0.2]\n}"
    )
    assert draw._simplified("nonsense") == "nonsense"
