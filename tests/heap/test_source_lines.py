"""Files are named as the user names them, cells as the notebook does; the line that fills a holder is found in them."""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
import types
from pathlib import Path

import pytest
from IPython.core.compilerop import CachingCompiler

import leaklab
from leaklab.heap.source_lines import LineWriter, cell_name, find_line, line_in_file, running_cell_name, short_path

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


@pytest.fixture
def cell():
    """Put text where IPython puts a cell's, as cell 7."""
    names = []

    def add(text, number=7):
        name = f"<ipython-input-{number}-{len(names):012x}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        names.append(name)

    yield add
    for name in names:
        linecache.cache.pop(name, None)


@pytest.mark.parametrize(
    ("text", "holder", "statement"),
    [
        ("zq_history.append(loss)", "zq_history", "zq_history.append(loss)"),
        ("self.zq_log.append(f(x))", "trainer.zq_log", "self.zq_log.append(f(x))"),
        ("zq_cache[key] = value", "zq_cache", "zq_cache[key] = value"),
        ("zq_total += loss * 2", "zq_total", "zq_total += loss * 2"),
        ("zq_runs[name]['loss'].append(x)", "zq_runs['a']['loss']", "zq_runs[name]['loss'].append(x)"),
        ("zq_seen.extend(\n    rows\n)", "zq_seen", "zq_seen.extend( rows )"),
        ("zq_feats.setdefault(name, []).append(o)", "zq_feats['relu']", "zq_feats.setdefault(name, []).append(o)"),
        ("mask = zq_masks[n] = make(n)", "zq_masks", "mask = zq_masks[n] = make(n)"),
        ("layer.register(lambda o: zq_kept.append(o))", "zq_kept", "layer.register(lambda o: zq_kept.append(o))"),
        ("zq_out.put(net(x))", "zq_out.queue", "zq_out.put(net(x))"),
        ("zq_sum = zq_sum + loss", "zq_sum", "zq_sum = zq_sum + loss"),
        ("self.zq_kv = torch.cat([self.zq_kv, k])", "model.zq_kv", "self.zq_kv = torch.cat([self.zq_kv, k])"),
    ],
)
def test_the_line_that_adds_is_found(cell, text, holder, statement):
    cell(f"# a comment\n\nfor step in range(3):\n    {text}\n" if "\n" not in text else f"\n\n\n{text}\n")
    line = find_line(holder)
    assert (line.place, line.text) == ("Cell In[7], line 4", statement)


@pytest.mark.parametrize(
    "text",
    [
        "zq_b.remove(x)",
        "zq_b = []",
        "print(zq_b)",
        "zq_b.append(",
        "other.append(zq_b)",
        "zq_b = make(x)",
        "zq_b = zq_b.to(device)",
        "",
    ],
)
def test_a_line_that_adds_nothing_is_not_named(cell, text):
    cell(text)
    assert find_line("zq_b") is None


def test_a_line_for_a_local_variable_stands_in_its_function_or_is_the_only_one(cell):
    cell("def one():\n    zq_e.append(1)\ndef other(zq_f):\n    zq_e.append(2)\n    zq_f.append(3)\nzq_g.append(4)")
    assert find_line("zq_e", "one").place == "Cell In[7], line 2"
    assert find_line("zq_e", "other").place == "Cell In[7], line 4"
    assert find_line("zq_e", "third") is None
    assert find_line("zq_e") is None
    assert find_line("zq_f", "caller").place == "Cell In[7], line 5"  # it was given that list


def test_what_adds_is_named_before_what_makes_it_anew(cell):
    cell("zq_d.append(a)\nzq_d = zq_d[-10:]")
    assert find_line("zq_d").place == "Cell In[7], line 1"


def test_two_different_lines_are_none(cell):
    cell("zq_c.append(a)\nzq_c.append(b)")
    assert find_line("zq_c") is None


def test_the_same_line_in_two_cells_is_one_line_of_the_newest(cell):
    cell("zq_d.append(a)", 3)
    cell("\nzq_d.append(a)", 9)
    assert find_line("zq_d").place == "Cell In[9], line 2"


@pytest.mark.parametrize("holder", ["", "globals()", "[3]"])
def test_a_holder_without_a_name_has_no_line(holder):
    assert find_line(holder) is None


FILE = '''"""A module."""

KEEP = []


def other():
    return 1


class Trainer:
    def __init__(self):
        self.losses = []

    # what it is for
    def step(self):
        # why

        losses = (1,
                  2)
        self.losses.append(losses)


def outer():

    def inner():
        # why
        KEEP.append(1)
    inner()
'''
LINES = FILE.splitlines()


