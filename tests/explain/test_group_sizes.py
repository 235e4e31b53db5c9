"""Groups of survivors in numbers and words; limits of holders, tables and logs; the size of a graph."""

from __future__ import annotations

import array
import collections
import ctypes
import datetime as dt
import functools
import gc
import io
import logging.handlers
import queue
import sysconfig
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from explain_builders import Link, Node, vertex_of, view_of

import leaklab
from leaklab.decide.growth import LOG_BYTES, is_log
from leaklab.explain.autograd.retention import longest_graph
from leaklab.explain.leaks.limits import FAR, Limit, known_limit
from leaklab.explain.leaks.plain_data import gains_log_entries
from leaklab.explain.leaks.sizes import GroupSizer, has_optimizer
from leaklab.heap.saved.taking import take_heap
from leaklab.measure.gauges import free_host_bytes
from leaklab.runtime.sizes import node_bytes


def tally_of(born, variables=None, entries=None):
    """Count what the first of two runs left."""
    with view_of({"kept": born} if variables is None else variables, [born, []]) as view:
        members = [vertex_of(view, thing) for thing in born]
        return GroupSizer(view).count(members, members if entries is None else [vertex_of(view, e) for e in entries])


def extra_bytes(born, bare):
    """Return by how many bytes *born* is more than *bare*, tensors whose storages do not count."""
    return tally_of(born).n_bytes - tally_of(bare).n_bytes


def test_a_shared_storage_is_counted_once():
    base = torch.zeros(1000)
    views = [base[:10], base[10:]]
    assert 4000 <= extra_bytes(views, [torch.empty(0), torch.empty(0)]) < 4600  # the object of the base beside it


def test_a_storage_of_an_older_tensor_is_not_counted():
    older = torch.zeros(1000)
    view = older[:10]
    with_older = tally_of([view], {"older": older, "kept": [view]})
    alone = tally_of([torch.empty(0)])
    assert with_older.n_bytes == alone.n_bytes


def test_a_small_view_is_charged_for_the_storage_that_it_keeps():
    assert 4000 <= extra_bytes([torch.zeros(1000)[:1]], [torch.empty(0)]) < 4600  # and its base


def test_tensors_saved_for_backward_by_survivors_are_counted():
    weight = torch.ones(1000, requires_grad=True)
    result = [(torch.ones(1000) * weight).sum()]
    summary = tally_of(result, {"weight": weight, "kept": result})
    assert 4000 <= summary.n_bytes < 8000  # the saved factor and two nodes, not the weight
    assert summary.has_graph


def test_a_tensor_that_is_older_than_the_runs_and_saved_in_a_graph_is_not_counted():
    weight = torch.ones(1000, requires_grad=True)
    result = [(weight * weight).sum()]
    assert tally_of(result, {"weight": weight, "kept": result}).n_bytes < 4000


def test_a_graph_costs_its_nodes():
    weight = torch.ones(1, requires_grad=True)
    results = [weight]
    for _ in range(10):
        results.append(results[-1] + 1)
    nodes = tally_of([results[-1]], {"weight": weight, "kept": results[-1:]})
    bare = tally_of([torch.ones(1)])
    # Ten additions and the accumulator of the weight, about 600 bytes each.
    assert 11 * 500 < nodes.n_bytes - bare.n_bytes < 11 * 900


def test_arrays_in_tuples_that_the_collector_forgot_are_counted():
    kept = [(1, np.zeros(3000))]
    gc.collect()
    assert not gc.is_tracked(kept[0])
    assert 24_000 <= tally_of([kept]).n_bytes < 24_400


def test_tensors_are_named_before_what_holds_them():
    born = [Node(), torch.zeros(3), [], torch.zeros(3)]
    summary = tally_of(born)
    assert summary.what == "torch.Tensor (3,) float32 cpu"
    assert len(summary.main_objects) == 2
    assert set(summary.others) == {("list", 1), ("explain_builders.Node", 1)}
    assert summary.kinds == {"list", "explain_builders.Node", "torch.Tensor"}
    assert not summary.has_graph


def test_the_largest_shape_gives_the_name_and_the_others_are_counted():
    summary = tally_of([torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(1000), torch.zeros(4)])
    assert summary.what == "torch.Tensor (1000,) float32 cpu and 2 other kinds"


def test_without_tensors_the_entries_give_the_name():
    inner = Node()
    outer = Link(inner)
    summary = tally_of([outer, inner], {"kept": [outer]}, entries=[outer])
    assert summary.what == "explain_builders.Link"
    assert summary.others == (("explain_builders.Node", 1),)


