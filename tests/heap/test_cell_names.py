"""Cells are named as the notebook names them, also where a kernel gives them the names of temporary files."""

from __future__ import annotations

import pytest
from IPython.core.compilerop import CachingCompiler

import leaklab
from leaklab.heap.source_lines import cell_name, running_cell_name

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
