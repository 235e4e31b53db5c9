"""Naming the references between live objects."""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
import weakref

import pytest
from reference_builders import BUILDERS, SlottedChild, Thing, Untouched, context, finished_frame, function, generator

from leaklab.heap.names import MAX_NAMES, name_references
from leaklab.heap.names.reference import Reference, by_key, c_descriptor

ROUGH_NAMES = {
    # builder: references that have no better name, and why that is all there is to say
    "future": {"internals of the future"},  # 3.11: a second list of callbacks
    "lru cache": {"internals of lru_cache"},  # marker object and types, never the user's
    "lru cache without limit": {"internals of lru_cache"},
    "text buffer": {"internals of the file object"},  # 3.12: the text of a line's end
    "text file": {"internals of the file object"},  # encoder, decoder: not reachable from Python
    "asynchronous generator": {"temporary value of an asynchronous generator"},  # 3.11: where a tracer has looked
    "delegating generator": {"temporary value of a generator"},  # 3.10: exception state
    "handling generator": {"temporary value of a generator"},  # 3.10: type and traceback beside the exception
}
FALLBACKS = ("reference inside", "internals of", "temporary value")


def evaluate(holder, suffix):
    return eval(f"holder{suffix}", {"holder": holder})  # noqa: S307 - what leaklab itself has written


def texts(holder, child):
    return [reference.text for reference in name_references(holder, child)]


@pytest.mark.parametrize("builder", BUILDERS)
def test_every_reference_the_collector_reports_has_a_name_of_its_own(builder):
    holder = BUILDERS[builder]()
    rough = set()
    for child in gc.get_referents(holder):
        names = name_references(holder, child)
        assert names, f"{builder} -> {type(child)} has no name"
        rough.update(name.text for name in names if name.text.startswith(FALLBACKS))
    assert rough <= ROUGH_NAMES.get(builder, set())


@pytest.mark.parametrize("builder", BUILDERS)
def test_every_suffix_evaluates_to_the_child(builder):
    holder = BUILDERS[builder]()
    for child in gc.get_referents(holder):
        for name in name_references(holder, child):
            if name.suffix is not None:
                assert evaluate(holder, name.suffix) is child, name


GOLDEN = [
    ({"loss": 0}, "['loss']", "['loss']", "['loss']", "key"),
    ({("a", 12): 0}, "[('a', 12)]", "[('a', 12)]", "[('a', *)]", "key"),
    ({7: 0}, "[7]", "[7]", "[*]", "key"),
    ({"step_12": 0}, "['step_12']", "['step_12']", "['step_#']", "key"),
    ({b"raw": 0, None: 1}, "[b'raw']", "[b'raw']", "[b'raw']", "key"),
    ({"it's": 0}, '["it\'s"]', '["it\'s"]', '["it\'s"]', "key"),
]


@pytest.mark.parametrize(("keys", "text", "suffix", "stable", "kind"), GOLDEN)
def test_an_entry_is_named_by_its_plain_key(keys, text, suffix, stable, kind):
    child = []
    holder = {key: [child, "another"][value] for key, value in keys.items()}
    assert name_references(holder, child) == [Reference(text, suffix, stable, kind)]


def test_a_key_that_is_an_object_is_named_by_its_type_and_has_no_python():
    child, key = [], Thing()
    expected = Reference("[<reference_builders.Thing>]", None, "[<reference_builders.Thing>]", "key")
    assert name_references({key: child}, child) == [expected]
    assert texts({key: child}, key) == ["key <reference_builders.Thing>"]
    assert texts({(key, 1): child}, child) == ["[(<reference_builders.Thing>, 1)]"]


def test_a_long_key_is_shortened_and_a_very_long_one_has_no_python():
    child = []
    (long_key,) = name_references({"k" * 100: child}, child)
    assert long_key.text == "['" + "k" * 60 + "…']"
    assert long_key.suffix == f"[{'k' * 100!r}]"
    (very_long_key,) = name_references({"k" * 1000: child}, child)
    assert very_long_key.suffix is None
    assert name_references({10**5000: child}, child)[0].suffix is None