def test_words_and_numbers_of_survivors_are_counted():
    assert extra_bytes([Link("x" * 10_000)], [Link()]) >= 10_000


def test_an_optimizer_is_recognised_by_its_base():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with view_of({"kept": [optimizer]}) as view:
        assert has_optimizer(view, [vertex_of(view, optimizer)])
        assert not has_optimizer(view, [vertex_of(view, weight)])


class Window(collections.deque):
    """A window of its own class."""


def cached(maxsize):
    return functools.lru_cache(maxsize)(lambda number: number)


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (collections.deque(maxlen=64), "collections.deque(maxlen=64)"),
        (Window(maxlen=5), "test_group_sizes.Window(maxlen=5)"),
        (cached(128), "functools.lru_cache(maxsize=128)"),
        (cached(None), None),
        (collections.deque(), None),
        (collections.deque(maxlen=FAR), f"collections.deque(maxlen={FAR})"),
        (collections.deque(maxlen=FAR + 1), f"collections.deque(maxlen={FAR + 1})"),
        ([], None),
    ],
)
def test_a_container_that_limits_itself_is_recognised(thing, expected):
    limit = known_limit([{}, thing])
    assert (limit and limit.words) == expected


def test_the_table_of_a_cache_has_the_limit_of_the_cache():
    cache = cached(128)
    cache.__dict__["__wrapped__"] = None
    table = next(one for one in gc.get_referents(cache) if type(one) is dict and one is not cache.__dict__)
    assert known_limit([{}, cache, table]).words == "functools.lru_cache(maxsize=128)"
    assert known_limit([{}, cache, cache.__dict__]) is None, "its attributes have none"


def test_a_limit_is_far_where_what_it_would_keep_is_much():
    by_cache, chosen = known_limit([cached(5_000)]), known_limit([collections.deque(maxlen=5_000)])
    assert not by_cache.is_far(1_000)
    assert by_cache.is_far(2_000)
    assert not chosen.is_far(2_000)
    assert chosen.is_far(free_host_bytes() / 5_000)
    assert not known_limit([np.empty(FAR, object)]).is_far(10_000)
    assert known_limit([np.empty(FAR + 1, object)]).is_far(10_000)
    full = collections.deque(range(5_000), maxlen=5_000)
    assert not known_limit([full]).is_far(free_host_bytes() / 5_000)


@pytest.mark.parametrize(
    ("owner", "attribute", "expected"),
    [
        (queue.Queue(maxsize=8), "queue", "queue.Queue(maxsize=8)"),
        (queue.Queue(), "queue", None),
        (logging.handlers.MemoryHandler(50), "buffer", "logging.handlers.MemoryHandler(capacity=50)"),
    ],
)
def test_an_owner_that_limits_the_container_among_its_attributes_is_recognised(owner, attribute, expected):
    entries = getattr(owner, attribute)
    for holders in ([{}, owner, entries], [{}, owner, vars(owner), entries]):
        limit = known_limit(holders)
        assert (limit and limit.words) == expected


def test_the_buffer_of_a_text_file_is_limited_by_bytes_whatever_its_entries_are(tmp_path):
    with (tmp_path / "words.txt").open("w", encoding="utf-8") as file:
        limit = known_limit([{}, file, ["word"]])
    assert limit.words == "buffer of a text file (8.00 KiB)"
    assert not limit.is_far(1_000_000)
    assert limit.full_bytes(1_000_000) == 8192
    assert limit.reason(1.0, 62.0) == f"its holder is a {limit.words}, which is written when it is full"


@pytest.mark.untraced
def test_small_arrays_take_native_memory_and_are_no_leak_beside_what_keeps_them():
    kept = []

    def step():
        kept.extend(
            (np.ones((1, 4), np.float32), torch.ones(1).argmax().numpy(), np.ones(1), np.ones((1, 2, 2)))
            for _ in range(60)
        )

    report = leaklab.leakcheck(step, runs=24, sites=False, cure=False, namespace={"kept": kept})
    assert [leak.holder for leak in report.leaks] == ["kept"]


@pytest.mark.untraced
def test_a_frame_that_gets_columns_is_named_and_not_the_blocks_that_it_is_made_of():
    table, numbers = pd.DataFrame(index=range(200)), iter(range(1_000))

    def step():
        table[f"run {next(numbers)}"] = np.ones(200)

    report = leaklab.leakcheck(step, runs=24, cure=False, namespace={"table": table})
    (leak,) = report.leaks
    assert (leak.holder, leak.cause) == ("table", "container-growth")
    assert "`table` grows by 1 column block (" in str(report.verdict)
    assert "gets new columns in every run" in leak.advice


