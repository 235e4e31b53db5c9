"""A heap with its references: read once, named rightly, written, read back, and refused where it is damaged."""

from __future__ import annotations

import gc
import itertools
import json
import random
import subprocess
import sys
import time
import zlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from graph_builders import index_of, random_graphs, reached_from

import leaklab
from leaklab.explain.heaps.found import find_in
from leaklab.explain.heaps.icicle import icicle_of, icicles_of
from leaklab.explain.heaps.saved import shape_of
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.live_nodes import LiveNodes
from leaklab.heap.names import name_references
from leaklab.heap.nodes import ArrayTraits, NodeType, StorageUse, TraitsTable
from leaklab.heap.saved.arrays import HeapArrays, SavedNodes
from leaklab.heap.saved.file import MAGIC, load_heap, packed_heap, save_heap
from leaklab.heap.saved.taking import take_heap
from leaklab.heap.shortest_paths import Start
from leaklab.heap.view import NO_BIRTHS
from leaklab.reports.saved_heap import render_heap_page

pytestmark = pytest.mark.untraced


class Record:
    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)


class Slotted:
    __slots__ = ("first", "second")


def world():
    """Return variables with objects of every kind that references are named of."""
    inner = [1.0]
    slotted = Slotted()
    slotted.second = [inner]
    records = [Record(values=[inner], fields={"number": i, "pair": [i]}) for i in range(20)]
    for i, record in enumerate(records[::3]):  # some have more, some have their attributes in another order
        record.back = records[i]
        record.__dict__["extra"] = [i]
    turned = Record(fields=[2], values=[3])
    return {
        "records": records,
        "turned": turned,
        "slotted": slotted,
        "keys": {1: [1], -1: [2], "a": [3], (1, "x"): [4], "k" * 100: [5], 2.5: [6], b"b": [7], "it's": [8]},
        "model": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)),
        "cache": {"secret word": {"arrays": (np.zeros(500), np.zeros(500)[10:300])}, "blob": bytearray(5000)},
        "views": [torch.zeros(100, 3)[i:] for i in (0, 1)],
        "twice": [inner, inner],
    }


def objects_of(variables):
    """Return the variables and all that they lead to but through types and modules, as the collector lists it."""
    seen, pending = {}, [variables]
    while pending:
        thing = pending.pop()
        if id(thing) in seen or not gc.is_tracked(thing) or type(thing) in (type, type(gc), type(lambda: 0)):
            continue
        seen[id(thing)] = thing
        pending += gc.get_referents(thing)
    return list(seen.values())


@contextmanager
def lent(variables):
    objects = objects_of(variables)
    yield objects
    objects.clear()


def saved(variables):
    return SavedNodes(take_heap("a moment", variables, heap=lent(variables)))


def test_each_expression_evaluates_to_its_object():
    variables = world()
    heap = saved(variables)
    n_right = 0
    for vertex in range(heap.index.n_vertices):
        expression, _place = heap.name_of(vertex)
        if expression and heap.starts[heap.paths.root_of[vertex]].is_variable:
            found = eval(expression, dict(variables))  # noqa: S307 - the program's own words
            assert id(found) == heap.index.ids[vertex], expression
            n_right += 1
    assert n_right > 150
    names = {heap.name_of(vertex)[0] for vertex in range(heap.index.n_vertices)}
    assert {"model[0].weight", "model[1].running_mean", "records[3].extra", "slotted.second", "keys[(1, 'x')]"} <= names
    assert {"cache['secret word']['arrays'][1]", "turned.values", 'keys["it\'s"]', "keys[-1]"} <= names


def test_no_reference_has_a_name_that_is_not_its_own():
    variables = world()
    with lent(variables) as objects:
        here = list(objects)
        arrays = take_heap("", variables, heap=lent(variables))
    by_address = {id(thing): thing for thing in here}
    heap = SavedNodes(arrays)
    n_named = 0
    for holder in range(arrays.n_listed):
        thing = by_address.get(int(arrays.index.ids[holder]))
        for held in set(arrays.index.referents(holder).tolist()) if thing is not None else ():
            child = by_address.get(int(arrays.index.ids[held]))
            name = heap.reference_name(holder, held)
            if child is None or not name or name == ".__dict__":
                continue
            texts = {reference.text for reference in name_references(thing, child)}
            assert name in texts or name.startswith("value under "), (name, texts)
            n_named += 1
    assert n_named > 200


