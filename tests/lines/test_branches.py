"""Which branches that could end the growth of a container no run has taken: small programs, truth first."""

from __future__ import annotations

import itertools
import sys
import textwrap
from typing import Any

import pytest

from leaklab.lines import branches
from leaklab.lines.branches import BranchWatch, Names
from leaklab.lines.open_branches import MOST_ASKED, OpenBranches
from leaklab.measure.cheap_counts import native_heap_bytes

pytestmark = pytest.mark.skipif(not branches.HAS_POSITIONS, reason="instructions have no columns before Python 3.11")
_FILES = itertools.count()


def open_branch(tmp_path, program, runs=6, *, name="kept", what="branch"):
    """Run ``run()`` of *program* so often; return the words of the open branch for the container *name*, or None.

    *what* is the attribute of the reading that is asked for.
    """
    file = tmp_path / f"program_{next(_FILES)}.py"
    file.write_text(textwrap.dedent(program))
    variables = {}
    exec(compile(file.read_text(), str(file), "exec"), variables)  # noqa: S102 - these programs are ours
    watch = BranchWatch(lambda filename: filename == str(file))
    for _ in range(runs):
        with watch:
            variables["run"]()
    names = Names(frozenset({name}), frozenset({name}))
    found = getattr(OpenBranches(watch).of(names), what)
    return None if found is None else found.words


GOES_ON = {
    "nothing in the way": """
        kept = []
        def run():
            kept.append(1)
    """,
    "a flag that every call leaves as it is": """
        kept = []
        def add(flush=False):
            kept.append(1)
            if flush:
                kept.clear()
        def run():
            add()
            add(False)
    """,
    "what only sounds as if it dropped something": """
        class Stream(list):
            def flush(self):
                return len(self)
        kept, lines, count = Stream(), [], [0]
        def emit(line):
            kept.append(line)
            kept.flush()
        def run():
            emit(1)
            count[0] += 1
            if count[0] > 1000:
                emit(2)
    """,
    **{
        f"what comes now and then, asked for by {name}": f"""
        import types
        kept, count, state = [], [0], types.SimpleNamespace(done=False)
        def is_done():
            return count[0] % 3 == 0
        def run():
            for _ in range(4):
                count[0] += 1
                done = state.done = is_done()
                late = count[0] % 4 == 0
                if {test}:
                    kept.append(1)
                    count[0] += 0
    """
        for name, test in [
            ("a name", "done"),
            ("an attribute", "state.done"),
            ("a call", "is_done()"),
            ("its contrary", "not done"),
            ("one of two", "done or late"),
            ("both of two", "done and late"),
            ("a comparison", "count[0] % 3 == 0"),
        ]
    },
    "an attribute that is made by the first run": """
        import types
        state = types.SimpleNamespace()
        def run():
            if not hasattr(state, "kept"):
                state.kept = []
            state.kept.append(1)
        run()
    """,
    "a condition on the data": """
        import types
        kept, batches = [], [types.SimpleNamespace(mean=lambda: 5)]
        def run():
            for batch in batches:
                if batch.mean() > 3:
                    kept.append(batch)
    """,
    "a record that is beaten": """
        kept, best = [], 100
        def run():
            global best
            value = best - 1
            if value < best:
                best = value
                kept.append(value)
    """,
    "a branch that has to do with something else": """
        kept, step = [], [0]
        def run():
            step[0] += 1
            if step[0] % 100 == 0:
                print(step)
            kept.append(1)
    """,
    "an error that was not raised": """
        kept = []
        def run(value=1):
            if value is None:
                raise ValueError("no value")
            kept.append(value)
    """,
    "a value that was never missing": """
        kept, last = [], [1]
        def run():
            if last[0] is None:
                return
            if last[0] is not None:
                kept.append(last[0])
    """,
    "a condition that no run changes": """
        kept, rank = [], 1
        class Model:
            training = True
            def forward(self):
                if self.training and rank != 0:
                    kept.append(1)
        model = Model()
        run = model.forward
    """,
    "a test that was seen both ways": """
        kept, step = {}, [0]
        def run():
            for key in (step[0], 0):
                if key not in kept:
                    kept[key] = object()
            step[0] += 1
    """,
    "a look at the newest, which copies them": """
        kept = []
        def run():
            kept.append(1)
            recent = kept[-5:]
            return recent
    """,
    "entries that are dropped, but more slowly": """
        kept, step = [], [0]
        def run():
            step[0] += 1
            kept.extend((1, 2, 3))
            if step[0] % 2 == 0:
                kept.pop()
    """,
    "a way to empty it that nobody calls": """
        class Trainer:
            def __init__(self):
                self.kept = []
            def reset(self):
                self.kept.clear()
            def step(self):
                self.kept.append(1)
        trainer = Trainer()
        run = trainer.step
    """,
    "a loop that is left": """
        kept = []
        def run():
            for batch in range(3):
                kept.append(batch)
    """,
    "a while that is left": """
        kept = []
        def run():
            n = 0
            while n < 2:
                kept.append(n)
                n += 1
    """,
    "a branch seen both ways within one line": """
        kept, step = [], [0]
        def run():
            step[0] += 1
            kept.append(1) if step[0] % 2 else None
    """,
    "another way for arguments of another kind": """
        kept = []
        def keep(value):
            if isinstance(value, list):
                for one in value:
                    keep(one)
                return
            kept.append(value)
        def run():
            keep(object())
    """,
    "a way round for what is no function": """
        kept = []
        def on(event, function):
            if not callable(function):
                return
            kept.append((event, function))
        def run():
            on("step", print)
    """,
    "two branches, each seen both ways": """
        kept, step = [], [0]
        def run():
            step[0] += 1
            if step[0] % 2 == 0 and step[0] > 1:
                kept.append(1)
    """,
}

