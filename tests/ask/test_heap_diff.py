"""Moments of the real heap: exact over a stretch of code, cheap to keep, and blind to leaklab itself."""

from __future__ import annotations

import gc
import json
import types
import weakref

import numpy as np
import pytest
import torch

import leaklab
from leaklab.ask.heap_diff import Stretch, compare_now
from leaklab.errors import ReportError
from leaklab.measure.heap_snapshot import notebook_context
from leaklab.reports.heap_diff import HeapSnapshot, MemDiff

KEPT: list[object] = []


class Net:
    def __init__(self) -> None:
        self.weight = np.zeros(4000)


class Hostile(list):
    """Raises from everything that a careless reader might call."""

    def _raise(self, *args):
        msg = "must not be called"
        raise AssertionError(msg)

    __len__ = __sizeof__ = __eq__ = __repr__ = __getattr__ = __iter__ = _raise
    __hash__ = None
    __class__ = property(_raise)


class HostileTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        msg = "must not be called"
        raise AssertionError(msg)


def stretch(code: str, **variables: object) -> MemDiff:
    """Return what *code* leaves behind in a module of its own."""
    module = types.ModuleType("user_code")
    space = vars(module)
    space.update(variables, torch=torch, np=np, Net=Net, leaklab=leaklab)
    variables.clear()
    watched = Stretch(notebook_context(space))
    compiled = compile(code, "<cell>", "exec")
    watched.start("before")
    try:
        exec(compiled, space)  # noqa: S102 - it is the test's own code
        return watched.finish("after")
    finally:
        watched.abandon()


@pytest.fixture(scope="module")
def busy() -> MemDiff:
    """One stretch of code that does a little of everything."""
    old = [1, 2]
    return stretch(
        """
x = torch.ones(64, 128)
view = x[0]
net = Net()
old.append(np.zeros(500))
kept = [torch.zeros(5) for _ in range(4)]
tensor = torch.ones(7)
nowhere = torch.ones(4, device="meta")
alone = torch.ones(4, device="meta").untyped_storage()
odd = make_hostile()
odd_tensor = torch.ones(17).as_subclass(hostile_kind)
del gone
""",
        make_hostile=Hostile,
        hostile_kind=HostileTensor,
        old_hostile=[Hostile()],
        old=old,
        gone=torch.zeros(1000),
        tensor=torch.ones(7),
    )


def lines_of(diff: MemDiff, start: str) -> list[str]:
    return [line for line in diff.lines if line.startswith(start)]


@pytest.mark.untraced
@pytest.mark.parametrize("code", ["pass", "x = torch.ones(64, 128)"])
def test_an_empty_cell_shows_nothing_and_one_tensor_exactly_that_tensor(busy, code):
    # After `busy`: in the first stretch, imports and caches are the code's own doing.
    wanted = {"pass": (), "x = torch.ones(64, 128)": ("+1 torch.Tensor (64, 128) float32 cpu, 32.0 KiB, held by x",)}
    assert stretch(code).lines == wanted[code]


@pytest.mark.untraced
def test_what_a_cell_makes_is_told_with_its_holder(busy):
    assert lines_of(busy, "+1 torch.Tensor (64, 128)") == ["+1 torch.Tensor (64, 128) float32 cpu, 32.0 KiB, held by x"]
    assert lines_of(busy, "+4 torch") == ["+4 torch.Tensor (5,) float32 cpu, 80 B, held by kept[0], kept[1], kept[2]"]
    assert lines_of(busy, "+1 numpy.ndarray (4000,)") == [
        "+1 numpy.ndarray (4000,) float64, 31.3 KiB, held by net.weight"
    ]
    assert lines_of(busy, "-1 torch") == ["-1 torch.Tensor (1000,) float32 cpu, 3.91 KiB"]


@pytest.mark.untraced
def test_a_list_that_grew_is_told_with_what_it_got(busy):
    assert lines_of(busy, "old (list) grew") == ["old (list) grew by 1 entry of numpy.ndarray, 2 -> 3, 4.01 KiB"]
    assert busy.containers.loc["old", ["before", "after"]].tolist() == [2, 3]