def test_a_number_without_a_literal_has_no_python():
    child = []
    assert name_references({float("nan"): child}, child)[0].suffix is None
    assert name_references({float("inf"): child}, child)[0].suffix is None


def test_public_names_come_before_underscored_ones_and_objects():
    child = []
    assert texts({Thing(): child, "_": child, "_12": child, "loss": child}, child) == [
        "['loss']",
        "['_']",
        "['_12']",
        "[<reference_builders.Thing>]",
    ]


def test_a_value_that_is_also_a_key_is_named_as_value_first():
    child = (1, 2)
    assert texts({child: child}, child) == ["[(1, 2)]", "key (1, 2)"]


def test_every_position_in_a_list_is_named_up_to_a_limit():
    child = []
    assert texts([child, [], child], child) == ["[0]", "[2]"]
    assert len(name_references([child] * 1000, child)) == MAX_NAMES


def test_positions_are_not_stable_and_attributes_are():
    child = []
    assert name_references([child], child)[0].stable == "[*]"
    assert name_references(types.SimpleNamespace(layer12=child), child)[0].stable == ".layer12"


def test_an_object_that_is_not_held_has_no_name():
    assert name_references([[1]], []) == []
    assert name_references(Thing(), []) == []


def test_a_slot_of_a_private_name_is_written_as_python_keeps_it():
    holder = SlottedChild()
    assert [texts(holder, child) for child in ([],)] == [[]]
    private, public, extra = holder._Slotted__private, holder.public, holder.extra
    assert name_references(holder, private) == [
        Reference("._Slotted__private", "._Slotted__private", "._Slotted__private", "slot")
    ]
    assert texts(holder, public) == [".public"]
    assert texts(holder, extra) == [".extra"]


def test_a_slot_hidden_by_a_subclass_has_no_python():
    class Base:
        __slots__ = ("value",)

    class Hiding(Base):
        value = property(lambda self: "something else")

    holder, child = Hiding(), []
    Base.value.__set__(holder, child)
    assert name_references(holder, child) == [Reference(".value", None, ".value", "slot")]


def test_an_attribute_hidden_by_a_property_is_read_from_the_dict():
    class Hiding:
        value = property(lambda self: "something else")

    holder, child = Hiding(), []
    vars(holder)["value"] = child
    (name,) = name_references(holder, child)
    assert name.suffix == ".__dict__['value']"
    assert evaluate(holder, name.suffix) is child


@pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 12)), reason="only these leave a dict when it is read")
def test_naming_an_attribute_that_methods_mention_makes_no_dict():
    def dicts_of(holder):
        return [each for each in gc.get_referents(holder) if type(each) is dict]

    holder = Untouched()
    assert texts(holder, holder.history) == [".history"]
    assert texts(holder, holder.config) == [".config"]
    assert dicts_of(holder) == [holder.config]
    assert vars(holder) in dicts_of(holder)  # so reading __dict__ would have been seen


def test_a_closure_is_named_step_by_step():
    holder = function()
    cells = holder.__closure__
    assert texts(holder, cells) == [".__closure__"]
    assert texts(cells, cells[1]) == ["[1]"]
    assert texts(cells[1], cells[1].cell_contents) == [".cell_contents"]


def test_locals_are_named_with_their_function():
    holder = generator()
    frame_locals = dict(holder.gi_frame.f_locals)
    assert name_references(holder, frame_locals["local"]) == [
        Reference(
            "local 'local' of produce()", ".gi_frame.f_locals['local']", "local 'local' of produce()", "frame-local"
        )
    ]
    frame = finished_frame()
    child = frame.f_locals["local"]
    assert texts(frame, child) == ["local 'local' of fail()"]


@pytest.mark.untraced
def test_naming_locals_keeps_no_deleted_variable_alive():
    def produce():
        local, other = Thing(), Thing()
        yield local, other
        del local
        yield other

    suspended = produce()
    first, other = next(suspended)
    watch = weakref.ref(first)
    assert texts(suspended, other) == ["local 'other' of produce()"]
    del first
    next(suspended)
    assert watch() is None


