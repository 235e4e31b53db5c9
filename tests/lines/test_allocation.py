"""Objects, storages and copies are known by the user's line that made them; tracemalloc stays as it was."""

from __future__ import annotations

import copy
import ctypes
import inspect
import subprocess
import sys
import threading
import tracemalloc
import types
from typing import ClassVar

import pytest
import torch

from leaklab.lines.allocation import Makers, line_that_made
from leaklab.lines.asked import innermost_and_asking
from leaklab.lines.storages import StorageLines
from leaklab.runtime.python_traces import N_FRAMES, python_traces


def whose(filename: str) -> bool:
    return filename == __file__


class Plain:
    """An instance with attributes: 3.11 keeps its memory's beginning elsewhere."""


class Slotted:
    __slots__ = ("value",)


MAKERS = {
    "set": lambda: {1},
    "instance": lambda: Plain(),  # noqa: PLW0108 - the line is what counts
    "slots": lambda: Slotted(),  # noqa: PLW0108
    "text": lambda: "a" * 5000,
    "module": lambda: torch.nn.Linear(2, 2),
    "parameter": lambda: torch.nn.Linear(2, 2).weight,
    "tensor": lambda: torch.zeros(3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_users_line_that_made_a_python_object_is_known(name):
    with python_traces():
        thing = MAKERS[name]()
        line = line_that_made(thing, whose)
    assert line == (__file__, inspect.getsourcelines(MAKERS[name])[1], "")


def test_what_was_made_before_has_no_line():
    thing = Plain()
    with python_traces():
        assert line_that_made(thing, whose) is None


def make_and_view(storages: StorageLines):
    with storages.noted() as is_exact:
        made = torch.ones(4)
        view = made.view(2, 2)
        given = torch.tensor([1.0, 2.0])
        made.add_(1)
    return is_exact, made, view, given


def line_after(function, offset: int) -> int:
    return inspect.getsourcelines(function)[1] + offset


def test_a_storage_belongs_to_the_line_that_made_it_not_to_those_that_look_at_it_or_write_to_it():
    storages = StorageLines(whose)
    is_exact, made, view, given = make_and_view(storages)
    assert is_exact
    assert storages.line_of(made)[:2] == (__file__, line_after(make_and_view, 2))
    assert storages.line_of(view) == storages.line_of(made)
    assert storages.line_of(given)[:2] == (__file__, line_after(make_and_view, 4))


def test_tensors_saved_for_backward_without_a_python_object_are_known():
    storages = StorageLines(whose)
    weight = torch.ones(3, requires_grad=True)
    with storages.noted():
        loss = (weight.exp() * 2).sum()
    node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    assert storages.line_of(node._saved_result)[1] == line_after(
        test_tensors_saved_for_backward_without_a_python_object_are_known, 4
    )


def test_when_the_time_is_over_what_was_noted_for_reused_addresses_is_forgotten():
    storages = StorageLines(whose)
    with storages.noted():
        first, freed = torch.ones(4), [torch.ones(4) for _ in range(100)]
        addresses = {tensor.untyped_storage()._cdata for tensor in freed}
        storages.note_for(-1.0)
        freed.clear()
        made = [torch.ones(4) for _ in range(20_000)]
    later = made[64:]  # the clock is not asked for each of them
    assert storages.line_of(first) is not None
    assert addresses & {tensor.untyped_storage()._cdata for tensor in made}
    assert all(storages.line_of(tensor) is None for tensor in later)


def test_one_instruction_that_calls_several_functions_has_a_line_for_each():
    storages = StorageLines(whose)
    makers = [lambda: torch.ones(3), lambda: torch.zeros(3)]
    with storages.noted():
        made = [make() for make in makers]
    lines = [storages.line_of(tensor) for tensor in made]
    assert [line[1] for line in lines] == [make.__code__.co_firstlineno for make in makers]
    stacks = [storages.stack_of(tensor.untyped_storage()._cdata) for tensor in made]
    assert stacks[0][0] == lines[0]
    assert stacks[0][1] == stacks[1][1]
    storages.forget()
    assert storages.line_of(made[0]) is None


class Nested(torch.autograd.Function):
    """Each backward calls the next: below the 60th autograd goes on in a thread of its own, as it does for a card."""

    threads: ClassVar[set[int]] = set()

    @staticmethod
    def forward(ctx, x, n_below):
        ctx.n_below = n_below
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Nested.threads.add(threading.get_ident())
        if ctx.n_below:
            with torch.enable_grad():
                (Nested.apply(torch.ones(3, requires_grad=True), ctx.n_below - 1) * 3).sum().backward()
        return grad * 2, None


def test_a_thread_of_autograds_has_no_line_but_the_call_of_backward_has():
    x = torch.ones(3, requires_grad=True)
    storages = StorageLines(whose)
    Nested.threads.clear()
    with storages.noted():
        Nested.apply(x, 70).sum().backward()
    assert len(Nested.threads) == 2
    assert storages.line_of(x.grad) is not None


def test_a_tensor_of_before_has_no_line():
    old = torch.ones(2)
    storages = StorageLines(whose)
    with storages.noted():
        old.mul(2)
    assert storages.line_of(old) is None


def test_where_torch_compile_was_used_no_mode_is_switched_on(monkeypatch):
    compiled = types.ModuleType("torch._dynamo.convert_frame")
    compiled.FRAME_COUNTER = 1
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", compiled)
    storages = StorageLines(whose)
    with storages.noted() as is_exact:
        made = torch.ones(2)
    assert not is_exact
    assert storages.line_of(made) is None


def test_the_tensors_inside_a_new_entry_are_what_its_line_is_asked_of():
    storages = StorageLines(whose)
    with python_traces(), storages.noted():
        inner = torch.ones(2)
        entry = {"loss": [inner]}
        found = Makers(whose, storages).made_of([entry])
    assert [one.line[1] for one in found] == [
        line_after(test_the_tensors_inside_a_new_entry_are_what_its_line_is_asked_of, 3)
    ]


# Threads that no Python code has started call Python: each allocates without the interpreter lock. Stopped at once,
# tracemalloc crashed the process in the first of these rounds.
CHILD = """
import ctypes, threading
from leaklab.runtime.python_traces import python_traces
libc = ctypes.CDLL(None)
work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
is_over = threading.Event()

def start_native_threads():
    while not is_over.is_set():
        threads = [ctypes.c_ulong() for _ in range(20)]
        started = [thread for thread in threads if not libc.pthread_create(ctypes.byref(thread), None, work, None)]
        for thread in started:
            libc.pthread_join(thread, None)

starters = [threading.Thread(target=start_native_threads) for _ in range(3)]
for starter in starters:
    starter.start()
for _ in range(8):
    with python_traces():
        sum(number * number for number in range(200_000))
is_over.set()
for starter in starters:
    starter.join()
print("alive")
"""


class Traced:
    pass


@pytest.mark.untraced
@pytest.mark.skipif(sys.platform == "win32", reason="needs pthreads")
def test_threads_that_allocate_without_the_lock_survive_the_end():
    ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


@pytest.mark.untraced
@pytest.mark.parametrize("limit", [1, 7, N_FRAMES])
def test_tracemalloc_is_off_again_with_the_limit_that_it_had(limit):
    tracemalloc.start(limit)
    tracemalloc.stop()
    with python_traces() as n_frames:
        assert (n_frames, tracemalloc.get_traceback_limit()) == (N_FRAMES, N_FRAMES)
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, limit)
    with pytest.raises(ZeroDivisionError), python_traces():
        _ = 1 / 0
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, limit)
    tracemalloc.start()
    tracemalloc.stop()