MAY_END = {
    "a function that trims what it is given": (
        """
        kept = []
        def shrink(items, limit):
            while len(items) > limit:
                items.pop(0)
        def run():
            kept.append(1)
            shrink(kept, 40)
        """,
        "line 5, which drops entries, has not run yet",
    ),
    "a heap with a limit": (
        """
        import heapq
        kept = []
        def run():
            if len(kept) < 20:
                heapq.heappush(kept, 1)
            else:
                heapq.heappushpop(kept, 1)
        """,
        "line 8, which drops entries, has not run yet",
    ),
    "work that is done some day": (
        """
        kept, todo = [], list(range(40))
        def run():
            if todo:
                kept.append(todo.pop())
        """,
        "`todo` in line 4 has gone one way only",
    ),
    "a stream that ends": (
        """
        kept, stream = [], iter(range(40))
        def run():
            value = next(stream, None)
            if value is not None:
                kept.append(value)
        """,
        "`value is not None` in line 5 has gone one way only",
    ),
    "a cache whose key was new each time": ("""
        kept, step = {}, [0]
        def run():
            key = step[0] % 50
            step[0] += 1
            if key not in kept:
                kept[key] = object()
    """, "key not in kept"),
    "a cache that is asked first": (
        """
        kept, step = {}, [0]
        def run():
            step[0] += 1
            found = kept.get(step[0] % 50)
            if found is None:
                kept[step[0] % 50] = object()
    """,
        "found is None",
    ),
    "a condition on what a call is given": (
        """
        kept = []
        def keep(value, limit):
            if value < limit:
                kept.append(value)
        def run():
            keep(len(kept), 100)
    """,
        "value < limit",
    ),
    "a flush that has not come yet": ("""
        kept = []
        def run():
            kept.append(1)
            if len(kept) >= 100:
                kept.clear()
    """, "drops entries"),
    "an early return": ("""
        kept = []
        def run():
            if len(kept) >= 100:
                return
            kept.append(1)
    """, "len(kept) >= 100"),
    "a continue": ("""
        kept = []
        def run():
            for value in range(3):
                if value > 10:
                    continue
                kept.append(value)
    """, "value > 10"),
    "a conditional expression": ("""
        kept = []
        def run():
            kept.clear() if len(kept) > 100 else kept.append(1)
    """, "drops entries"),
    "a condition around the call of the function that adds": ("""
        kept, step = [], [0]
        def keep(value):
            kept.append(value)
        def run():
            step[0] += 1
            if step[0] < 100:
                keep(step[0])
    """, "step[0] < 100"),
    "a method that empties it, under a condition": ("""
        class Trainer:
            def __init__(self):
                self.kept, self.step = [], 0
            def end_epoch(self):
                self.kept = []
            def run(self):
                self.kept.append(1)
                self.step += 1
                if self.step == 100:
                    self.end_epoch()
        run = Trainer().run
    """, "drops entries"),
    "another name for it": ("""
        class Pool:
            def __init__(self):
                self.kept = []
            def run(self):
                items = self.kept
                items.append(1)
                if len(items) > 100:
                    items.pop(0)
        run = Pool().run
    """, "drops entries"),
    "a handler that has not run": ("""
        kept = []
        def run():
            try:
                kept.append(1)
            except MemoryError:
                kept.clear()
    """, "drops entries"),
    "a while that had nothing to do": ("""
        kept = []
        def run():
            kept.append(1)
            while len(kept) > 100:
                del kept[0]
    """, "drops entries"),
    "a new one in its place": ("""
        kept, step = [], [0]
        def run():
            global kept
            kept.append(1)
            step[0] += 1
            if step[0] % 100 == 0:
                kept = []
    """, "drops entries"),
    "a message of another kind that empties it": ("""
        kept = []
        def put(value):
            if isinstance(value, str):
                kept.clear()
                return
            kept.append(value)
        def run():
            put(object())
    """, "drops entries"),
    "two buffers that change places": ("""
        front, kept = [], []
        def run():
            global front, kept
            kept.append(1)
            if len(kept) >= 10:
                front, kept = kept, []
    """, "drops entries"),
    "an and": ("""
        kept = []
        def run():
            len(kept) < 100 and kept.append(1)
    """, "len(kept) < 100"),
    "a bound in a condition of two parts, of which one was seen both ways": ("""
        kept, step = [], [0]
        def run():
            step[0] += 1
            if step[0] % 2 == 0 and len(kept) < 100:
                kept.append(1)
            elif len(kept) > 100:
                kept.clear()
    """, "drops entries"),
}  # fmt: skip


