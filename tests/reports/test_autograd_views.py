"""What a graph keeps, shown: text, tables, HTML, pictures, files, and the magic that asks for them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch
from IPython.core.error import UsageError

from leaklab.errors import ReportError
from leaklab.model.autograd import AutogradRecord, Drawing, DrawnBy, GraphBox, GraphPart, KeptTensor, Sharing
from leaklab.reports.autograd import AutogradGraph, AutogradReport, details

PART = GraphPart("MulBackward0", 1_000, 2_000, 10, 0, 4_096, 2_048)
LINE = replace(PART, name="Cell In[7], line 3 in step: loss = (model(batch) * weights).sum()  # " + "x" * 80)
KEPT = KeptTensor(
    "torch.Tensor", (64, 128), "float32", "cpu", 1_000, 32_768_000, ("MulBackward0.self", "ReluBackward0.result"),
    (LINE.name,), Sharing.GRAPH, "", is_packed=False,
)  # fmt: skip
BOXES = (GraphBox("SumBackward0", 1, 0, True, False), GraphBox("<b>&MulBackward0", 1_000, 4_096, False, False, "n"))
RETENTION = AutogradRecord(
    name="losses", roots=("losses[0]", "losses[1]"), n_roots=2, n_nodes=1_001, is_complete=False, n_saved=2_000,
    n_freed=10, n_packed=1, n_opaque=0, n_unknown=0, saved_bytes=4_096, leaf_bytes=1_024, variable_bytes=1_024,
    unsaved_leaf_bytes=512, operations=(PART,), lines=(LINE,),
    tensors=(KEPT, replace(KEPT, n_bytes=None, sharing=Sharing.LEAF, shared_with="model.weight", is_packed=True)),
    drawings=(Drawing(DrawnBy.OPERATION, BOXES, ((0, 1, 1_000),)),), notes=("a note",),
    environment=(("torch", "2"),),
)  # fmt: skip
REPORT = AutogradReport(RETENTION)


def test_repr_says_in_one_line_what_is_kept_and_that_it_may_be_more():
    assert repr(REPORT) == "<AutogradReport losses: at least 1,001 nodes keep 4.00 KiB in 2,000 saved tensors>"


def test_the_shares_add_up_to_the_whole():
    assert RETENTION.graph_bytes == 4_096 - 1_024 - 1_024
    assert details(RETENTION)[0] == (
        "2.00 KiB by the graph alone; 1.00 KiB shared with parameters or other leaves; 1.00 KiB shared with variables"
    )


def test_freed_and_packed_tensors_are_told():
    words = " ".join(details(RETENTION))
    assert "10 saved tensors freed by a backward pass" in words
    assert "1 saved tensor was packed by hooks, and not unpacked to look" in words
    assert "saved by MulBackward0.self, ReluBackward0.result (packed)" in str(REPORT)


def test_text_is_at_most_100_columns_wide():
    assert max(map(len, str(REPORT).splitlines())) <= 100


def test_tables_without_rows_have_the_same_columns():
    empty = AutogradReport(replace(RETENTION, lines=(), tensors=()))
    assert list(empty.lines.columns) == list(REPORT.lines.columns)
    assert list(empty.tensors.dtypes) == list(REPORT.tensors.dtypes)


def test_the_picture_is_well_formed_whatever_the_names():
    svg = REPORT.graph().svg
    assert svg is not None
    words = " ".join(ET.fromstring(svg).itertext())  # noqa: S314 - our own
    assert "<b>&MulBackward0" in words
    assert "1,000 nodes, 4.00 KiB" in words


def test_without_graphviz_the_drawing_is_shown_as_text(monkeypatch):
    monkeypatch.setattr("leaklab.render.drawing.draw_svg", lambda _dot: None)
    graph = AutogradGraph("losses", RETENTION.drawings[0])
    assert "SumBackward0" in graph._repr_mimebundle_()["text/html"]
    with pytest.raises(ReportError, match="nothing here can draw the graph"):
        graph.save("x.svg")


@pytest.fixture
def filled(notebook):
    notebook.run("import torch")
    notebook.user["w"] = torch.ones(3, requires_grad=True)
    notebook.run("losses = [(w * w).sum() for _ in range(3)]")
    return notebook


def test_the_magic_shows_the_graph_behind_an_expression(filled):
    assert "losses[-1]: 3 nodes keep 12 B in 2 saved tensors" in filled.run("%autograd losses[-1]").out


def test_an_expression_is_taken_as_it_is_written(filled):
    assert filled.run("%autograd -q -o  {'-o': losses}['-o'][1:]  ;").result.result.retention.n_nodes == 5


def test_the_magic_without_an_expression_examines_all_variables(filled):
    assert "all variables: 7 nodes" in filled.run("%autograd").out


def test_the_magic_stores_and_returns_and_is_quiet(filled):
    typed = filled.run("%autograd -q -o -v kept losses")
    assert filled.user["kept"].retention.n_nodes == 7
    assert typed.result.result == filled.user["kept"]
    assert "GRAPH" not in filled.run("%autograd -q losses").out


def test_the_magic_saves(filled, tmp_path):
    filled.run(f"%autograd -q -T {tmp_path}/kept.html losses")
    assert "losses" in (tmp_path / "kept.html").read_text()


def test_cells_are_named_as_the_notebook_names_them(filled):
    filled.run("with torch.autograd.set_detect_anomaly(True, check_nan=False):\n    y = (w * w).sum()")
    text = filled.run("%autograd y").out
    assert "In[" in text
    assert ", line 2: y = (w * w).sum()" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lss", "cannot evaluate 'lss': there is no variable 'lss'"),
        ("1 / 0", "cannot evaluate '1 / 0': it raised ZeroDivisionError: division by zero"),
        ("losses[", "'losses[' is not a Python expression: "),
        ("w", "nothing to show: w is a leaf"),
        ("w.detach()", "nothing to show: w.detach() does not require grad"),
        ("-T kept.png losses", "cannot save as 'kept.png'"),
        ("-T /no/such/folder/kept.html losses", "cannot write '/no/such/folder/kept.html'"),
        ("-v 3 losses", "-v needs the name of a variable, not '3'"),
    ],
)
def test_bad_input_to_the_magic_gets_one_sentence(filled, line, message):
    error = filled.run(f"%autograd {line}").error
    assert isinstance(error, UsageError)
    assert str(error).startswith(message)
    assert "\n" not in str(error)


def test_the_magic_keeps_nothing_alive(filled):
    filled.run("import weakref; y = (w * w).exp(); died = weakref.ref(y)")
    filled.run("%autograd -q -v kept y")
    filled.run("%autograd (lambda kept: kept.no_such_attribute)(y)")
    filled.run("del y")
    assert filled.user["died"]() is None
