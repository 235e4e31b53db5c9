"""What keeps objects alive for its own sake."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import json
import os
import signal
import sys
import threading
import types
import weakref
from functools import partial

import pytest

from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import build_index
from leaklab.heap.roots import Root, find_roots
from leaklab.heap.running import local_variables, running_frames
from leaklab.heap.shortest_paths import search
from leaklab.runtime.ours import Origin, origin_of
from leaklab.version import PACKAGE_FOLDER


class Thing:
    pass


def root_at(thing, roots):
    found = [root for root in roots if root.address == id(thing)]
    return found[0] if found else None


def is_reached(thing, roots):
    """Tell whether paths from *roots* reach *thing*."""
    objects = gc.get_objects()
    hidden = hidden_edges(objects)
    objects.extend(hidden.extra_objects)
    index = build_index(objects, hidden=hidden.edges)
    objects.clear()
    starts = [(index.vertex_of(root.address), 0) for root in roots]
    tree = search(index, starts, vertex_cost=index.ids * 0)
    return bool(tree.root_of[index.vertex_of(id(thing))] >= 0)


@contextlib.contextmanager
def in_thread(function, name):
    """Run *function* in a thread called *name*; it gets an event to set when it is where it should be looked at."""
    there, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=function, args=(there, leave), name=name)
    thread.start()
    assert there.wait(10)
    try:
        yield thread
    finally:
        leave.set()
        thread.join()


@contextlib.contextmanager
def untraced():
    """Switch a coverage tracer off: the snapshot of locals is left alone while somebody traces."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def test_the_users_variables_are_the_first_root():
    namespace = {"history": []}
    assert find_roots(namespace)[0] == Root(id(namespace), "notebook variable", "", 0)


def test_without_variables_the_first_root_is_not_theirs():
    assert all(root.rank > 0 for root in find_roots(None))


def test_the_namespace_of_a_module_that_is_the_users_stays_the_users():
    main = sys.modules["__main__"].__dict__
    assert root_at(main, find_roots(main)) == Root(id(main), "notebook variable", "", 0)
    assert root_at(main, find_roots({})) == Root(id(main), "module '__main__'", "__main__", 1)


def test_names_that_the_front_end_made_are_told_from_the_users():
    namespace = {"mine": Thing(), "Out": Thing(), "_7": Thing(), "exit": Thing()}
    roots = find_roots(namespace, hidden_names=["Out", "_7", "exit", "gone"])
    assert root_at(namespace["Out"], roots) == Root(id(namespace["Out"]), "notebook history", "Out", 4)
    assert root_at(namespace["_7"], roots).words == "notebook history"
    assert root_at(namespace["exit"], roots) == Root(id(namespace["exit"]), "IPython", "exit", 4)
    assert root_at(namespace["mine"], roots) is None


def test_a_library_is_known_by_its_name_and_ranks_behind_the_users_modules(monkeypatch):
    mine = types.ModuleType("training")
    monkeypatch.setitem(sys.modules, "training", mine)
    roots = find_roots(None)
    assert root_at(json.__dict__, roots) == Root(id(json.__dict__), "module 'json'", "json", 3)
    assert root_at(mine.__dict__, roots) == Root(id(mine.__dict__), "module 'training'", "training", 1)
    assert root_at(sys.__dict__, roots).rank == 3


def test_a_module_without_a_file_belongs_to_its_package(monkeypatch):
    part = types.ModuleType("json.generated")
    monkeypatch.setitem(sys.modules, "json.generated", part)
    assert root_at(part.__dict__, find_roots(None)).rank == 3


@pytest.mark.parametrize(("home", "rank"), [("numpy", 3), ("my_loaders", 1), ("importlib", 1)])
def test_a_module_without_a_file_belongs_to_the_library_that_loads_it(monkeypatch, home, rank):
    written = types.ModuleType("written")
    written.__loader__ = type("Loader", (), {"__module__": f"{home}.loading"})()
    monkeypatch.setitem(sys.modules, "written", written)
    monkeypatch.setitem(sys.modules, "my_loaders", types.ModuleType("my_loaders"))
    assert root_at(written.__dict__, find_roots(None)).rank == rank


