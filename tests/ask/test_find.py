"""``leaklab.find``: which living objects fit a condition, who holds them, and what a wrong condition is told."""

from __future__ import annotations

import gc
import random
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import leaklab
from leaklab.explain.heaps.found import find_in
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.live_nodes import LiveNodes
from leaklab.heap.shortest_paths import path_to
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.runtime.sizes import shallow_bytes, storages_of

pytestmark = pytest.mark.untraced


class Record:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Hostile:
    """Whoever looks at it with its own methods is told so."""

    def __getattribute__(self, name):
        raise AssertionError(name)

    __eq__ = __hash__ = __repr__ = __len__ = __getattr__ = __getattribute__


def world():
    """Return variables with some hundred objects of every kind that a condition can ask about."""
    rng = random.Random(5)
    dtypes = [torch.float32, torch.float16, torch.int64]
    tensors = [torch.zeros([rng.choice([1, 3, 32]) for _ in range(rng.randint(0, 3))], dtype=rng.choice(dtypes))
               for _ in range(60)]  # fmt: skip
    tensors += [tensors[0].view(-1), torch.zeros(3, requires_grad=True), torch.zeros(2, 3, device="meta")]
    arrays = [np.zeros([rng.choice([200, 300])] * rng.randint(1, 2), rng.choice(["f8", "f4"])) for _ in range(8)]
    records = [Record(one=tensors[i], two=[tensors[i + 1]], three={"a": arrays[i % 8]}) for i in range(0, 50, 2)]
    return {
        "tensors": tensors[20:],
        "records": records,
        "pairs": [(tensors[3], records[0]), {"x": (1, [2])}],
        "hostile": [Hostile()],
        "layer": torch.nn.Linear(3, 32),
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
def small_heap(variables):
    @contextmanager
    def lent():
        objects = objects_of(variables)
        yield objects
        objects.clear()

    with borrow_heap(NO_BIRTHS, variables, heap=lent(), min_data_bytes=1024) as view:
        yield view, LiveNodes(view)


def qualified(kind):
    name = kind.__qualname__.replace("<locals>.", "")
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def facts_of(view: HeapView, vertex):
    """Return the properties of one object, read one by one in the plainest way."""
    thing = view.objects[vertex]
    kind = type(thing)
    facts = {"type": qualified(kind), "module": kind.__module__}
    facts["bytes"] = shallow_bytes(thing)
    if issubclass(kind, torch.Tensor):
        facts |= {"shape": tuple(thing.shape), "dtype": str(thing.dtype)[6:], "device": str(thing.device)}
        facts["requires_grad"] = thing.requires_grad
        facts["bytes"] += sum(size for _key, size in storages_of(thing))
    elif issubclass(kind, np.ndarray):
        facts |= {"shape": thing.shape, "dtype": str(thing.dtype), "device": "cpu"}
    if "shape" in facts:
        facts |= {"ndim": len(facts["shape"]), "numel": int(np.prod(facts["shape"]))}
    path = path_to(view.tree, vertex)
    passes_class = any(issubclass(type(view.objects[each]), type) for each in path[1:])
    facts["held_by"] = path[0] if path and not passes_class else None
    return facts


def exclusive_by_removal(view: HeapView, facts):
    """Add to *facts* what comes back if the object goes: what the roots do not reach without it."""
    index = view.index
    n = index.n_vertices
    roots = view.roots.tolist()
    storages = [(storage.n_bytes, set(storage.users)) for storage in view.storages.by_key.values()]

    def reached(without):
        found, pending = set(), [root for root in roots if root != without]
        while pending:
            vertex = pending.pop()
            if vertex not in found:
                found.add(vertex)
                pending += [held for held in index.referents(vertex).tolist() if held != without]
        return found

    everything = reached(None)
    for vertex in range(n):
        gone = everything - reached(vertex) if vertex in everything else {vertex}
        own = sum(shallow_bytes(view.objects[each]) for each in gone)
        facts[vertex]["exclusive"] = own + sum(size for size, users in storages if users <= gone)


SIGNS = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def random_query(rng, depth=2):
    """Return a condition as text, and the same as a function of the facts of one object."""
    if depth and rng.random() < 0.6:
        parts = [random_query(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        word, join = rng.choice([("and", all), ("or", any)])
        text = f" {word} ".join(f"({text})" for text, _ in parts)
        if rng.random() < 0.3:
            return f"not ({text})", lambda facts: not join(test(facts) for _, test in parts)
        return text, lambda facts: join(test(facts) for _, test in parts)
    name = rng.choice(
        ["bytes", "exclusive", "numel", "ndim", "shape[i]", "shape", "text", "type", "flag", "held", "two"]
    )
    sign = rng.choice(list(SIGNS))
    if name in ("bytes", "exclusive", "numel", "ndim"):
        return random_figure(rng, name, sign)
    if name == "two":
        return f"exclusive {sign} bytes", lambda facts: SIGNS[sign](facts["exclusive"], facts["bytes"])
    if name.startswith("shape"):
        return random_shape(rng, sign) if name == "shape" else random_entry(rng, sign)
    if name == "text":
        prop, value = rng.choice(
            [("dtype", "float32"), ("dtype", "float64"), ("device", "cpu"), ("device", "meta"), ("module", "torch")]
        )
        return f"{prop} != '{value}'", if_known(prop, lambda found: found != value)
    if name == "type":
        wanted = rng.choice(["Tensor", "torch.Tensor", "list", "Record", "numpy.ndarray"])
        if rng.random() < 0.3:
            return "type like 'torch.*'", lambda facts: facts["type"].startswith("torch.")
        return f"type == '{wanted}'", lambda facts: facts["type"] == wanted or facts["type"].endswith(f".{wanted}")
    if name == "flag":
        return "requires_grad", lambda facts: bool(facts.get("requires_grad"))
    variable = rng.choice(["tensors", "records", "pairs"])
    return f"held_by('{variable}')", lambda facts: facts["held_by"] == facts["starts"][variable]


def if_known(name, test):
    return lambda facts: facts.get(name) is not None and test(facts[name])


def random_figure(rng, name, sign):
    units = [("", 1), (" KiB", 1024), (" kB", 1000)] if name in ("bytes", "exclusive") else [("", 1)]
    unit, factor = rng.choice(units)
    figure = rng.choice([0, 1, 2, 3, 32, 48, 100]) if factor == 1 else rng.choice([1, 1.5, 4])
    if rng.random() < 0.2:
        return f"{name} not in ({figure}{unit},)", if_known(name, lambda value: value != figure * factor)
    if rng.random() < 0.3:
        return f"{figure}{unit} {sign} {name}", if_known(name, lambda value: SIGNS[sign](figure * factor, value))
    return f"{name} {sign} {figure}{unit}", if_known(name, lambda value: SIGNS[sign](value, figure * factor))


def random_entry(rng, sign):
    i, figure = rng.choice([0, 1, -1, 2]), rng.choice([1, 3, 32, 200])
    has_entry = lambda shape: -len(shape) <= i < len(shape)  # noqa: E731
    return f"shape[{i}] {sign} {figure}", if_known(
        "shape", lambda shape: has_entry(shape) and SIGNS[sign](shape[i], figure)
    )


def random_shape(rng, sign):
    shape, sign = rng.choice([(), (3,), (32, 3), (1, 1)]), "==" if sign in ("==", "<", "<=") else "!="
    return f"shape {sign} {shape}", if_known("shape", lambda value: SIGNS[sign](value, shape))


def test_200_random_conditions_find_what_a_plain_loop_finds():
    variables = world()
    with small_heap(variables) as (view, heap):
        facts = [facts_of(view, vertex) for vertex in range(len(view.objects))]
        exclusive_by_removal(view, facts)
        starts = {name: view.index.vertex_of(id(value)) for name, value in variables.items()}
        for each in facts:
            each["starts"] = starts
        rng = random.Random(11)
        n_hits = 0
        for _ in range(200):
            text, test = random_query(rng)
            expected = [v for v in range(len(facts)) if not heap.is_foreign[v] and test(facts[v])]
            assert np.flatnonzero(find_in(heap, "", text)).tolist() == expected, text
            n_hits += 0 < len(expected) < len(facts)
        assert n_hits > 100  # most of them tell some from others
        assert len(facts) > 200


def test_in_the_whole_heap_it_finds_what_a_loop_over_the_collectors_list_finds():
    kept = [torch.zeros(7, 11, 13) for _ in range(3)]
    found = leaklab.find(torch.Tensor, "shape == (7, 11, 13)", namespace={"kept": kept})
    expected = {id(each) for each in gc.get_objects() if type(each) is torch.Tensor and each.shape == (7, 11, 13)}
    assert {row.number for row in found.record.rows} == expected == set(map(id, kept))


def test_each_row_names_an_expression_that_evaluates_to_the_object():
    names = {"model": torch.nn.Sequential(torch.nn.Linear(40, 40)), "cache": {"a": [np.zeros(5000)], "b": bytes(9000)}}
    found = leaklab.find(
        where="held_by('model') and bytes > 1 KiB or held_by('cache') and bytes > 1 KiB", namespace=names
    )
    assert sorted(found.holders) == ["cache['a'][0]", "cache['b']", "model[0].weight"]
    assert [id(eval(row.holder, names)) for row in found.record.rows] == [row.number for row in found.record.rows]  # noqa: S307


def test_rows_are_limited_and_all_are_counted():
    base = torch.zeros(1000, 10)
    names = {"kept": [base[10:20] for _ in range(30)]}
    found = leaklab.find("Tensor", "shape == (10, 10) and held_by('kept')", limit=4, namespace=names)
    assert (len(found), len(found.to_frame()), found.n_found) == (30, 4, 30)
    assert "30 of " in str(found)
    assert "and 26 more" in str(found)
    # They share one storage, which counts for each of them, and once in the whole.
    assert all(row.n_bytes > 40_000 for row in found.record.rows)
    assert 40_000 < found.n_bytes < 50_000


def test_an_array_among_the_variables_of_a_module_is_the_users(monkeypatch):
    monkeypatch.setitem(globals(), "table_of_mine", np.zeros((317, 211)))
    found = leaklab.find("numpy.ndarray", "shape == (317, 211)", namespace=globals())
    assert [row.holder for row in found.record.rows] == ["table_of_mine"]


def test_what_was_made_since_the_last_collection_is_young():
    old = [[]]
    gc.collect()
    gc.disable()  # the first question of a process loads modules, and then the collector may run before it is asked
    try:
        young = [[]]
        names = {"old": old, "young": young}
        found = leaklab.find(list, "held_by('young') and age == 'young'", namespace=names)
        from_before = leaklab.find(list, "held_by('old') and age == 'young'", namespace=names)
    finally:
        gc.enable()
    assert sorted(found.holders) == ["young", "young[0]"]
    assert from_before.n_found == 0


def test_no_code_of_the_user_is_run_and_nothing_is_kept():
    names = {"hostile": [Hostile() for _ in range(3)]}
    found = leaklab.find(Hostile, namespace=names)
    assert sorted(found.holders) == ["hostile[0]", "hostile[1]", "hostile[2]"]
    gone = weakref.ref(names["hostile"][0])
    del names
    assert gone() is None
    assert found.n_found == 3


def test_device_and_dtype_are_written_as_people_write_them():
    with small_heap(world()) as (_view, heap):
        short, long = (find_in(heap, "", f"dtype == '{name}'") for name in ("float32", "torch.float32"))
        assert short.any()
        assert (short == long).all()
        assert find_in(heap, "", "device in ('cuda', 'meta')").sum() == 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("dtyp == 'x'", "character 1: no property is called dtyp; did you mean dtype? known are: type, module, "),
        ("bytes > 1 MB and", "character 17: a property or a value is missing before the end"),
        ("bytes > 'a'", "character 9: bytes is compared with a number, not with 'a'"),
        ("bytes > 3 MiBs", "character 11: no unit is called MiBs; did you mean MiB?"),
        ("held_by('tensros')", "character 1: no variable and no module is called tensros; did you mean tensors?"),
        ("held_by(x)", "character 9: held_by asks for the name of a variable in quotes: held_by('history')"),
        ("shape == 3", "character 10: shape is compared with whole numbers in brackets, such as"),
        ("1 == 2", "character 1: this compares two values, not a property"),
        ("bytes", "character 1: bytes is a number, not a condition; compare it: bytes > 1 MiB"),
        ("dtype < 'a'", "character 1: dtype is a text, to which '<' does not apply"),
        ("device == 'cpu' device", "character 17: 'device' follows a complete condition; join two"),
        ("bytes > 1; x", "character 10: ';' has no meaning in a condition; put texts in quotes"),
        ("shape[0 == 1", "character 9: ']' is missing before '=='"),
        ("(bytes > 3", "character 11: ')' is missing before the end"),
        ("type in ('a', 3)", "character 9: type is compared with some texts in brackets, not with ('a', 3)"),
        ("bytes[0] > 3", "character 1: bytes has no entries; only shape has: shape[0] == 32"),
        ("__import__('os')", "character 1: no property is called __import__"),
        ("(" * 60 + "bytes > 1" + ")" * 60, "conditions are nested deeper than 50"),
        ("x" * 5000, "where has 5,000 characters; at most 4,000 are allowed"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_in_one_sentence(where, message):
    with small_heap(world()) as (_view, heap), pytest.raises(leaklab.QueryError) as raised:
        find_in(heap, "", where)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numbers_of_any_size_are_compared():
    variables = world()
    with small_heap(variables) as (_view, heap):
        assert not find_in(heap, "", f"bytes > {10**300} or numel < -{10**300}").any()
        assert find_in(heap, "", f"bytes < 1e999 and bytes not in ({10**300},)").sum() == heap.n_objects


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"type": 3}, TypeError, "type must be a class or the name of one, not int"),
        ({"where": 3}, TypeError, "where must be a str such as"),
        ({"limit": -1}, ValueError, "limit must be 0 or more, not -1"),
        ({"limit": "a"}, TypeError, "limit must be a whole number of rows, not str"),
        ({"namespace": 1}, TypeError, "namespace must be a dict of variables"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        leaklab.find(**arguments)


def test_an_answer_is_saved_and_read_back(tmp_path):
    found = leaklab.find("Tensor", "shape == (3, 31)", namespace={"kept": [torch.zeros(3, 31)]})
    found.save(tmp_path / "found.json")
    assert leaklab.load(tmp_path / "found.json").record == found.record
    assert "kept[0]" in found.to_html()
    found.save(tmp_path / "found.csv")
    assert (tmp_path / "found.csv").read_text().startswith("type,holder,bytes,exclusive_bytes,shape")
