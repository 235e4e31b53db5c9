"""Which leak comes first, and what becomes a note instead."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from samples import history_leak

from leaklab.check.ranking import (
    apart_from_logs,
    counts_by_bytes,
    drop_covered_bounds,
    drop_noise,
    is_bookkeeping,
    is_worth_showing,
    library_note,
    ranked,
)
from leaklab.model import RootPath, Status, Step


def leak(n_bytes, root="notebook variable", *, holder="kept", unit="objects", cause="tensor-kept", step="kept"):
    path = RootPath(root, (Step(step, "list", "", Status.EXPECTED),))
    return replace(
        history_leak(), bytes_per_run=float(n_bytes), path=path, holder=holder, unit=unit, cause=cause,
        what="list", fingerprint=f"{n_bytes}{holder}",
    )  # fmt: skip


def test_the_largest_leak_comes_first():
    leaks = [leak(1_000), leak(1_000_000), leak(50_000)]
    assert [found.bytes_per_run for found in ranked(leaks)] == [1_000_000, 50_000, 1_000]


def test_of_two_leaks_of_about_one_size_the_users_comes_first():
    theirs, users = leak(1_200, "module 'torch'", holder="torch.x"), leak(1_000, "module '__main__'")
    assert ranked([theirs, users]) == (users, theirs)


def test_a_much_larger_leak_of_a_library_comes_before_the_users():
    theirs, users = leak(10_000, "module 'torch'", holder="torch.x"), leak(1_000)
    assert ranked([users, theirs]) == (theirs, users)


@pytest.mark.parametrize("cause", ["callback-registry", "descriptor-left", "hook-left", "thread-or-worker-kept"])
def test_what_costs_more_than_its_bytes_is_not_measured_by_them(cause):
    assert counts_by_bytes(leak(8))
    assert not counts_by_bytes(leak(8, cause=cause))
    assert not counts_by_bytes(leak(8, unit="file descriptors"))
    assert not counts_by_bytes(leak(0)), "of no known size"


def test_the_order_does_not_depend_on_the_order_they_were_found_in():
    leaks = [leak(size, root, holder=str(i)) for i, (size, root) in enumerate(
        [(0, "notebook variable"), (10, "module 'a'"), (11, "notebook variable"), (10, "notebook variable"), (0, "x")]
    )]  # fmt: skip
    expected = ranked(leaks)
    for seed in range(20):
        random.Random(seed).shuffle(leaks)
        assert ranked(leaks) == expected


def test_leaks_without_bytes_come_last():
    assert [found.bytes_per_run for found in ranked([leak(0), leak(8)])] == [8, 0]
    assert ranked([]) == ()


def native(n_bytes):
    """Make a leak of native memory that nothing in Python explains."""
    return replace(leak(n_bytes, unit="bytes", cause="native"), path=RootPath("nothing", ()), what="native memory")


@pytest.mark.parametrize(
    ("n_bytes", "is_first"),
    [(100_000, False), (150_000, False), (250_000, False), (251_000, True), (10_000_000, True)],
)
def test_native_memory_that_nothing_explains_is_first_only_where_doubt_about_the_others_cannot_make_it_smaller(
    n_bytes, is_first
):
    larger, smaller = leak(100_000), leak(1_000, "module 'torch'", holder="torch.x")
    rest = native(n_bytes)
    expected = (rest, larger, smaller) if is_first else (larger, smaller, rest)
    assert ranked([larger, rest, smaller]) == expected


def test_native_memory_alone_is_first_and_beside_leaks_without_bytes_too():
    assert ranked([native(5)]) == (native(5),)
    assert ranked([leak(0), native(5)]) == (native(5), leak(0))


def test_a_small_leak_is_no_consequence_of_native_memory_that_nothing_explains():
    holder_of_a_c_object = leak(48)
    leaks = [native(268_000), holder_of_a_c_object]
    assert drop_noise(leaks) == (leaks, [])


@pytest.mark.parametrize(
    "own",
    [
        replace(leak(300, cause="notebook-history"), unit="entries"),
        leak(300, "module 'linecache'"),
        leak(300, step="get_ipython().user_ns_hidden"),
        replace(
            leak(300),
            path=RootPath("x", (Step("", "IPython.core.history.HistoryManager", "", Status.EXPECTED),)),
        ),
    ],
)
def test_what_the_notebook_notes_for_itself_is_a_note(own):
    assert is_bookkeeping(own)
    rest, (note,) = drop_noise([own])
    assert rest == []
    assert note == "the notebook's own bookkeeping grows by 300 B per run in kept"


@pytest.mark.parametrize(
    ("key", "is_notes"),
    [
        ("['/tmp/ipykernel_31/1234567.py']", True),
        ("['<ipython-input-3-8f2>']", True),
        ("[17]", True),
        ("['<loader 551>']", False),
    ],
)
def test_the_source_of_what_a_program_generates_is_not_the_notebooks(key, is_notes):
    steps = (Step("linecache.cache", "dict", "", Status.EXPECTED), Step(key, "tuple", "", Status.LEAKED))
    filed = replace(leak(1_500), path=RootPath("module 'linecache'", steps))
    assert is_bookkeeping(filed) is is_notes


def of_dask(*steps):
    worker = ("local 'worker' of watch_stop_q()", "distributed.worker.Worker")
    references = (worker, *steps)
    path = RootPath(
        "thread 'watch'", tuple(Step(reference, kind, "", Status.EXPECTED) for reference, kind in references)
    )
    return replace(leak(650), path=path)


@pytest.mark.parametrize(
    "steps",
    [
        ((".profile_keys_history", "collections.deque"), ("[34]", "tuple"), ("['children']", "dict")),
        ((".monitor", "distributed.system_monitor.SystemMonitor"), (".quantities", "dict")),
        ((".__dict__", "dict"), ("['children']", "dict"), ("['job;/home/user/train.py;12']", "dict")),
    ],
    ids=["samples", "levels", "a sample that is being made"],
)
def test_what_a_worker_of_dask_notes_of_its_work_is_a_note(steps):
    rest, (note,) = drop_noise([of_dask(*steps)])
    assert rest == []
    assert note == "Dask's own bookkeeping grows by 650 B per run in kept"


def test_what_the_user_keeps_on_a_worker_of_dask_is_a_leak():
    kept = of_dask((".my_losses", "list"), ("['children']", "dict"), ("['left']", "dict"))
    assert drop_noise([kept]) == ([kept], [])


def test_the_tables_in_which_a_notebook_notes_a_cell_are_one_leak_of_the_history():
    history = replace(leak(58_000, cause="notebook-history", holder="In"), unit="entries", holders=("In",))
    lines = replace(leak(59_000, "module 'linecache'", holder="linecache.cache"), holders=())
    others = leak(20_000)
    (first, second), notes = drop_noise([lines, history, others])
    assert (first.holder, first.bytes_per_run, first.holders) == ("In", 117_000, ("In", "linecache.cache"))
    assert "kept in 2 tables" in first.reason
    assert (second, notes) == (others, [])


def test_a_large_history_is_a_leak():
    large = leak(5_000, cause="notebook-history")
    assert drop_noise([large]) == ([large], [])


@pytest.mark.parametrize("n_bytes", [0, 1, 100, 4_096])
def test_a_place_beside_a_large_one_is_a_leak_however_small(n_bytes):
    leaks = [leak(10_000_000), leak(n_bytes, holder="registry")]
    assert drop_noise(leaks) == (leaks, [])


def test_a_place_that_was_proven_to_end_with_another_is_a_note():
    large, small = leak(100_000), leak(100, holder="registry")
    rest, (note,) = drop_noise([large, small], {small.fingerprint: large})
    assert rest == [large]
    assert note == (
        "1 small place goes away with a leak listed above, as the references show: list in registry, 100 B per run "
        "(with kept)"
    )


def test_many_places_that_end_with_another_are_counted_and_three_are_named():
    large, small = leak(100_000), [leak(100 + i, holder=f"registry{i}") for i in range(5)]
    rest, (note,) = drop_noise([large, *small], {one.fingerprint: large for one in small})
    assert rest == [large]
    assert note.startswith("5 small places go away with a leak listed above")
    assert note.endswith("list in registry2, 102 B per run (with kept); and 2 more")


def test_logs_are_told_apart_from_leaks_the_fastest_first():
    slow, fast = replace(leak(30, unit="entries"), fingerprint="slow"), replace(leak(60), fingerprint="fast")
    table = replace(leak(90, unit="entries"), fingerprint="table")
    assert apart_from_logs([slow, table, fast], {"slow", "fast"}) == ([table], (fast, slow))


def test_what_keeps_descriptors_is_no_log():
    files = replace(leak(30, unit="entries"), also_causes=("open-descriptors",))
    assert apart_from_logs([files], {files.fingerprint}) == ([files], ())


def test_a_library_table_is_named_with_what_it_grows_by():
    assert library_note(leak(200, holder="torch.x")) == ("torch.x, a library's own table, grows by list, 200 B per run")


@pytest.mark.parametrize(
    ("root", "n_bytes", "expected"),
    [
        ("notebook variable", 0, True),
        ("running function fit()", 0, True),
        ("module 'torch'", 100, False),
        ("module 'torch'", 5_000, True),
    ],
)
def test_what_is_bounded_matters_if_it_is_the_users_or_large(root, n_bytes, expected):
    assert is_worth_showing(leak(n_bytes, root), rate=1.0) is expected


def place(*references, leaked=(), n_bytes=10, root="notebook variable", unit="objects"):
    """Make a growing place with a path of *references*, of which those at the positions *leaked* leak."""
    steps = tuple(
        Step(name, "dict", "", Status.LEAKED if at in leaked else Status.EXPECTED) for at, name in enumerate(references)
    )
    return replace(leak(n_bytes, unit=unit), path=RootPath(root, steps), holder="".join(references), reason="stopped")


SESSIONS = ("server", ".sessions")


def test_what_stopped_below_the_collection_that_leaks_is_not_listed():
    leaky = place(*SESSIONS, "['u9']", leaked=[2])
    below = [place(*SESSIONS, "['u1']", "['past']", leaked=[3]), place(*SESSIONS, "['u2']"), place(*SESSIONS)]
    beside = [place("server", ".log"), place("other", ".sessions"), place(*SESSIONS, root="module 'x'")]
    assert drop_covered_bounds([*below, *beside], [leaky]) == tuple(beside)


def test_what_stopped_in_another_attribute_or_variable_than_the_one_that_leaks_is_listed():
    attribute, variable = place("net", ".last", leaked=[1]), place("kept", leaked=[0])
    assert drop_covered_bounds([place("net", ".first")], [attribute]) == (place("net", ".first"),)
    assert drop_covered_bounds([place("net", ".last", ".x")], [attribute]) == ()
    assert drop_covered_bounds([place("keep")], [variable]) == (place("keep"),)


def test_what_grows_in_place_hides_what_stopped_within():
    log = place("log", unit="entries")
    assert drop_covered_bounds([place("log", "[0]")], [log]) == ()


def test_places_that_differ_in_keys_only_are_one_line_of_the_largest():
    found = drop_covered_bounds([place("warm", f"['k{i}']", "[0]", leaked=[1], n_bytes=10 + i) for i in range(8)], [])
    assert [(one.bytes_per_run, one.reason) for one in found] == [(17, "stopped; 7 other places of this shape too")]
    pair = drop_covered_bounds([place("a", "[0]"), place("a", "[1]")], [])
    assert [one.reason for one in pair] == ["stopped; 1 other place of this shape too"]


def test_places_of_other_attributes_or_units_have_a_line_each():
    found = [place("a", ".x"), place("a", ".y"), place("a", ".x", unit="entries"), place("b", ".x")]
    assert drop_covered_bounds(found, []) == tuple(found)


def test_native_memory_neither_hides_places_nor_joins_them():
    native = [replace(place(), fingerprint=name) for name in "ab"]
    assert drop_covered_bounds(native, [place()]) == tuple(native)