def test_a_saved_heap_finds_what_the_living_one_finds():
    variables = world()
    for record in (*variables["records"], variables["turned"]):
        vars(record)  # gives it a dict for good; to look for names would do that to some
    heap = saved(variables)
    conditions = ["bytes > 1 KiB", "requires_grad", "shape[0] == 4 and dtype == 'float32'", "held_by('records')",
                  "exclusive > 2 kB and not type like 'torch.*'", "held_by('cache') or ndim == 1"]  # fmt: skip
    with borrow_heap(NO_BIRTHS, variables, heap=lent(variables), min_data_bytes=1024) as view:
        live = LiveNodes(view)
        for where in conditions:
            found, expected = (named(each, find_in(each, "", where)) for each in (heap, live))
            assert found == expected, where
            assert found


def named(heap, mask):
    """Return what comes back if each object of *mask* goes, by its expression."""
    vertices = np.flatnonzero(mask).tolist()
    return sorted((heap.name_of(vertex)[0], int(heap.exclusive_bytes[vertex])) for vertex in vertices)


def random_heap(rng, n_vertices, edges, roots):
    """Return a heap by hand: a random graph with sizes and storages."""
    index = index_of(n_vertices, edges)
    own = np.array([rng.randint(1, 50) for _ in range(n_vertices)])
    groups = [
        sorted(rng.sample(range(n_vertices), rng.randint(1, min(3, n_vertices)))) for _ in range(rng.randint(0, 3))
    ]
    sizes = [rng.randint(100, 900) for _ in groups]
    counts = [len(group) for group in groups]
    return HeapArrays(
        "", 0.0, (), (), index, (), np.zeros(n_vertices, np.int32), (NodeType("thing", "", False, False),), own,
        TraitsTable(np.full(n_vertices, -1, np.int32), ()),
        StorageUse(np.array(sizes, np.int64), np.cumsum([0, *counts]),
                   np.array(list(itertools.chain(*groups)), np.int64), np.zeros(len(groups), bool)),
        tuple(Start(0, "notebook variable", f"v{root}", 0, is_variable=True) for root in roots),
        np.array(roots, np.int64), -1, np.zeros(0, np.int64), n_vertices,
    )  # fmt: skip


def test_what_comes_back_equals_what_brute_force_says_on_random_graphs():
    rng = random.Random(3)
    for n_vertices, edges, roots in random_graphs(200, seed=9):
        arrays = random_heap(rng, n_vertices, edges, roots)
        heap = SavedNodes(arrays)
        orphans = set(range(n_vertices)) - reached_from(roots, edges)
        everywhere = sorted({*roots, *orphans})  # what no root reaches counts as a root
        use = arrays.storages
        groups = [set(use.users[a:b].tolist()) for a, b in zip(use.offsets, use.offsets[1:], strict=False)]
        for vertex in range(n_vertices):
            gone = set(range(n_vertices)) - reached_from(everywhere, edges, without={vertex})
            expected = sum(arrays.own_bytes[list(gone)].tolist())
            expected += sum(size for size, users in zip(use.sizes.tolist(), groups, strict=True) if users <= gone)
            assert heap.exclusive_bytes[vertex] == expected
        at_the_top = use.sizes.sum() - (heap.exclusive_parts.sum() - arrays.own_bytes.sum())
        assert at_the_top >= 0  # storages that no single object keeps
        assert heap.bytes_together(np.ones(n_vertices, bool)) == arrays.own_bytes.sum() + use.sizes.sum()


def every(node):
    """Yield a node of an icicle and all below it."""
    yield node
    for child in node.children:
        yield from every(child)