def test_a_snapshot_of_locals_that_the_user_holds_is_left_alone():
    def produce():
        local = Thing()
        snapshot = locals()
        yield local, snapshot

    suspended = produce()
    local, snapshot = next(suspended)
    assert name_references(suspended, local)
    assert snapshot["local"] is local


def test_a_local_of_a_running_frame_is_found_though_the_collector_does_not_report_it():
    child = []
    frame = sys._getframe()
    assert not any(each is child for each in gc.get_referents(frame)) or sys.version_info < (3, 11)
    words = "local 'child' of test_a_local_of_a_running_frame_is_found_though_the_collector_does_not_report_it()"
    assert words in texts(frame, child)


def test_a_callback_is_told_from_its_referent():
    thing, callback = Thing(), lambda dead: None
    assert name_references(weakref.ref(thing, callback), callback) == [
        Reference("weakref callback", ".__callback__", "weakref callback", "callback")
    ]
    assert texts(weakref.proxy(thing, callback), callback) == ["weakref callback"]
    assert texts(weakref.ref(thing, callback), thing) == []


def test_a_cached_result_is_told_from_its_arguments():
    @functools.lru_cache(maxsize=4)
    def compute(argument):
        return [argument]

    result = compute((1, 2))
    (arguments,) = (each for each in gc.get_referents(compute) if each == ((1, 2),))
    assert texts(compute, result) == ["cached result"]
    assert texts(compute, arguments) == ["arguments of a cached call"]
    assert texts(compute, compute.__wrapped__) == [".__wrapped__"]


def test_a_value_of_a_context_variable_is_named_by_the_variable():
    made = context(1)
    (mapping,) = gc.get_referents(made)
    (node,) = gc.get_referents(mapping)
    ((variable, value),) = made.items()
    assert texts(node, value) == ["value of context variable 'variable0'"]
    assert texts(node, variable) == ["context variable 'variable0'"]


def test_a_field_of_a_named_tuple_is_an_attribute():
    pair = collections.namedtuple("pair", "left right")([1], [2])  # noqa: PYI024
    assert texts(pair, pair.right) == [".right"]


def test_a_mapping_with_items_of_its_own_is_read_around_them():
    class Loud(dict):
        def __getitem__(self, key):
            raise AssertionError

    child = []
    (name,) = name_references(Loud(entry=child), child)
    assert (name.text, name.suffix) == ("['entry']", ".get('entry')")

    class LoudList(list):
        def __getitem__(self, index):
            raise AssertionError

    (name,) = name_references(LoudList([child]), child)
    assert (name.text, name.suffix) == ("[0]", None)


def test_an_entry_of_a_class_is_held_by_its_namespace_only():
    maker, attribute = classmethod(function()), []

    class Maker(type):
        def mention(cls):
            return cls.made, cls.construct

    class Made(metaclass=Maker):
        made = attribute
        construct = maker

    assert name_references(Made, attribute) == []
    assert name_references(Made, maker) == []


def test_the_namespace_of_a_class_has_no_python():
    holder = type("Made", (), {"plain": [1], "maker": classmethod(function())})
    namespace = gc.get_referents(vars(holder))[0]
    assert name_references(holder, namespace) == [Reference(".__dict__", None, ".__dict__", "attribute")]


class Counting(type):
    """A metaclass that counts every attempt to run code of its classes."""

    calls: list[str] = []

    def __getattribute__(cls, name):
        Counting.calls.append(f"metaclass {name}")
        return super().__getattribute__(name)

    def __instancecheck__(cls, instance):
        Counting.calls.append("instancecheck")
        return True

    def __eq__(cls, other):
        Counting.calls.append("metaclass eq")
        return True

    __hash__ = type.__hash__


def counted(name):
    def method(self, *args, **kwargs):
        Counting.calls.append(name)
        raise AssertionError(name)

    return method


LOUD_NAMES = [
    *("__getattr__", "__getattribute__", "__eq__", "__ne__", "__hash__", "__len__", "__bool__", "__iter__"),
    *("__contains__", "__getitem__", "__repr__", "__str__", "__format__", "__dir__", "__reduce_ex__", "__sizeof__"),
    *("__get__", "__set__", "__call__", "__instancecheck__", "__index__"),
]


