"""Leaks that only a table in C keeps, the interpreter's, torch's or another library's, which Python does not show."""

from __future__ import annotations

import atexit
import codecs
import ctypes
import itertools
import lzma
import os
import readline
import sqlite3
import sys
import xml.etree.ElementTree as ET
import zlib

import pytest
import torch

import leaklab
from leaklab.check.judging import GrownRegistry, Judgement
from leaklab.decide.growth import Growth
from leaklab.measure import registries
from leaklab.measure.registries import REGISTRIES, Registry, entry_counts, registry_of_call, registry_on
from leaklab.model import Outcome, RootPath, Status, Step

NOTHING = Growth(Outcome.CLEAN, 0.0, "nothing")
AT_RUNS = (0, 8, 15, 24)


class Resource:
    """Something with a method to call at the end."""

    def __init__(self):
        self.data = bytearray(20_000)

    def close(self):
        """Be called at the end."""


def judgement(*counts):
    grown = tuple(GrownRegistry(Registry(f"table{number}.add"), of) for number, of in enumerate(counts))
    return Judgement(
        at_runs=AT_RUNS, kinds={}, remade={}, containers=(), slots=(), graph=NOTHING, native=None, accelerator=None,
        registries=grown,
    )  # fmt: skip


def suspect_of(kept, *counts):
    found = judgement(*counts).suspect(kept)
    return None if found is None else found.registry.adds


EVERY_RUN = (*(1,) * 23, 0)  # the newest is not among what leaks


def test_the_one_table_that_grows_as_the_leak_does_is_the_suspect():
    assert suspect_of(EVERY_RUN, (3, 11, 18, 27)) == "table0.add"
    assert suspect_of((*(3,) * 23, 0), (3, 11, 18, 27)) == "table0.add"  # each entry has three objects
    assert suspect_of((*(0, 0, 2) * 7, 0, 0, 0), (1, 3, 6, 9)) == "table0.add"


def test_a_table_of_another_pace_or_one_of_two_is_no_suspect():
    assert suspect_of(EVERY_RUN, (3, 11, 11, 11)) is None
    assert suspect_of(EVERY_RUN, (3, 3, 3, 27)) is None
    assert suspect_of(EVERY_RUN, (0, 8, 15, 24), (5, 13, 20, 29)) is None
    assert suspect_of(EVERY_RUN, (0, 8, 15, 24), (5, 5, 5, 6)) == "table0.add"


def test_for_memory_the_table_must_grow_steadily():
    assert judgement((0, 8, 15, 24)).suspect() is not None
    assert judgement((0, 8, 8, 8)).suspect() is None


def test_tables_of_callbacks_are_no_suspects_where_nothing_can_be_called():
    assert judgement((0, 8, 15, 24)).suspect(EVERY_RUN, has_callables=False) is None


def test_a_count_that_cannot_be_read_is_unknown(monkeypatch):
    def fails():
        raise AttributeError

    monkeypatch.setattr(registries, "REGISTRIES", [Registry("a", count=fails), Registry("b", count=lambda: 7)])
    assert entry_counts().tolist() == [registries.UNKNOWN, 7]


def test_every_registry_is_a_list_or_has_a_length_or_a_call_in_c():
    for registry in REGISTRIES:
        assert registry.count is None or registry.entry is None, registry.adds
        assert registry_of_call(registry.c_function) is not None


def test_a_registry_is_found_by_where_a_path_begins_and_by_what_it_passes():
    at_root = RootPath("the stack of torch.overrides.TorchFunctionMode", ())
    passed = RootPath(
        "notebook variable", (Step("the table of sqlite3.Connection.create_function", "method", "", Status.LEAKED),)
    )
    assert registry_on(at_root) is registry_of_call("torch._C._push_on_torch_function_stack")
    assert registry_on(passed) is registry_of_call("sqlite3.Connection.create_function")
    assert registry_on(RootPath("notebook variable", (Step("history", "list", "", Status.LEAKED),))) is None


def leak_of(function, **options):
    report = leaklab.leakcheck(function, runs=16, sites=False, **options)
    assert report.leaked, report.verdict
    return report.leaks[0]


@pytest.mark.untraced
def test_atexit_is_probably_who_keeps_it():
    made = []

    def register():
        resource = Resource()
        made.append(resource.close)
        atexit.register(made.pop())

    before = atexit._ncallbacks()
    leak = leak_of(register)
    assert leak.holder == "probably the table of atexit.register"
    assert [(step.kind, step.summary) for step in leak.path.steps] == [("method", "Resource.close")]
    assert leak.cause == "callback-registry"
    assert "atexit.unregister(function)" in leak.advice
    assert "the table of atexit.register grew meanwhile" in leak.reason
    assert atexit._ncallbacks() > before