def raw_allocator() -> bytes:
    found = (ctypes.c_void_p * 5)()
    ctypes.pythonapi.PyMem_GetAllocator(0, ctypes.byref(found))
    return bytes(found)


MENDED = sys.version_info >= (3, 13, 2) or (3, 12, 9) <= sys.version_info < (3, 13)


@pytest.mark.untraced
@pytest.mark.skipif(MENDED, reason="tracemalloc waits for other threads itself")
def test_what_threads_allocate_without_the_lock_does_not_go_through_tracemalloc():
    before = raw_allocator()
    with python_traces():
        assert raw_allocator() == before
        made = bytearray(100)
        assert tracemalloc.get_object_traceback(made) is not None
    assert raw_allocator() == before


@pytest.mark.untraced
def test_code_that_stops_tracemalloc_leaves_it_off():
    with python_traces():
        tracemalloc.stop()
    assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (False, 1)


@pytest.mark.untraced
def test_code_that_starts_it_anew_for_itself_keeps_it():
    try:
        with python_traces():
            tracemalloc.stop()
            tracemalloc.start(5)
            mine = Traced()
        assert tracemalloc.get_traceback_limit() == 5
        assert tracemalloc.is_tracing()
        assert line_that_made(mine, whose) is not None
    finally:
        tracemalloc.stop()
        tracemalloc.start()
        tracemalloc.stop()