def loud_namespace():
    return {name: counted(name) for name in LOUD_NAMES} | {
        "__class__": property(counted("__class__")),
        "__dict__": property(counted("__dict__")),
        "history": property(counted("history")),
    }


LOUD_BASES = [
    (object,),
    (dict,),
    (list,),
    (tuple,),
    (set,),
    (collections.deque,),
    (BaseException,),
    (collections.OrderedDict,),
]


@pytest.mark.parametrize("bases", LOUD_BASES)
def test_no_code_of_a_hostile_class_is_run_in_either_role(bases):
    plain = type("Plain", bases, {"__slots__": ("slot", "__dict__")} if object in bases else {})
    kind = Counting("Hostile", (plain,), loud_namespace())
    child, holder = plain.__new__(kind), plain.__new__(kind)
    c_descriptor(plain, "__dict__").__get__(holder)["attribute"] = child
    if list in bases:
        list.append(holder, child)
    if object in bases:
        plain.__dict__["slot"].__set__(holder, child)
    containers = [[child], (child,), {"a": child}, types.SimpleNamespace(a=child), types.CellType(child)]
    Counting.calls.clear()
    names = [name_references(holder, inner) for inner in [child, kind, *gc.get_referents(holder)]]
    names += [name_references(container, child) for container in containers]
    assert Counting.calls == []
    assert all(names)
    named = {name.text for each in names for name in each}
    assert named & {".attribute", ".__dict__", "[0]", ".slot"}


def test_a_hostile_key_is_neither_hashed_nor_printed():
    kind = Counting("Hostile", (), {**loud_namespace(), "__hash__": object.__hash__})
    key, child = kind(), []
    holder = {key: child}
    Counting.calls.clear()
    assert [name.suffix for name in name_references(holder, child)] == [None]
    assert [name.suffix for name in name_references(holder, key)] == [None]
    assert Counting.calls == []


def test_a_hostile_class_attribute_is_not_bound():
    kind = Counting("Hostile", (), loud_namespace())

    class Holder:
        binding = kind()

        def method(self):
            return self.binding, self.other

    hiding = type("Hiding", (Holder,), {"__dict__": kind(), "__getitem__": kind(), "__class__": kind()})
    holder, child = hiding(), []
    holder.other = child
    Counting.calls.clear()
    assert texts(holder, child) == [".other"]
    assert Counting.calls == []


def test_naming_inside_a_thread_local_does_not_run_its_init():
    import threading

    calls = []

    class Local(threading.local):
        def __init__(self):
            calls.append(threading.current_thread().name)

    holder = Local()
    thread = threading.Thread(target=name_references, args=(holder, []), name="other")
    thread.start()
    thread.join()
    assert calls == ["MainThread"]


def test_the_values_of_a_thread_are_named_alike_on_all_pythons():
    """The key is a weak reference up to Python 3.12, then what that refers to; fingerprints have the older name."""
    import threading

    holder = threading.local()
    holder.seen = []
    table = next(one for one in gc.get_referents(holder) if type(one) is dict)
    (of_thread,) = table.values()
    (reference,) = name_references(table, of_thread)
    assert (reference.text, reference.stable) == ("[<thread>]", "[<weakref.ReferenceType>]")
    key = next(iter(table))
    dummy = key() if type(key) is weakref.ref else key
    assert (by_key(dummy, None).text, by_key(dummy, None).stable) == (reference.text, reference.stable)
    assert by_key(weakref.ref(Counting), None).text == "[<weakref.ReferenceType>]"


def test_arrays_of_objects_are_named_by_their_indices():
    np = pytest.importorskip("numpy")
    child = []
    holder = np.empty((2, 3), dtype=object)
    holder[1, 2] = child
    assert name_references(holder, child) == [Reference("[1, 2]", "[1, 2]", "[*, *]", "hidden")]
    assert holder[1, 2] is child
    single = np.empty((), dtype=object)
    single[()] = child
    assert texts(single, child) == ["[()]"]
    numbers = np.zeros(4)
    assert name_references(numbers[1:], numbers) == [Reference(".base", ".base", ".base", "hidden")]
    assert name_references(numbers, child) == []
