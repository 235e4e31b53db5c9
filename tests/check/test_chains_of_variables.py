"""A chain that hangs on a variable which every run replaces is named by the variable, not by the namespace."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.untraced

NODES = """\
class Node:
    def __init__(self, before):
        self.before, self.data = before, bytearray(9000)
node = old = None
"""
HOOKS = "import sys\nhook = before = None\n"
CHAINS = {
    "objects": (NODES, "old = node\nnode = Node(old)", "old", "tensor-kept container-growth unknown", ".before"),
    "the newest alone": (NODES, "node = Node(node)", "node", "tensor-kept container-growth unknown", ".before"),
    "functions": (
        HOOKS,
        "before = hook\ntable = bytearray(9000)\ndef hook(event, before=before, table=table):\n    return table",
        "before.__defaults__", "closure-kept", "default of 'before' of hook()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_the_variable_is_the_holder(notebook, name):
    setup, cell, holder, causes, reference = CHAINS[name]
    notebook.run(setup)
    report = notebook.check(cell, "-n 16")
    assert report.leaked
    (leak,) = report.leaks
    assert leak.holder == holder
    assert leak.cause in causes.split()
    assert any(step.reference == reference for step in leak.path.steps)


def test_two_variables_that_are_replaced_are_no_leak(notebook):
    notebook.run(NODES)
    report = notebook.check("old = node\nnode = Node(None)", "-n 16")
    assert not report.leaked
