"""A line is written as people look for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaklab.heap.source_lines import LineWriter, short_path

SOURCE = """\
import torch

class Trainer:
    @torch.no_grad()
    def step(self, x):
        if x:
            self.history.append(
                x,
            )
        return [y for y in x]

total = 0
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.fixture
def writer():
    return LineWriter(lambda filename: "Cell In[7]" if filename == "<cell 7>" else "")


WRITTEN = {
    12: "train.py:12: total = 0",
    10: "train.py:10 in Trainer.step: return [y for y in x]",
    6: "train.py:6 in Trainer.step: if x:",
    7: "train.py:7 in Trainer.step: self.history.append( x, )",
}


@pytest.mark.parametrize("number", WRITTEN)
def test_place_function_and_source(file, writer, number):
    assert writer.write(file, number) == WRITTEN[number]


@pytest.mark.parametrize("number", [7, 8, 9])
def test_every_line_of_a_statement_is_its_first(file, writer, number):
    assert writer.statement(file, number) == (file, 7)


def test_a_cell_of_a_notebook_is_named_as_the_notebook_does(writer):
    assert writer.write("<cell 7>", 3, "step") == "Cell In[7], line 3 in step"


def test_without_source_the_name_of_the_code_serves(writer):
    assert writer.write("train.py", 41, "A.<locals>.step") == "train.py:41 in A.step"


def test_a_file_elsewhere_is_named_by_its_folder_and_name(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert short_path(str(tmp_path / "project" / "train.py")) == str(Path("project", "train.py"))


def test_a_long_line_is_cut(tmp_path, writer):
    path = tmp_path / "long.py"
    path.write_text("x = '" + "a" * 300 + "'\n")
    assert writer.write(str(path), 1).endswith("aaa…")
    assert len(writer.write(str(path), 1).partition(": ")[2]) == 100