@pytest.mark.untraced
def test_a_lost_reference_is_not_blamed_on_callbacks_that_are_registered_at_the_same_pace():
    class Box:
        def __init__(self):
            self.tensor = torch.zeros(64, 64)

    def lose():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(Box()))
        atexit.register(print, end="")

    try:
        leak = leak_of(lose)
        assert leak.holder == "C code (no Python object refers to its top, a Box)"
        assert [(step.reference, step.kind.rpartition(".")[2]) for step in leak.path.steps] == [("its top", "Box")]
    finally:
        atexit.unregister(print)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("register", "name"),
    [
        (lambda callback: os.register_at_fork(after_in_child=callback), "os.register_at_fork"),
        (lambda callback: codecs.register(lambda _name: callback()), "codecs.register"),
        (
            lambda callback: codecs.register_error(f"leaks{id(callback)}", lambda _error: callback()),
            "codecs.register_error",
        ),
    ],
)  # fmt: skip
def test_the_lists_of_the_interpreter_are_holders(register, name):
    def leaks():
        tensor = torch.zeros(40, 40)
        register(lambda: tensor and None)

    leak = leak_of(leaks)
    assert leak.path.root == f"the table of {name}"
    assert leak.path.steps
    assert leak.cause == "callback-registry"
    assert leak.retained_bytes


@pytest.mark.untraced
def test_lines_of_readline_are_native_memory():
    try:
        leak = leak_of(lambda: readline.add_history("x" * 50_000))
        assert leak.holder == "probably the table of readline.add_history"
        assert leak.cause == "native"
        assert "readline.clear_history()" in leak.advice
    finally:
        readline.clear_history()


DATABASE = sqlite3.connect(":memory:")
NUMBERS = itertools.count()


class Packer:
    def __init__(self):
        self.weights = torch.zeros(40, 40)

    def pack(self, tensor):
        return tensor

    def unpack(self, tensor):
        return tensor


def enter_and_forget():
    packer = Packer()
    torch.autograd.graph.saved_tensors_hooks(packer.pack, packer.unpack).__enter__()


def give_to_the_database():
    DATABASE.create_function(f"pack_{next(NUMBERS)}", 1, Packer().pack)


def give_a_class_to_the_database():
    class Mean:
        def step(self, _value):
            return None

        def finalize(self):
            return 0

    DATABASE.create_aggregate(f"mean_{next(NUMBERS)}", 1, Mean)


def register_at_exit():
    atexit.register(Resource().close)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("leaks", "holder", "words"),
    [
        (enter_and_forget, "the stack of torch.autograd.graph.saved_tensors_hooks", "Enter it by `with`"),
        (give_to_the_database, "DATABASE", "DATABASE.create_function(name, n_arguments, None)"),
        (give_a_class_to_the_database, "DATABASE", "DATABASE.create_aggregate(name, n_arguments, None)"),
        (register_at_exit, "the table of atexit.register", "with the same method (`Resource.close`)"),
    ],
)
def test_a_store_in_c_is_named_by_the_call_that_gave_it_away(leaks, holder, words):
    report = leaklab.leakcheck(leaks, runs=16, cure=False)
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
    (leak,) = report.leaks
    assert leak.holder.rpartition(".")[2] == holder.rpartition(".")[2]
    assert leak.cause == "callback-registry"
    assert words in leak.advice
    assert f" in {leaks.__name__}: " in leak.sites[0]
    assert leak.sites[0].endswith("# keeps it")
    assert sys.getprofile() is None


@pytest.mark.untraced
def test_a_profiler_of_the_users_is_left_alone():
    def profiler(_frame, _event, _argument):
        return None

    sys.setprofile(profiler)
    try:
        report = leaklab.leakcheck(give_to_the_database, runs=16, cure=False)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert report.leaks[0].holder == "C code (no Python object refers to its top, the method Packer.pack)"


@pytest.mark.untraced
def test_what_a_store_replaces_or_gives_back_is_no_leak():
    def replaces():
        DATABASE.create_function("same", 1, Packer().pack)
        with torch.autograd.graph.saved_tensors_hooks(Packer().pack, Packer().unpack):
            pass
        search = Packer().pack
        codecs.register(search)
        codecs.unregister(search)

    assert not leaklab.leakcheck(replaces, runs=16).leaked


libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


@pytest.mark.untraced
@pytest.mark.parametrize("make", [zlib.compressobj, lambda: lzma.LZMACompressor(preset=0)])
def test_a_table_of_names_that_the_collector_does_not_list_has_the_memory_of_its_objects(make):
    streams: dict[str, object] = {}
    names = map("peer {}".format, itertools.count())

    def connect() -> None:
        streams[next(names)] = make()

    report = leaklab.leakcheck(connect, runs=24, cure=False, namespace={"streams": streams})
    (leak,) = report.leaks
    assert leak.what.startswith("dict entries: "), "by one of its names: a closure has it as well"
    assert leak.bytes_per_run > 100_000


@pytest.mark.untraced
def test_memory_that_leaks_more_often_than_a_table_gets_longer_is_not_that_tables():
    streams: dict[str, list[object]] = {}
    numbers = itertools.count()

    def connect() -> None:
        number = next(numbers)
        libc.malloc(30_000)
        if number % 3 == 0:
            streams[f"peer {number}"] = [zlib.decompressobj()]

    report = leaklab.leakcheck(connect, runs=60, cure=False, namespace={"streams": streams})
    assert sorted(leak.what for leak in report.leaks) == ["list", "native memory (malloc)"]


def test_an_element_that_keeps_its_children_in_c_is_a_container_that_grows():
    root = ET.Element("feed")
    report = leaklab.leakcheck(
        lambda: ET.SubElement(root, "item"), runs=8, sites=False, cure=False, namespace={"root": root}
    )
    (leak,) = report.leaks
    assert (leak.holder, leak.cause) == ("root", "container-growth")
    assert "`root.clear()`" in leak.advice