def test_the_widths_of_an_icicle_are_what_comes_back_and_add_up_to_the_whole(monkeypatch):
    monkeypatch.setattr("leaklab.explain.heaps.icicle.LEAST_SHARE", 0.0)
    rng = random.Random(5)
    for n_vertices, edges, roots in random_graphs(150, seed=4):
        heap = SavedNodes(random_heap(rng, n_vertices, edges, roots))
        root = icicle_of(heap)
        assert root.n_bytes == heap.bytes_together(np.ones(n_vertices, bool))
        shown = {node.number: node for node in every(root) if node.number >= 0}
        assert sorted(shown) == list(range(n_vertices))
        for vertex, node in shown.items():
            assert node.n_bytes == heap.exclusive_bytes[vertex]  # which brute force confirms, above
            assert node.own_bytes == heap.exclusive_parts[vertex]
        groups = [node for node in every(root) if node.number < 0 and node is not root]
        assert [group.own_bytes for group in groups] == [0] * len(groups)
        assert root.own_bytes >= 0  # storages that no single object keeps


def test_what_is_too_small_or_too_much_to_be_shown_is_in_the_widths_all_the_same(monkeypatch):
    monkeypatch.setattr("leaklab.explain.heaps.icicle.LEAST_SHARE", 0.1)
    monkeypatch.setattr("leaklab.explain.heaps.icicle.MOST_NODES", 4)
    rng = random.Random(6)
    for n_vertices, edges, roots in random_graphs(50, seed=5):
        heap = SavedNodes(random_heap(rng, n_vertices, edges, roots))
        root = icicle_of(heap)
        assert sum(node.number >= 0 for node in every(root)) <= 4
        for node in every(root):
            if node.number >= 0:
                assert node.n_bytes == heap.exclusive_bytes[node.number]
                assert node.own_bytes >= 0
        assert root.n_bytes == heap.bytes_together(np.ones(n_vertices, bool))


def test_each_device_has_an_icicle_of_its_own_memory(monkeypatch):
    monkeypatch.setattr("leaklab.explain.heaps.icicle.LEAST_SHARE", 0.0)
    rng = random.Random(8)
    traits = tuple(ArrayTraits((1,), "float32", device, False) for device in ("cpu", "cuda:0", "cuda:1"))
    for n_vertices, edges, roots in random_graphs(80, seed=6):
        arrays = random_heap(rng, n_vertices, edges, roots)
        contents = TraitsTable(np.array([rng.randrange(3) for _ in range(n_vertices)], np.int32), traits)
        heap = SavedNodes(replace(arrays, contents=contents))
        on_device = np.array(heap.device_of_storages, object)
        icicles = dict(icicles_of(heap))
        assert set(icicles) == {"host", *on_device}
        assert sum(root.n_bytes for root in icicles.values()) == heap.bytes_together(np.ones(n_vertices, bool))
        for device, root in icicles.items():
            use, own = arrays.storages, arrays.own_bytes * (device == "host")
            only = replace(arrays, own_bytes=own, storages=replace(use, sizes=use.sizes * (on_device == device)))
            expected = SavedNodes(only).exclusive_bytes
            shown = {node.number: node.n_bytes for node in every(root) if node.number >= 0}
            assert shown == {vertex: size for vertex, size in enumerate(expected.tolist()) if size}


def trained():
    model = torch.nn.Sequential(torch.nn.Linear(60, 60), torch.nn.BatchNorm1d(60))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(8, 60)).square().mean().backward()
    optimizer.step()
    kept = model(torch.rand(50, 60)).relu()
    return {
        "model": model,
        "optimizer": optimizer,
        "kept": kept,
        "table": np.zeros((40, 50)),
        "more": {"x": [torch.zeros(300)]},
    }


def test_an_icicle_says_what_tensors_are_to_a_training_program(monkeypatch):
    monkeypatch.setattr("leaklab.explain.heaps.icicle.LEAST_SHARE", 0.0)
    variables = trained()
    root = icicle_of(saved(variables))
    parts = {node.expression: node.part for node in every(root) if node.part != "other"}
    assert parts["model[0].weight"] == "parameter"
    assert parts["model[0].weight.grad"] == "gradient"
    assert parts["model[1].running_mean"] == "buffer"
    assert parts["table"] == "array"
    assert parts["more['x'][0]"] == "tensor"
    assert parts["optimizer.state[model[0].weight]['exp_avg']"] == "optimizer state"
    sizes = [node for node in every(root) if node.part == "optimizer state"]
    assert any(node.part == "saved for backward" for node in every(root))
    assert sum("(60, 60)" in node.kind for node in sizes) == 2
    assert root.children[0].label == "your variables"
    assert {"table", "more", "shared by several variables"} <= {node.label for node in root.children[0].children}