@pytest.mark.untraced
def test_what_somebody_keeps_inside_of_a_frame_is_no_column_of_it():
    table = pd.DataFrame({"a": range(5), "seen": [[] for _ in range(5)]})
    table.attrs["log"] = []

    def step():
        table.attrs["log"].append(torch.ones(50))
        table["seen"].iloc[0].append(torch.zeros(90))

    report = leaklab.leakcheck(step, runs=24, sites=False, cure=False, namespace={"table": table})
    assert len(report.leaks) == 2
    assert "table" not in {leak.holder for leak in report.leaks}
    assert not any("columns" in leak.advice for leak in report.leaks)


def test_the_directions_that_lbfgs_keeps_are_limited_by_its_history():
    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weights], history_size=7)
    loss = lambda: weights.square().sum()  # noqa: E731
    optimizer.step(lambda: (optimizer.zero_grad(), result := loss(), result.backward())[1])
    state = optimizer.state[weights]
    limit = known_limit([{}, optimizer, vars(optimizer), optimizer.state, state, state["old_dirs"]])
    assert (limit.words, limit.entries) == ("torch.optim.lbfgs.LBFGS(history_size=7)", 7)
    assert known_limit([{}, optimizer, optimizer.state, state]) is None, (
        "it may have a state for each of many parameters"
    )


def test_to_ask_for_a_limit_makes_no_dict_for_an_instance():
    waiting = queue.Queue(maxsize=8)
    before = [id(one) for one in gc.get_referents(waiting)]
    assert known_limit([{}, waiting, waiting.queue]).entries == 8
    assert [id(one) for one in gc.get_referents(waiting)] == before


@pytest.mark.parametrize("holder", [collections.deque(maxlen=3), cached(4), queue.Queue(maxsize=8)])
def test_what_is_in_an_entry_of_a_limited_container_is_not_limited(holder):
    assert known_limit([{}, holder, collections.deque(), []]) is None


class Pretender:
    """Has an attribute that is called like a limit."""

    maxsize = maxlen = capacity = 3


def test_a_users_class_with_an_attribute_called_maxsize_is_no_limit():
    assert known_limit([Pretender()]) is None


CACHES = """
class Cache:
    def __init__(self, capacity):
        self.capacity, self.max_retries, self._data, self.others = capacity, 3, {}, {}

    def __setitem__(self, key, value):
        self._data[key] = value
        while len(self._data) > self.capacity:
            del self._data[next(iter(self._data))]

    def retry(self, words):
        return len(words) < self.max_retries and words.pop()

class Slotted(Cache):
    __slots__ = ("_max_entries", "_rows")

    def __init__(self, limit):
        self._max_entries, self._rows = limit, []

    def add(self, row):
        self._rows.append(row)
        if len(self._rows) > self._max_entries:
            self._rows.pop(0)

class Table(dict):
    maxsize = None

    def __init__(self, size):
        self.max_size = size

    def put(self, key, value):
        if len(self) >= self.max_size:
            self.popitem()
        self[key] = value
"""


def caches(folder: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "somebodys"}
    exec(compile(CACHES, f"{folder}/somebodys.py", "exec"), names)  # noqa: S102 - as from that file
    return names


def test_a_librarys_class_tells_its_limit_where_its_code_drops_entries_beyond_that():
    library = caches(sysconfig.get_paths()["purelib"])
    cache, slotted, table = library["Cache"](5), library["Slotted"](7), library["Table"](9)
    assert known_limit([{}, cache, vars(cache), cache._data]).words == "somebodys.Cache(capacity=5)"
    assert known_limit([{}, cache, vars(cache), cache.others]) is None, "no function drops from that one"
    assert known_limit([{}, cache, vars(cache), cache._data, []]) is None, "what is in an entry is not limited"
    assert known_limit([{}, slotted, slotted._rows]).words == "somebodys.Slotted(max_entries=7)"
    assert known_limit([{}, table]).words == "somebodys.Table(max_size=9)"
    cache._data.update(dict.fromkeys(range(11)))
    assert known_limit([{}, cache, vars(cache), cache._data]) is None, "it has twice as many: it does not obey"


