"""``%whyalive``: any expression as it is written, options before it, one sentence for bad input, nothing kept."""

from __future__ import annotations

import gc
import importlib
import weakref

import pytest
import torch
from notebook_shell import Notebook

from leaklab.magics.line_magics import WhyAliveMagics
from leaklab.magics.options import split_line


class Box:
    pass


MAGIC = WhyAliveMagics.whyalive
LINES = {
    "x": ("", "x"),
    "-q  data['a  b -n 2'][-1]": ("-q", "data['a  b -n 2'][-1]"),
    "-v rep -n 3 f(x, -q)": ("-v rep -n 3", "f(x, -q)"),
    "-n3 --save='a b.html' d[\"k\"] - 1": ("-n3 --save='a b.html'", 'd["k"] - 1'),
    "-T 'my file.html' x": ("-T 'my file.html'", "x"),
    "-q -- -x": ("-q", "-x"),
    "-x + 1": ("", "-x + 1"),
    "": ("", ""),
}


@pytest.mark.parametrize(("line", "parts"), LINES.items(), ids=LINES.keys())
def test_options_end_where_the_expression_begins_which_is_left_as_it_is(line, parts):
    options, expression = split_line(MAGIC, line)
    assert (options.strip(), expression) == parts


@pytest.fixture
def user(notebook: Notebook) -> dict[str, object]:
    notebook.user.update(torch=torch, data={"a b -n 2": [torch.ones(3), torch.ones(4)]}, number=3)
    return notebook.user


def message_of(typed) -> str:
    assert typed.error is not None
    return str(typed.error)


def test_magic_shows_the_answer_and_names_what_was_asked(notebook, user):
    typed = notebook.run("%whyalive data['a b -n 2'][-1];")
    assert typed.error is None
    assert typed.out.startswith("ALIVE  data['a b -n 2'][-1]: torch.Tensor (4,) float32 cpu")
    assert "held by  data['a b -n 2']" in typed.out
    assert "reference count 1 = 1 list" in typed.out


def test_magic_stores_saves_and_says_nothing_when_told_so(notebook, user, tmp_path):
    file = tmp_path / "why.html"
    typed = notebook.run(f"%whyalive -q -v why -T '{file}' -n 1 data['a b -n 2'][0]")
    assert typed.error is None
    assert typed.out == ""
    assert user["why"].holders == ("data['a b -n 2']",)
    assert "<!DOCTYPE html>" in file.read_text("utf-8")


def test_asking_keeps_nothing_of_the_object(notebook, user):
    user["thing"] = Box()
    ref = weakref.ref(user["thing"])
    answer = notebook.run("%whyalive -o -q thing").result.result
    assert answer.holders == ("globals()",)
    assert answer.counts.python == 1
    assert answer.counts.n_unexplained == 0
    del user["thing"]
    gc.collect()
    assert ref() is None


BAD = {
    "": "%whyalive needs an expression",
    "3": "a value of type int may be shared",
    "'text'": "ask about the object that holds it",
    "numbr": "there is no variable 'numbr'; did you mean 'number'?",
    "data['zzz']": "cannot evaluate \"data['zzz']\": it raised KeyError: 'zzz'",
    "x = 3": "'x = 3' is not a Python expression",
    "-n 0 data": "max_paths must be at least 1, not 0",
    "-T why.pdf data": "cannot save as 'why.pdf'",
    "-v 3x data": "-v needs the name of a variable",
    "-z data": "'-z' is not an option, and '-z data' is not a Python expression",
}


@pytest.mark.parametrize(("line", "words"), BAD.items(), ids=BAD.keys())
def test_bad_input_is_answered_in_one_sentence(notebook, user, line, words):
    typed = notebook.run(f"%whyalive {line}")
    assert words in message_of(typed)
    assert "\n" not in message_of(typed)
    assert "Traceback" not in typed.out + typed.err


def test_expression_that_raises_leaves_no_frame_alive(notebook, user):
    notebook.run("def fails():\n    local = Box()\n    refs.append(weakref.ref(local))\n    raise ValueError('no')\n")
    user.update(Box=Box, weakref=weakref, refs=[])
    typed = notebook.run("%whyalive fails()")
    assert "it raised ValueError: no" in message_of(typed)
    gc.collect()
    assert user["refs"][0]() is None


def test_result_of_a_cell_is_held_by_the_notebooks_own_memory(notebook, user):
    notebook.run("torch.ones(2)")
    typed = notebook.run("%whyalive -o -q _")
    assert any("%reset -f out" in path.remark for path in typed.result.result.record.paths)


@pytest.mark.parametrize(
    ("line", "asks"), [("%whyalive data", "leaklab.ask.alive answer"), ("%autograd", "leaklab.ask.autograd autograd")]
)
def test_too_little_memory_is_one_sentence_and_no_traceback(notebook, user, monkeypatch, line, asks):
    def fails(*_args, **_named):
        raise MemoryError

    module, function = asks.split()
    monkeypatch.setattr(importlib.import_module(module), function, fails)
    typed = notebook.run(line)
    assert message_of(typed).startswith("there is not enough memory to look at all objects: ")
    assert "Traceback" not in typed.out + typed.err
    assert typed.error.__context__ is None