def test_the_page_of_a_heap_runs_its_own_script_only(tmp_path):
    variables = {"<script>alert(1)</script>": [bytes(100_000)], **trained()}
    shape, icicles = shape_of(heap := saved(variables)), icicles_of(heap)
    (tmp_path / "page.html").write_text(render_heap_page(shape, icicles), "utf-8")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "script-src 'sha256-" in page
    assert "<script>alert" not in page
    assert "optimizer" in page
    assert len(page) < 1_000_000


def test_a_file_holds_all_of_a_heap(tmp_path):
    arrays = take_heap("a moment", variables := world(), heap=lent(variables))
    save_heap(arrays, tmp_path / "file.heap")
    read = load_heap(tmp_path / "file.heap")
    for field in ("name", "taken_at", "environment", "notes", "texts", "kinds", "namespace", "n_listed"):
        assert getattr(read, field) == getattr(arrays, field)
    for field in ("kind_of", "own_bytes", "start_vertices", "own"):
        assert getattr(read, field).tolist() == getattr(arrays, field).tolist()
    for field in ("forward_offsets", "forward_targets", "names"):
        assert getattr(read.index, field).tolist() == getattr(arrays.index, field).tolist()
    assert read.contents.table == arrays.contents.table
    assert read.storages.users.tolist() == arrays.storages.users.tolist()
    first, second = SavedNodes(read), SavedNodes(arrays)
    assert [first.name_of(v) for v in range(200)] == [second.name_of(v) for v in range(200)]


def test_redacted_no_key_of_a_dict_is_in_the_file(tmp_path):
    save_heap(take_heap("", variables := world(), heap=lent(variables)), tmp_path / "file.heap", redact=True)
    read = load_heap(tmp_path / "file.heap")
    assert not [text for text in read.texts if "secret" in text or "kkk" in text or "arrays" in text]
    heap = SavedNodes(read)
    names = {heap.name_of(vertex)[0] for vertex in range(read.index.n_vertices)}
    assert {"model[0].weight", "records[3].extra"} <= names
    assert any(name.startswith("cache['hidden ") for name in names)


def header_of(data):
    at = len(MAGIC) + 8
    n_header = int.from_bytes(data[len(MAGIC) : at], "little")
    return json.loads(data[at : at + n_header]), data[at + n_header :]


def with_header(header, rest):
    text = json.dumps(header).encode()
    return b"".join((MAGIC, len(text).to_bytes(8, "little"), text, rest))


def mutated(rng, data):
    """Return *data* with something wrong: bytes, lengths, numbers of its header, whole parts of it."""
    kind = rng.randrange(6)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return data + rng.randbytes(rng.randint(1, 40))
    if kind == 2:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at + rng.randint(0, 9) :]
    header, rest = header_of(data)
    number = rng.choice([-1, 0, 1, 255, 2**16, 2**29, 2**31, 2**40, 2**63, 2**64, 10**30])
    if kind == 3:
        array = rng.choice(header["arrays"])
        array[rng.randint(1, 3)] = number
    elif kind == 4:
        header[rng.choice(["n_words", "n_words_packed", "schema"])] = number
    else:  # an array that is whole, but of another heap
        array, at = rng.choice(header["arrays"]), header["n_words_packed"]
        for each in header["arrays"]:
            if each is array:
                break
            at += each[3]
        n = rng.choice([array[1], array[1] + 1, 0])
        values = np.array([rng.choice([-2, -1, 0, 5, 30_000, -30_000]) for _ in range(n)], "<i2")
        packed = zlib.compress(values.view(np.uint8).reshape(n, 2).T.tobytes(), 1)
        rest = rest[:at] + packed + rest[at + array[3] :]
        array[1:] = [n, 0, len(packed)]
    return with_header(header, rest)