@pytest.mark.parametrize("program", GOES_ON.values(), ids=GOES_ON)
def test_where_nothing_was_left_untried_no_branch_is_open(tmp_path, program):
    assert open_branch(tmp_path, program) is None


@pytest.mark.parametrize(("program", "words"), MAY_END.values(), ids=MAY_END)
def test_a_branch_that_could_end_the_growth_is_named(tmp_path, program, words):
    assert words in open_branch(tmp_path, program)


def limit(tmp_path, program):
    """Return the words for what keeps the container ``kept`` from growing for ever; None if nothing does."""
    return open_branch(tmp_path, program, what="limit")


COMES_AGAIN = {
    "counts by a key": "kept = collections.Counter()\ndef run(): kept[random.random()] += 1",
    "setdefault": "kept = {}\ndef run(): return kept.setdefault(random.random(), [])",
}
ALL_NEW = {
    "a key that is counted up": "kept, n = {}, itertools.count()\ndef run():\n    i = next(n)\n    kept[i] = 1",
    "a counted key of setdefault": (
        "kept, n = {}, 0\ndef run():\n    global n\n    n += 1\n    return kept.setdefault(n, [])"
    ),
    "what is put into an entry": "kept = {}\ndef run(): kept.setdefault('all', []).append(1)",
    "a sum by name": "kept = {'loss': 0}\ndef run(loss=1): kept['loss'] += loss",
    "a list that is added to": "kept = []\ndef run():\n    global kept\n    kept += [1]",
}


@pytest.mark.parametrize("program", COMES_AGAIN.values(), ids=COMES_AGAIN)
def test_a_key_that_is_asked_for_first_may_come_again(tmp_path, program):
    words = limit(tmp_path, f"import collections, random\n{program}")
    assert words is not None
    assert "finds keys again" in words


@pytest.mark.parametrize("program", ALL_NEW.values(), ids=ALL_NEW)
def test_a_key_that_is_counted_up_does_not_come_again(tmp_path, program):
    assert limit(tmp_path, f"import itertools\n{program}") is None


def test_a_comprehension_with_a_condition_keeps_a_part(tmp_path):
    program = """
        kept, now = [], [0]
        def run():
            global kept
            now[0] += 1
            kept = [one for one in kept if one > now[0] - 30] + [now[0]]
    """
    assert open_branch(tmp_path, program, what="limit").endswith("in line 6 keeps a part only")
    assert open_branch(tmp_path, program.replace(" if one > now[0] - 30", ""), what="limit") is None


def test_once_it_was_taken_the_branch_is_open_no_more(tmp_path):
    program = """
        kept = []
        def run():
            kept.append(1)
            if len(kept) >= 4:
                kept.clear()
    """
    assert open_branch(tmp_path, program, runs=3) is not None
    assert open_branch(tmp_path, program, runs=6) is None