@pytest.mark.untraced
def test_a_tensor_replaced_by_one_just_like_it_is_seen_even_at_the_same_address(busy):
    assert lines_of(busy, "1 torch.Tensor (7,)") == [
        "1 torch.Tensor (7,) float32 cpu replaced by another of its kind, 28 B, held by tensor"
    ]
    assert busy.record.exact


def test_storages_are_counted_once(busy):
    rows = busy.tensors.set_index("shape")
    assert rows.loc["(64, 128)", "bytes_born"] + rows.loc["(128,)", "bytes_born"] == 64 * 128 * 4
    (device,) = busy.record.devices  # and none for what is on "meta", which has no memory
    assert device.bytes_after - device.bytes_before == 64 * 128 * 4 + 4 * 20 + 4 * 17 - 4000


def test_variables_are_born_gone_replaced(busy):
    changes = busy.variables["change"]
    assert (changes["x"], changes["gone"], changes["tensor"]) == ("born", "died", "replaced")


def test_every_view_of_a_difference_can_be_had(busy, tmp_path):
    assert json.loads(busy.to_json())["format"] == "leaklab difference"
    assert "<!DOCTYPE html>" in busy.to_html()
    assert len(repr(busy).splitlines()) == 1
    assert max(map(len, str(busy).splitlines())) <= 100
    assert set(busy._repr_mimebundle_()) == {"text/plain", "text/html"}
    for suffix in ("html", "json", "csv"):
        busy.save(tmp_path / f"d.{suffix}")
    assert (tmp_path / "d.csv").read_text().startswith("group,count,what,bytes,holders\n")
    assert busy.objects.loc["test_heap_diff.Net", "n_born"] == 1
    assert busy.devices.index.tolist() == ["cpu"]
    assert len(busy.arrays) == 2


def test_hostile_objects_are_counted_and_never_asked(busy):
    assert busy.objects.loc["test_heap_diff.Hostile", "n_born"] == 1
    assert "test_heap_diff.HostileTensor" in set(busy.tensors["kind"])


def test_the_state_of_the_collector_is_the_same_after_a_stretch_that_fails():
    watched = Stretch(notebook_context({}))
    watched.start("before")
    assert gc.get_freeze_count() > 10_000
    watched.abandon()
    assert gc.get_freeze_count() < 2_000
    watched.abandon()


def test_code_that_freezes_keeps_its_frozen_objects_and_is_compared_by_address():
    try:
        diff = stretch("import gc; x = torch.ones(3); gc.freeze()")
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
    assert not diff.record.exact
    assert lines_of(diff, "+1 torch.Tensor (3,)")


def test_where_the_collector_is_off_nothing_is_collected_and_that_is_said():
    gc.disable()
    try:
        diff = stretch("x = [1, [2]]")
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert "garbage counts as alive" in diff.notes[0]


@pytest.fixture(scope="module")
def pair() -> tuple[HeapSnapshot, MemDiff]:
    """Two moments of this process, and two tensors made between them."""
    around = notebook_context(globals())
    before = around.take("before")
    KEPT.extend(torch.ones(11, 13) for _ in range(2))
    return HeapSnapshot(before), compare_now(before, around.take("after"), around)


def test_what_was_made_between_two_moments_is_told(pair):
    rows = pair[1].tensors.set_index("shape")
    assert rows.loc["(11, 13)", ["n_born", "bytes_born"]].tolist() == [2, 2 * 11 * 13 * 4]
    assert lines_of(pair[1], "+2 torch") == ["+2 torch.Tensor (11, 13) float32 cpu, 1.12 KiB, held by KEPT[0], KEPT[1]"]


def test_a_moment_has_no_field_that_the_collector_follows(pair):
    moment = pair[0].record
    assert not [name for name in moment.__slots__ if name != "heap_bytes" and gc.is_tracked(getattr(moment, name))]
    assert moment.n_bytes < 60 * moment.n_objects


def test_a_saved_moment_is_the_same_moment(pair, tmp_path):
    pair[0].save(tmp_path / "m.npz")
    again = HeapSnapshot.load(tmp_path / "m.npz")
    assert repr(again) == repr(pair[0])
    assert again.record.words == pair[0].record.words
    assert np.array_equal(again.record.addresses, pair[0].record.addresses)