def test_a_class_of_the_users_is_not_asked_for_its_limit_by_name(tmp_path):
    mine = caches(str(tmp_path))
    cache, table = mine["Cache"](5), mine["Table"](9)
    assert known_limit([{}, cache, vars(cache), cache._data]) is None
    assert known_limit([{}, table]) is None


@pytest.mark.parametrize(
    ("limit", "per_run", "ending"),
    [
        (Limit("deque(maxlen=100)", 100, is_meant=True, n_now=24), 2.0, ": in about 38 runs, at about 100 KiB"),
        (Limit("deque(maxlen=100)", 100, is_meant=True, n_now=100), 2.0, "when it is full, as it is now"),
        (Limit("Queue(maxsize=8)", 8, is_meant=True, when_full="blocks put()"), 2.0,
         "blocks put() when it is full, at about 8.00 KiB"),
        (Limit("deque(maxlen=100)", 100, is_meant=True, n_now=24), 0.0, "when it is full"),
    ],
)  # fmt: skip
def test_a_bounded_holder_tells_when_and_at_how_many_bytes_it_stops(limit, per_run, ending):
    assert limit.reason(per_run, bytes_per_run=2048.0).endswith(ending)


def test_the_entries_of_a_limit_are_counted_now():
    window, remember = collections.deque([1, 2], maxlen=9), cached(3)
    remember(1)
    assert (known_limit([window]).n_now, known_limit([remember]).n_now) == (2, 1)


def test_the_limit_of_the_container_itself_counts():
    limit = known_limit([cached(3), collections.deque(maxlen=9)])
    assert (limit.words, limit.entries) == ("collections.deque(maxlen=9)", 9)


@pytest.mark.parametrize(
    ("thing", "bytes_per_entry", "expected"),
    [
        (cached(128), 1_000_000, True),
        (cached(128), 1_000, False),
        (collections.deque(maxlen=128), 1_000_000, False),  # a window of so many was asked for
    ],
)
def test_a_cache_that_will_be_large_before_it_is_full_is_far_from_its_limit(thing, bytes_per_entry, expected):
    assert known_limit([thing]).is_far(bytes_per_entry) is expected


def chain(length):
    result = torch.ones(1, requires_grad=True)
    for _ in range(length):
        result = result + 1
    return result


def test_a_graph_is_as_long_as_its_operations_and_its_leaf():
    result = chain(5)
    with view_of({"result": result}) as view:
        assert longest_graph(view).n_nodes >= 6


def test_the_longest_graph_is_found_among_many_tensors():
    long, short = chain(9), chain(3)
    with view_of({"short": short, "long": long, "plain": torch.ones(3)}) as view:
        assert longest_graph(view).vertex == vertex_of(view, long)
        assert longest_graph(view).n_nodes >= 10


def test_of_a_chain_of_results_the_last_has_the_longest_graph():
    results = [chain(1)]
    for _ in range(300):
        results.append(results[-1] + 1)
    with view_of({"results": results}) as view:
        assert longest_graph(view).vertex == vertex_of(view, results[-1])


def test_without_a_graph_there_is_no_longest():
    with view_of({"plain": torch.ones(3)}) as view:
        assert longest_graph(view) is None


@pytest.mark.parametrize(
    ("size", "n_entries", "is_limit"), [(100, 10, True), (100, 49, True), (100, 50, False), (8, 8, False)]
)
def test_an_array_is_a_limit_while_it_is_less_than_half_full(size, n_entries, is_limit):
    array = np.empty(size, dtype=object)
    array[:n_entries] = "entry"
    limit = known_limit([{}, array])
    assert (limit is not None) is is_limit
    if limit is not None:
        assert (limit.entries, limit.n_now) == (size, n_entries)


N_LOSSES = 50


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u f uordblks g keep".split()]  # noqa: SIM905


def malloc_level() -> int:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        pytest.skip("malloc of this system does not tell how much it has handed out")
    ask.restype = _Mallinfo2
    return ask().uordblks


def losses() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    kept = []
    for _ in range(N_LOSSES):
        loss = model(torch.rand(32, 256)).square().mean()
        loss.backward()
        kept.append(loss)
    return model, kept


def test_the_skeleton_of_a_graph_is_counted_after_its_backward_pass():
    _model, kept = losses()
    record = leaklab.autograd(kept).record
    assert record.n_nodes == 7 * N_LOSSES + 4
    assert record.saved_bytes == 0
    assert f"and take about {record.node_bytes / 1024:.0f} KiB themselves" in str(leaklab.autograd(kept))
    before = malloc_level()
    kept.clear()
    freed = before - malloc_level()
    # The losses themselves, a C++ tensor each, are in what malloc gets back, too.
    assert record.node_bytes == pytest.approx(freed - 515 * N_LOSSES, rel=0.15)