def test_free_variables_are_known_by_their_function_only(tmp_path):
    program = """
        def make():
            kept = []
            def run():
                kept.append(1)
            return run, kept
        def other():
            kept = []
            if len(kept) > 3:
                kept.clear()
        run, hold = make()
        def both(own=run):
            own()
            other()
        own, run = run, both
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    variables = {}
    exec(compile(file.read_text(), str(file), "exec"), variables)  # noqa: S102 - these programs are ours
    watch = BranchWatch(lambda filename: filename == str(file))
    with watch:
        variables["run"]()
    inside = Names(frozenset(), frozenset(), {variables["own"].__code__: frozenset({"kept"})})
    assert OpenBranches(watch).of(inside).branch is None


def test_a_tracer_of_somebody_else_is_left_alone(tmp_path):
    watch, before = BranchWatch(lambda _filename: True), sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        mine = sys.gettrace()
        with watch:
            assert sys.gettrace() is mine
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
    assert not list(watch.codes(Names(frozenset())))


def test_a_function_that_runs_long_is_watched_for_a_while(tmp_path):
    program = """
        kept = []
        def run():
            kept.append(1)
            for n in range(100_000):
                if n == 99_999:
                    kept.clear()
    """
    assert "drops entries" in open_branch(tmp_path, program, runs=1)


def test_two_objects_of_one_class_are_told_apart(tmp_path):
    program = """
        class Cache:
            def __init__(self, limit):
                self.kept, self.limit, self.n = {}, limit, 0
            def ask(self):
                key = self.n % self.limit
                self.n += 1
                if key not in self.kept:
                    self.kept[key] = object()
        small, large = Cache(2), Cache(200)
        def run():
            small.ask()
            large.ask()
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    variables = {}
    exec(compile(file.read_text(), str(file), "exec"), variables)  # noqa: S102 - these programs are ours
    watch = BranchWatch(lambda filename: filename == str(file))
    for _ in range(6):
        with watch:
            variables["run"]()
    found = {
        name: OpenBranches(watch).of(Names(frozenset({"kept"}), owners=frozenset({id(variables[name])}))).branch
        for name in ("small", "large")
    }
    assert found["small"] is None
    assert "key not in self.kept" in found["large"].words


def test_a_frame_that_is_kept_keeps_its_variables_and_nothing_of_the_watch(tmp_path):
    program = """
        import sys
        frames = []
        def run():
            kept = object()
            def inner():
                frames.append(sys._getframe())
                return kept
            inner()
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    variables = {}
    exec(compile(file.read_text(), str(file), "exec"), variables)  # noqa: S102 - these programs are ours
    watch = BranchWatch(lambda filename: filename == str(file))
    with watch:
        variables["run"]()
    (frame,) = variables["frames"]
    assert frame.f_trace is None
    assert set(frame.f_locals) == {"kept"}


def test_of_many_containers_the_first_are_asked_for(tmp_path):
    program = """
        kept = []
        def run():
            if len(kept) < 100:
                kept.append(1)
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    variables = {}
    exec(compile(file.read_text(), str(file), "exec"), variables)  # noqa: S102 - these programs are ours
    watch = BranchWatch(lambda filename: filename == str(file))
    with watch:
        variables["run"]()
    branches, names = OpenBranches(watch), Names(frozenset({"kept"}), frozenset({"kept"}))
    found = [branches.of(names).branch for _ in range(MOST_ASKED + 1)]
    assert None not in found[:-1]
    assert found[-1] is None


def test_what_the_notes_take_of_the_native_heap_is_known():
    """They are kept while levels of the heap are read: they were taken for what the runs have left."""
    variables: dict[str, Any] = {}
    body = "".join(f"        if self.n == {number}:\n            return {number}\n" for number in range(200))
    source = f"class Big:\n    n = -1\n    def run(self):\n{body}"
    exec(compile(source, "big.py", "exec"), variables)  # noqa: S102 - a function of so many branches
    every = [variables["Big"]() for _ in range(60)]
    watch = BranchWatch(lambda filename: filename == "big.py")
    before, noted = native_heap_bytes(), watch.native_bytes
    with watch:
        for one in every:
            one.run()
    after = native_heap_bytes()
    assert before is not None
    assert after is not None
    assert watch.native_bytes - noted > 50_000
    assert watch.native_bytes - noted == pytest.approx(after - before, rel=0.25)