def test_leaklab_never_appears_in_what_it_finds(pair):
    assert not [kind for kind in pair[1].objects.index if kind.startswith("leaklab.")]


def test_the_repr_of_a_moment_is_one_line(pair):
    assert repr(pair[0]).startswith("<HeapSnapshot 'before': ")


def test_a_moment_lets_go_of_what_it_saw():
    thing = Net()
    seen = weakref.ref(thing)
    moment = leaklab.snapshot()
    del thing
    assert seen() is None
    assert moment.n_objects > 1000


@pytest.mark.parametrize("wrong", [3, None, ["a"]])
def test_what_is_no_moment_is_refused_with_one_sentence(wrong):
    with pytest.raises(TypeError, match=r"diff compares snapshots of leaklab\.snapshot\(\)"):
        leaklab.diff(wrong)


def test_the_name_of_a_moment_is_a_text():
    with pytest.raises(TypeError, match="must be a str, not int"):
        leaklab.snapshot(3)


def test_a_damaged_file_is_refused_with_one_sentence(tmp_path):
    bad = tmp_path / "m.npz"
    bad.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(ReportError, match="is not a heap snapshot that this leaklab can read"):
        leaklab.diff(bad)
    with pytest.raises(ReportError, match="cannot read"):
        leaklab.diff(tmp_path / "missing.npz")


def test_a_file_with_a_pickle_in_it_is_refused(tmp_path):
    np.savez(tmp_path / "m.npz", header=np.array([object()], dtype=object))
    with pytest.raises(ReportError, match="allow_pickle=False"):
        leaklab.diff(tmp_path / "m.npz")


def test_a_moment_is_saved_as_npz_only(tmp_path):
    from moment_builders import moment

    with pytest.raises(ReportError, match=r"must end in \.npz"):
        HeapSnapshot(moment({})).save(tmp_path / "m.pickle")


def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path):
    from dataclasses import replace

    from moment_builders import moment

    from leaklab.reports.heap_snapshot_file import load_heap_snapshot, save_heap_snapshot

    good = moment({16: "list"}, lengths={16: 3})
    save_heap_snapshot(replace(good, kinds=np.array([9], np.int32)), tmp_path / "m.npz")
    with pytest.raises(ReportError, match="kinds does not fit"):
        load_heap_snapshot(tmp_path / "m.npz")
    save_heap_snapshot(good, tmp_path / "m.npz")
    assert load_heap_snapshot(tmp_path / "m.npz").lengths.tolist() == [3]


class Search:
    def __init__(self):
        self.recent = []


@pytest.fixture(scope="module")
def step():
    """The first difference beside graphs that nobody has looked at: a forward pass, backward, one step of Adam."""
    search, model = Search(), torch.nn.Linear(30, 30)
    optimizer = torch.optim.Adam(model.parameters())
    search.recent += [model(torch.randn(4, 30)).relu().pow(2).sum() for _ in range(3)]
    variables = {"optimizer": optimizer, "search": search, "model": model}
    stretch = Stretch(notebook_context(variables))
    stretch.start("before")
    try:
        search.recent.append(model(torch.randn(4, 30)).relu().mv(torch.randn(30)).pow(2).sum())
        search.recent[-1].backward(retain_graph=True)
        optimizer.step()
        return stretch.finish("after").record
    finally:
        stretch.abandon()


def holders_of(step):
    return {holder for row in step.tensors for holder in row.holders}


def test_nodes_that_were_only_looked_at_are_not_new(step):
    assert not [row.kind for row in step.objects if row.kind.endswith(("Backward0", "AccumulateGrad"))]


def test_below_the_first_step_of_autograd_the_graph_is_the_holder(step):
    assert "the graph of search.recent[3]" in holders_of(step)
    assert not [holder for holder in holders_of(step) if "next_functions" in holder or "_saved" in holder]


def test_a_gradient_is_named_by_the_parameter_of_its_module(step):
    assert {"model.weight.grad", "model.bias.grad"} <= holders_of(step)
    assert not [holder for holder in holders_of(step) if "key <" in holder]