@pytest.mark.untraced
def test_a_running_tracemalloc_keeps_its_settings_and_its_traces():
    tracemalloc.start(3)
    try:
        before = Traced()
        with python_traces() as n_frames:
            assert n_frames == 3
        assert tracemalloc.get_traceback_limit() == 3
        assert line_that_made(before, whose) is not None
    finally:
        tracemalloc.stop()
        tracemalloc.start()
        tracemalloc.stop()


@pytest.mark.untraced
def test_threads_of_python_go_on_undisturbed():
    is_over, n_made = threading.Event(), []

    def make():
        while not is_over.is_set():
            n_made.append([Traced() for _ in range(100)])
            del n_made[:-10]

    other = threading.Thread(target=make)
    other.start()
    for _ in range(5):
        with python_traces():
            [Traced() for _ in range(1_000)]
    is_over.set()
    other.join()
    assert not tracemalloc.is_tracing()


COPY = copy.__file__
OWN = "own.py"


def whose_but_copys(filename: str) -> bool | None:
    return None if filename == OWN else filename in ("user.py", __file__)


def stack(text: str) -> list[tuple[str, int]]:
    """Make a stack of ``user.py:3 lib.py:5 copy:7``, innermost first."""
    files = ((place.partition(":")[0], int(place.partition(":")[2])) for place in text.split())
    return [(COPY if file == "copy" else file, number) for file, number in files]


STACKS = {
    "nothing copied": ("lib.py:1 user.py:2 lib.py:3 user.py:4", (2, None)),
    "made by the copying itself": ("copy:1 copy:2 user.py:3 user.py:4", (3, 3)),
    "made by a method that the copying called": ("user.py:1 user.py:2 copy:3 copy:4 user.py:5", (1, 5)),
    "a copy that asks for copies of its parts": ("copy:1 user.py:2 copy:3 user.py:4 user.py:5", (2, 4)),
    "a library that has something copied for the user": ("user.py:1 copy:2 lib.py:3 lib.py:4 user.py:5", (1, 5)),
    "a copy that nobody of the user's asked for": ("user.py:1 copy:2 lib.py:3", (1, None)),
    "what runs the user's code has something copied": ("user.py:1 own.py:2 copy:3 user.py:4", (1, None)),
    "only libraries": ("lib.py:1 copy:2 lib.py:3", (None, None)),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_innermost_line_and_the_one_that_asks(name):
    text, expected = STACKS[name]
    assert innermost_and_asking(stack(text), whose_but_copys) == expected


class Metric:
    """Makes its own copies."""

    def __init__(self):
        self.table = torch.zeros(3)

    def __deepcopy__(self, memo):
        return Metric()


def copies():
    original = Metric()
    return original, copy.deepcopy(original)


def test_a_copys_objects_and_storages_belong_to_the_line_that_asked_for_it_the_originals_to_its_own():
    storages = StorageLines(whose_but_copys)
    with python_traces(), storages.noted():
        original, copied = copies()
        first = inspect.getsourcelines(copies)[1]
        made = inspect.getsourcelines(Metric)[1] + 4
        assert line_that_made(copied, whose_but_copys) == (__file__, first + 2, "")
        assert line_that_made(original, whose_but_copys) == (__file__, first + 1, "")
        found = Makers(whose_but_copys, storages).made_of([copied.table, original.table])
    assert [one.line[1] for one in found] == [first + 2, made]


def copy_at_the_address_of_another(original):
    """Return a copy whose storage has the address of one that is gone, and the line that made that."""
    made_here, kept = set(), []
    for _ in range(1000):
        gone = torch.ones(3).mean()
        made_here.add(torch._C._storage_id(gone))
        del gone
        kept.append(copy.deepcopy(original))
        if torch._C._storage_id(kept[-1]) in made_here:
            return kept[-1]
    pytest.fail("no address was used again")


def test_the_copy_of_a_tensor_belongs_to_its_line_not_to_one_whose_storage_was_at_its_address():
    storages, original = StorageLines(whose_but_copys), torch.zeros(())
    with storages.noted():
        copied = copy_at_the_address_of_another(original)
    first = inspect.getsourcelines(copy_at_the_address_of_another)[1]
    assert storages.line_of(copied)[:2] == (__file__, first + 7)