def test_a_module_whose_name_is_no_name_is_found_in_sys_modules(monkeypatch):
    odd = types.ModuleType("odd")
    monkeypatch.setitem(sys.modules, "my-plugin", odd)
    assert root_at(odd.__dict__, find_roots(None)).expression == "sys.modules['my-plugin']"


def test_expressions_of_modules_lead_to_them():
    for root in find_roots(None):
        if root.words.startswith("module ") and root.expression.startswith("sys.modules["):
            found = eval(root.expression, {"sys": sys})  # noqa: S307 - our own text
            assert root.address in (id(found), id(getattr(found, "__dict__", None)))


class Hostile:
    def __getattribute__(self, name):
        raise AssertionError

    __eq__ = __bool__ = __hash__ = __getattribute__


def test_what_is_no_module_is_a_root_itself_and_is_not_asked(monkeypatch):
    hostile = Hostile()
    monkeypatch.setitem(sys.modules, "lazy", hostile)
    assert root_at(hostile, find_roots(None)) == Root(id(hostile), "module 'lazy'", "sys.modules['lazy']", 3)


def test_every_address_is_given_once_in_order_of_rank():
    roots = find_roots({})
    ranks = [root.rank for root in roots]
    assert ranks == sorted(ranks)
    assert len({root.address for root in roots}) == len(roots)


def test_a_running_function_is_a_root():
    roots = find_roots(None)
    name = "test_a_running_function_is_a_root"
    assert root_at(sys._getframe(), roots) == Root(id(sys._getframe()), f"running function {name}", "", 2)


def test_what_only_a_local_variable_holds_is_reached():
    thing = Thing()
    assert is_reached(thing, find_roots(None))


def test_a_thread_is_known_by_its_name():
    frames = []

    def prefetch(there, leave):
        frames.append(sys._getframe())
        there.set()
        leave.wait(10)

    with in_thread(prefetch, "loader"):
        assert root_at(frames[0], find_roots(None)) == Root(id(frames[0]), "thread 'loader'", "", 2)
    frames.clear()


def test_a_thread_that_python_did_not_start_has_a_number():
    import _thread

    there, leave = threading.Event(), threading.Event()

    def work():
        there.set()
        leave.wait(10)

    ident = _thread.start_new_thread(work, ())
    try:
        assert there.wait(10)
        assert f"thread {ident}" in {running.thread for running in running_frames()}
    finally:
        leave.set()


def function_in(filename, name="work"):
    """Make a function of the file *filename* that calls what it is given."""
    namespace = {}
    exec(compile(f"def {name}(call):\n    return call()\n", filename, "exec"), namespace)  # noqa: S102
    return namespace[name]


def test_leaklabs_own_functions_and_those_they_call_are_no_roots():
    own = function_in(f"{PACKAGE_FOLDER}/check/pipeline.py", "own")
    library = function_in(json.__file__, "library")
    users = function_in("/home/me/train.py", "users")
    running = users(partial(own, partial(library, running_frames)))
    assert {"users", "own", "library"} & {one.function for one in running} == {"users"}
    running = own(partial(users, partial(library, running_frames)))
    assert {"users", "own", "library"} & {one.function for one in running} == {"users", "library"}


def test_the_functions_of_the_front_end_rank_last():
    import IPython.core.interactiveshell

    front_end = function_in(IPython.core.interactiveshell.__file__, "run_cell")
    roots = front_end(lambda: find_roots(None))
    assert [root.rank for root in roots if root.words == "running function run_cell"] == [4]


def test_the_body_of_a_module_is_no_function():
    namespace = {"running_frames": running_frames}
    exec("found = [one.function for one in running_frames()]", namespace)  # noqa: S102
    assert "<module>" not in namespace["found"]


def test_reading_local_variables_keeps_none_of_them():
    def work():
        thing = Thing()
        watched = weakref.ref(thing)
        names = [name for name, _ in local_variables(sys._getframe())]
        del thing
        return names, watched()

    with untraced():
        assert work() == (["thing", "watched"], None)