def test_1000_damaged_files_are_refused_in_a_sentence(tmp_path):
    variables = {"records": world()["records"][:3], "views": [torch.zeros(9)]}
    data = packed_heap(take_heap("", variables, heap=lent(variables)))
    rng = random.Random(4)
    path = tmp_path / "file.heap"
    said, slowest = [], 0.0
    for _ in range(1000):
        path.write_bytes(mutated(rng, data))
        begun = time.process_time()
        try:
            # One that can be read, because a size or a name is another, is as good as any.
            heap = leaklab.SavedHeap.load(path)
            assert heap.shape.n_objects >= 0
            heap.find(where="bytes > 100", limit=3)
        except leaklab.ReportError as error:
            said.append(str(error))
        slowest = max(slowest, time.process_time() - begun)
    assert len(said) > 900
    assert not any("\n" in sentence for sentence in said)
    assert slowest < 2.0


def test_a_file_that_says_it_is_huge_takes_no_memory(tmp_path):
    header, rest = header_of(packed_heap(take_heap("", variables := world(), heap=lent(variables))))
    path = tmp_path / "file.heap"
    bomb = zlib.compress(bytes(1 << 25), 9)
    for array in header["arrays"]:
        array[1:] = [1 << 29, 0, len(bomb)]
    path.write_bytes(with_header(header, rest[: header["n_words_packed"]] + bomb * len(header["arrays"])))
    with pytest.raises(leaklab.ReportError, match="gives an impossible size"):
        leaklab.load(path)


NO_TORCH = """
import sys
sys.modules["torch"] = None
import leaklab
heap = leaklab.load(sys.argv[1])
print(sorted(heap.find("torch.Tensor", "shape == (13, 17)").holders))
print(heap.why("kept[1]['x']").holders)
print(heap.holders["holder"].tolist()[:200].count("kept"))
"""


def test_a_snapshot_with_references_is_opened_where_torch_is_not(tmp_path, capsys):
    names = {"kept": [{"x": torch.zeros(13, 17)} for _ in range(3)], "big": torch.zeros(400, 1000)}
    exec("import leaklab; heap = leaklab.snapshot('now', references=True)", names)  # noqa: S102 - variables of its own
    heap = names.pop("heap")
    heap.save(tmp_path / "a.heap")
    names["kept"].append(torch.zeros(300, 1000))
    exec("import leaklab; later = leaklab.snapshot('later', references=True)", names)  # noqa: S102
    comparison = heap.compare(names["later"])
    assert "kept" in comparison.holders["name"].tolist()
    assert "from now to later" in str(comparison)
    with pytest.raises(TypeError, match="compare asks for another saved heap, not int"):
        heap.compare(3)
    command = [sys.executable, "-c", NO_TORCH, str(tmp_path / "a.heap")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert printed[0] == str([f"kept[{i}]['x']" for i in range(3)])
    assert printed[1] == "('kept[1]',)"
    from leaklab.cli import main

    assert main(["heap", str(tmp_path / "a.heap")]) == 0
    assert "big  torch.Tensor" in capsys.readouterr().out
    assert main(["heap", str(tmp_path / "a.heap"), "--find", "byts > 3"]) == 1
    assert "no property is called byts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("histry", "no variable and no module is called 'histry'; variables are: cache, keys, model, "),
        ("records[99]", "records has no [99]; it has [0], [1]"),
        ("turned.fild", "turned has no .fild; it has .fields, .values"),
        ("__import__('os')", "no variable and no module is called '__import__'"),
        (10**9, "there is no object 1000000000: this heap has numbers up to"),
    ],
)
def test_what_there_is_not_is_said(asked, message):
    heap = leaklab.SavedHeap(take_heap("", variables := world(), heap=lent(variables)))
    with pytest.raises(leaklab.QueryError) as raised:
        heap.why(asked)
    assert message in str(raised.value)


def test_why_reads_expressions_as_reports_write_them():
    heap = leaklab.SavedHeap(take_heap("", variables := world(), heap=lent(variables)))
    for expression in ("model[0].weight", "cache['secret word']['arrays'][0]", "records[3].back.values[0]", "keys[-1]"):
        assert heap.why(expression).record.paths[0].expression, expression
    assert heap.why('cache["blob"]').record.what == "bytearray"
    assert heap.why("keys[(1, 'x')]").record.what == "list"
