"""A difference written by hand, in text, HTML and CSV."""

from __future__ import annotations

from dataclasses import replace

from moment_builders import FLOATS

from leaklab.model.heap_diff import (
    ArrayChange,
    ContainerChange,
    DeviceChange,
    Difference,
    ObjectChange,
    PlaceChange,
    TensorChange,
)
from leaklab.reports.heap_diff import MemDiff

EMPTY = Difference(
    before="before",
    after="now",
    seconds=2.5,
    same_process=True,
    exact=True,
    objects=(),
    tensors=(),
    arrays=(),
    containers=(),
    places=(),
    devices=(DeviceChange("cpu", 0, 0, 0, 0, 0, 0),),
    object_bytes=0,
    heap_bytes=400,
    accelerator_bytes=None,
    rss_bytes=0,
)
FULL = replace(
    EMPTY,
    objects=(
        ObjectChange("torch.Tensor", 2, 0, 0, 2, 160, holders=("x",)),
        ObjectChange("Net", 3, 1, 4, 6, 96, n_aside=0, holders=("net", "nets[0]")),
        ObjectChange("dict", 4, 4, 9, 9, 0, n_aside=4),
    ),
    tensors=(TensorChange(FLOATS, 2, 0, 0, 2, 65536, 0, ("x", "kept[0]")),),
    arrays=(ArrayChange("numpy.ndarray (9,) float64", 1, 1, 9000, 9000, ("a",)),),
    containers=(ContainerChange("kept", "list", 5, 8, "torch.Tensor", 0),),
    places=(
        PlaceChange("x", "notebook", "born", "", "torch.Tensor (64, 128) float32 cpu", 0, 32768),
        PlaceChange("n", "notebook", "born", "", "int", 0, 28),
        PlaceChange("old", "notebook", "died", "list, 2 entries", "", 72, 0),
        PlaceChange("re._cache", "re", "grown", "dict, 4 entries", "dict, 5 entries", 300, 400),
    ),
    devices=(DeviceChange("cpu", 0, 2, 0, 2, 0, 65536),),
    new_modules=("json.tool",),
    n_aside=4,
    aside=("module 're'",),
)

TEXT = """\
before -> now, 2.5 s apart: +4 objects (2 tensors), +64.0 KiB in tensors
  +2 torch.Tensor (64, 128) float32 cpu, 64.0 KiB, held by x, kept[0]
  +2 Net, held by net, nets[0]
  new variable n: int
  kept (list) grew by 3 entries of torch.Tensor, 5 -> 8
  variable old is gone: it was list, 2 entries
  1 numpy.ndarray (9,) float64 replaced by another of its kind, 8.79 KiB, held by a
  cpu: 0 B -> 64.0 KiB (+64.0 KiB), 0 -> 2 tensors
  process: native heap +400 B, resident +0 B
  - left out: 4 new objects of libraries and of the notebook (module 're')
  - 1 module was imported in between: json.tool
"""


def test_the_text_tells_every_change_once():
    assert str(MemDiff(FULL)) == TEXT


def test_what_is_new_stands_first_the_largest_before_the_others_and_what_was_replaced_is_folded():
    replaced = tuple(ArrayChange(f"bytes of {n}", 1, 1, 10**9, 10**9) for n in range(5))
    born = tuple(ArrayChange(f"bytearray of {n}", 1, 0, n, 0) for n in (10, 30, 20))
    difference = MemDiff(replace(FULL, tensors=(), arrays=(*replaced, *born)))
    assert [line.split(",")[0] for line in difference.lines[:3]] == [f"+1 bytearray of {n}" for n in (30, 20, 10)]
    assert "  5 kinds were replaced by others of their kind: see .lines\n" in str(difference)
    markup = difference._repr_html_()
    places = [markup.index(f">{title}") for title in ("New (", "Grew (", "Gone or smaller (", "Replaced by others")]
    assert places == sorted(places)
    assert [part.startswith(" open") for part in markup.split("<details")[1:5]] == [True, True, True, False]


def test_no_change_is_one_line():
    assert str(MemDiff(EMPTY)) == "before -> now, 2.5 s apart: nothing was made or freed\n"
    assert repr(MemDiff(EMPTY)) == "<MemDiff nothing was made or freed>"
    assert not MemDiff(EMPTY).changed


def test_no_line_is_longer_than_100_columns_whatever_a_name_is():
    long = replace(FULL, containers=(ContainerChange("name" * 200, "list", 1, 2),))
    assert max(map(len, str(MemDiff(long)).splitlines())) <= 100


def test_the_csv_has_one_line_for_each_change(tmp_path):
    MemDiff(FULL).save(tmp_path / "d.csv")
    lines = (tmp_path / "d.csv").read_text().splitlines()
    assert lines[1] == 'tensors,2,"torch.Tensor (64, 128) float32 cpu",65536,"x, kept[0]"'
    assert len(lines) == 1 + 6


def test_a_cell_that_failed_says_so_first():
    assert MemDiff(replace(FULL, failure="ValueError")).notes[0].startswith("the code raised ValueError")


def test_empty_tables_have_their_columns():
    for name in ("objects", "tensors", "arrays", "containers", "variables"):
        assert len(getattr(MemDiff(EMPTY), name)) == 0
        assert len(getattr(MemDiff(EMPTY), name).columns) >= 4