def test_reading_local_variables_changes_nothing_that_the_function_sees():
    def work():
        first = 1
        kept = locals()
        kept["extra"] = 2
        local_variables(sys._getframe())
        return first, kept["first"], kept["extra"], len(local_variables(sys._getframe()))

    with untraced():
        first, seen, extra, n_variables = work()
    assert (first, seen, extra) == (1, 1, 2)
    assert n_variables >= 2


def test_the_last_exception_is_a_root(monkeypatch):
    error = ValueError("from a cell")
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    assert root_at(error, find_roots(None)) == Root(id(error), "last exception", "sys.last_value", 4)


def test_an_exception_that_is_being_handled_is_a_root():
    try:
        raise ValueError  # noqa: TRY301
    except ValueError as error:
        found, address = root_at(error, find_roots(None)), id(error)
    assert found == Root(address, "exception being handled", "sys.exc_info()[1]", 4)


def test_the_value_of_a_context_variable_is_reached():
    things = {}
    variable = contextvars.ContextVar("leaklab_test")
    token = variable.set(Thing())
    things["address"] = id(variable.get())
    roots = [root for root in find_roots(None) if root.words == "context variable"]
    try:
        assert is_reached(variable.get(), roots)
    finally:
        variable.reset(token)


def test_a_module_itself_is_a_root_beside_its_namespace():
    assert root_at(json, find_roots(None)) == Root(id(json), "module 'json'", "sys.modules['json']", 3)


def test_a_signal_handler_is_a_root():
    def handler(*_):
        """Do nothing."""

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        expected = Root(id(handler), "signal handler", f"signal.getsignal({int(signal.SIGUSR1)})", 4)
        assert root_at(handler, find_roots(None)) == expected
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_trace_function_is_a_root():
    def profiler(*_):
        """Do nothing."""

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        found = root_at(profiler, find_roots(None))
    finally:
        sys.setprofile(before)
    assert found == Root(id(profiler), "interpreter", "sys.getprofile()", 4)


def test_the_namespace_of_a_type_made_in_c_is_a_root():
    assert root_at(gc.get_referents(vars(int))[0], find_roots(None)).words == "type int"


@pytest.mark.parametrize(
    ("filename", "origin"),
    [
        ("/home/me/train.py", Origin.USER),
        ("<ipython-input-3-abc>", Origin.USER),
        ("/tmp/ipykernel_77/123.py", Origin.USER),  # noqa: S108
        ("<string>", Origin.USER),
        (os.__file__, Origin.LIBRARY),
        (json.__file__, Origin.LIBRARY),
        ("/opt/env/lib/python3.12/site-packages/torch/nn/modules/module.py", Origin.LIBRARY),
        ("/usr/lib/python3/dist-packages/numpy/core/fromnumeric.py", Origin.LIBRARY),
        ("<frozen importlib._bootstrap>", Origin.LIBRARY),
        ("<frozen runpy>", Origin.FRONT_END),
        ("/opt/env/lib/python3.12/site-packages/ipykernel/ipkernel.py", Origin.FRONT_END),
        ("/opt/env/lib/python3.12/site-packages/decorator.py", Origin.FRONT_END),
        (f"{PACKAGE_FOLDER}/magics/leakcheck.py", Origin.LEAKLAB),
        (PACKAGE_FOLDER + "_notes/train.py", Origin.USER),
    ],
)
def test_a_file_tells_whose_code_it_is(filename, origin):
    assert origin_of(filename) is origin


def test_what_pip_has_put_into_a_folder_is_a_librarys(tmp_path, monkeypatch):
    record = tmp_path / "tool-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("tool/__init__.py,sha256=abc,12\ntool/tables.py,sha256=def,34\n_tool.py,sha256=ghi,56\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert origin_of(str(tmp_path / "tool" / "tables.py")) is Origin.LIBRARY
    assert origin_of(str(tmp_path / "_tool.py")) is Origin.LIBRARY
    assert origin_of(str(tmp_path / "train.py")) is Origin.USER  # beside them: ``pip install --target .``