def place_of(text):
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@pytest.fixture
def module(tmp_path):
    """A module as it was imported."""
    made = types.ModuleType("reloaded_module")
    made.__file__ = str(tmp_path / "reloaded_module.py")
    exec(compile(FILE, made.__file__, "exec", dont_inherit=True), vars(made))  # noqa: S102 - as an import does
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def reload(module, name):
    """Patch a function or method as the deduplicating reload of IPython does."""
    owner, _, last = name.rpartition(".")
    body = ast.parse(FILE).body
    if owner:
        body = next(node for node in body if getattr(node, "name", "") == owner).body
    text = ast.unparse(next(node for node in body if getattr(node, "name", "") == last))
    variables = {}
    if owner:
        text = "class __autoreload_class__:\n" + textwrap.indent(text, "    ")
    exec(compile(text, module.__file__, "exec", dont_inherit=True), vars(module), variables)  # noqa: S102 - as the reload does
    new = variables["__autoreload_class__"].__dict__[last] if owner else variables[last]
    old = vars(vars(module)[owner])[last] if owner else vars(module)[last]
    old.__code__ = new.__code__


def line(module, number, function, source=FILE):
    return line_in_file(ast.parse(source), module.__file__, number, function)


def test_lines_of_code_as_it_was_imported_are_lines_of_the_file(module):
    number = place_of("self.losses.append")
    assert line(module, number, "Trainer.step") == number
    assert line(module, number, "") == number


def test_lines_of_a_reloaded_function_are_found_by_its_statements(module):
    reload(module, "outer")
    assert line(module, 4, "outer.<locals>.inner") == place_of("KEEP.append")


def test_lines_of_a_reloaded_method_are_found_by_its_statements(module):
    reload(module, "Trainer.step")
    assert line(module, 4, "__autoreload_class__.step") == place_of("self.losses.append")
    assert line(module, 3, "__autoreload_class__.step") == place_of("losses = (1,")


def test_without_a_name_the_only_reloaded_function_of_such_a_length_is_meant(module):
    reload(module, "Trainer.step")
    assert line(module, 4, "") == place_of("self.losses.append")
    reload(module, "outer")
    assert line(module, 4, "") == 0  # one of two


def test_a_line_of_code_whose_file_was_edited_since_is_not_known(module):
    edited = FILE.replace("KEEP = []", "KEEP = []\nimport os\n")
    assert line(module, place_of("self.losses.append"), "Trainer.step", edited) == 0
    reload(module, "outer")
    assert line(module, 4, "outer.<locals>.inner", FILE.replace("KEEP.append(1)", "print(KEEP)")) == 0


def test_what_is_in_no_function_keeps_its_line(module):
    assert line(module, 3, "<module>") == 3


KERNEL_FILE = "/var/ipykernel_4711/123456.py"


class KernelsCompiler(CachingCompiler):
    """Names cells as ipykernel does."""

    def get_code_name(self, raw_code, transformed_code, number):
        return KERNEL_FILE


@pytest.fixture
def kernel(notebook, monkeypatch):
    monkeypatch.setattr(notebook.shell, "compile", KernelsCompiler())
    return notebook


def test_a_file_of_a_kernel_is_the_cell_that_was_run(kernel):
    kernel.run("x = 1")
    number = kernel.shell.execution_count - 1
    assert running_cell_name(KERNEL_FILE) == f"Cell In[{number}]"
    assert running_cell_name("/home/me/train.py") == ""


def test_without_a_shell_the_number_is_read_from_the_name():
    assert cell_name(None, "<ipython-input-7-0123456789ab>") == "Cell In[7]"
    assert cell_name(None, KERNEL_FILE) == ""


def test_a_function_of_a_cell_is_checked_without_the_magic_and_its_lines_name_the_cell(kernel):
    kernel.user["leakcheck"] = leaklab.leakcheck
    typed = kernel.run(
        "kept = []\ndef step():\n    kept.append([len(kept)])\nreport = leakcheck(step, runs=6, sites=True)"
    )
    assert typed.error is None
    number = kernel.shell.execution_count - 1
    (leak,) = kernel.user["report"].check.leaks
    assert leak.sites[0].startswith(f"Cell In[{number}], line 3 in step: kept.append([len(kept)])")
    assert "ipykernel" not in str(kernel.user["report"])