def test_a_file_of_the_heap_has_the_nodes_with_their_bytes():
    weight = torch.ones(3, requires_grad=True)
    namespace = {"kept": (weight * 2).digamma()}  # no other test has such a node
    namespace["kept"].grad_fn.name()  # the wrapper is made
    heap = take_heap("now", namespace)
    nodes = [row for row, kind in enumerate(heap.kinds) if kind.name == "DigammaBackward0"]
    sizes = heap.own_bytes[[place for place, row in enumerate(heap.kind_of) if row in nodes]]
    assert len(sizes) == 1
    assert sizes[0] >= node_bytes(1, 1)


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
LOGS = {
    "numbers": [0.5, 1, True, None, 2j],
    "numpy's numbers": [np.float32(1), np.int64(2), np.bool_(0)],
    "a deque": collections.deque([1, 2, 3]),
    "records of numbers": [(1, 0.5), (2, 0.25), (3, None)],
    "records with labels": [(("train", "test")[i % 2], i, 0.5) for i in range(20)],
    "times": [(NOW, 0.5), (NOW, 0.25)],
    "numbers under steps": {10: 0.5, 20: 0.25, 30: 0.125},
    "records under times": {0.5: (1, 2), 1.5: (3, 4)},
    "numbers under numbered names": {"trial-9": 0.5, "trial-10": 0.25},
    "lines of text": io.StringIO("epoch 1 loss 0.5\n"),
    "machine numbers": array.array("d", [1.0, 2.0]),
    "an array of numbers": np.zeros(8),
    "a tensor": torch.zeros(8),
    "messages of errors": ["shape mismatch in step 3", "RuntimeError('mat1 and mat2 do not fit')"],
    "lines of a protocol": ["step 12 loss 0.43", "step 13: loss 0.41"],
    "numbers and messages": [0.5, "the loss is not finite", 0.25],
}
TABLES = {
    "texts": ["step 1", "step 2"],
    "labels alone": ["train"] * 20,
    "texts of configurations": ["Config(lr=0.1, wd=0.0, n=3)", "Config(lr=0.2, wd=0.0, n=3)"],
    "messages as keys": {"the loss is not finite": 1},
    "records with names": [(f"model-{i}", i) for i in range(20)],
    "dicts": [{"loss": 0.5}, {"loss": 0.25}],
    "long records": [tuple(range(100)), tuple(range(100))],
    "a set of numbers": {1, 2, 3},
    "names": {"a": 1, "b": 2},
    "hashes in names": {"user-812": 1, "user-77": 2, "user-4004": 3},
    "numbers of several kinds of names": {"train-1": 1, "test-2": 2},
    "hashes": {812: 1, 77: 2, 4004: 3},
    "tuples as keys": {(1, 2): 3, (2, 3): 4},
    "texts under steps": {1: "one", 2: "two"},
    "switches as keys": {False: 1, True: 2},
    "a counter": collections.Counter("ab"),
    "bytes": bytearray(b"abc"),
    "an array of objects": np.array([None, None], object),
    "an array of texts": np.array(["a", "b"]),
}


@pytest.mark.parametrize("what", LOGS)
def test_numbers_in_their_order_are_a_log(what):
    assert gains_log_entries(LOGS[what], 100)


@pytest.mark.parametrize("what", TABLES)
def test_anything_else_is_a_table(what):
    assert not gains_log_entries(TABLES[what], 100)


def test_only_what_is_new_decides():
    assert gains_log_entries(["epoch", "loss", 0.5, 0.25], 2)


def test_a_log_that_gains_much_is_none():
    assert is_log(gains_log_entries=True, bytes_per_run=LOG_BYTES - 1)
    assert not is_log(gains_log_entries=True, bytes_per_run=LOG_BYTES)
    assert not is_log(gains_log_entries=False, bytes_per_run=1)


@pytest.mark.untraced
def test_tensors_in_new_rows_are_kept_by_the_frame():
    table = pd.DataFrame(columns=["name", "vector"])

    def step():
        table.loc[len(table)] = [f"run {len(table)}", torch.ones(50)]

    (leak,) = leaklab.leakcheck(step, runs=24, sites=False, cure=False, namespace={"table": table}).leaks
    assert leak.holder == "table"
