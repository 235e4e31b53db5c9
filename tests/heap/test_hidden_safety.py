"""Looking at a heap harms nothing: no hook runs, nothing is computed again, huge graphs can die, threads may run."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch
from explain_builders import births_of
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from leaklab.explain.cycles.cycles import group_orphans
from leaklab.heap.borrow import heap_view


class Token:
    """Is looked for at the end of every graph."""


def look_at_everything(variables, born):
    """Build the view of the whole heap, describe the paths to *born*, group those that nothing reaches."""
    gc.collect()
    births = births_of([born, []])
    addresses = list(map(id, born))
    born.clear()
    objects = gc.get_objects()
    try:
        with heap_view(objects, births, variables) as view:
            vertices = [view.index.vertex_of(address) for address in addresses]
            paths = [str(view.describe(vertex).path) for vertex in vertices if view.is_reached(vertex)]
            orphans = group_orphans(view, [vertex for vertex in vertices if not view.is_reached(vertex)])
            return paths, orphans, view.notes
    finally:
        objects.clear()


class Counts:
    """How often each kind of code ran that belongs to the user's graph."""

    def __init__(self):
        self.forward = self.packed = self.unpacked = self.moved = 0


@pytest.fixture(scope="module")
def counted():
    """Graphs of every kind with code in them, reached and unreached, all looked at; counts before and after."""
    counts = Counts()
    move = torch.Tensor.to

    def forward(tensor):
        counts.forward += 1
        return (tensor * 2).exp().sin()

    def pack(tensor):
        counts.packed += 1
        return [tensor.detach()]

    def unpack(packed):
        counts.unpacked += 1
        return packed[0]

    def moving(tensor, *arguments, **options):
        counts.moved += 1
        return move(tensor, *arguments, **options)

    def graphs():
        leaf = torch.ones(3, requires_grad=True)
        with saved_tensors_hooks(pack, unpack):
            custom = (leaf * leaf).exp()
        with save_on_cpu():
            on_cpu = (leaf * leaf).exp()
        once = checkpoint(forward, leaf, use_reentrant=False)
        again = checkpoint(forward, leaf, use_reentrant=True)
        made = [custom, on_cpu, once, again]
        for tensor in made:
            tensor.token = Token()
        return made

    kept = graphs()
    lost = graphs()
    for tensor in lost:
        tensor.register_hook(lambda _, tensor=tensor: tensor and None)
    born, lost_ones = [tensor.token for tensor in (*kept, *lost)], list(map(weakref.ref, lost))
    del lost, tensor
    before = vars(counts).copy()
    torch.Tensor.to = moving
    try:
        found = look_at_everything({"kept": kept}, born)
    finally:
        torch.Tensor.to = move
    after = vars(counts).copy()
    kept[0].sum().backward()
    for reference in lost_ones:
        tensor = reference()
        tensor._backward_hooks.clear()
        tensor.sum().backward()
        tensor = None
    return before, after, vars(counts), found


def test_no_unpack_hook_runs_and_nothing_is_computed_again(counted):
    before, after, _end, _found = counted
    assert before == {"forward": 4, "packed": before["packed"], "unpacked": 0, "moved": 0}
    assert before["packed"] >= 6
    assert after == before


def test_the_counters_would_have_counted(counted):
    _before, _after, end, _found = counted
    assert end["unpacked"] >= 3


def test_all_of_these_graphs_were_followed(counted):
    _before, _after, _end, (paths, orphans, notes) = counted
    assert len(paths) == 4
    assert sum(len(found.members) for found in orphans) == 4
    assert all(found.crosses_hidden for found in orphans)
    assert notes == ()


def test_a_heap_that_changes_while_it_is_read_gets_a_caveat():
    stop = threading.Event()
    kept = {}

    def work():
        number = 0
        while not stop.is_set():
            number += 1
            tensor = torch.ones(3, requires_grad=True) * number
            tensor.register_hook(lambda gradient: gradient)
            kept[number % 500] = [tensor, {number: tensor}, Token()]
            if number % 100 == 0:
                kept.clear()

    threads = [threading.Thread(target=work, name=f"busy {number}") for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        token = Token()
        watch = weakref.ref(token)
        variables = {"token": token}
        del token
        paths, orphans, notes = look_at_everything(variables, [variables["token"]])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert paths == ["notebook variable: token (test_hidden_safety.Token)"]
    assert orphans == []
    (note,) = notes
    assert note.startswith("other threads ('busy ")
    variables.clear()
    assert watch() is None


def test_a_thread_that_waits_gets_no_caveat():
    started, stop = threading.Event(), threading.Event()

    def wait():
        started.set()
        stop.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait(60)
    try:
        _paths, _orphans, notes = look_at_everything({}, [])
    finally:
        stop.set()
        thread.join()
    assert notes == ()


HUGE = """
    import gc, torch
    import leaklab
    from leaklab.heap.hidden_references import hidden_edges
    weight = torch.ones((), requires_grad=True)
    total = step = weight
    for _ in range(200_000):
        total = total * 1.0
    losses = []
    for _ in range(100_000):
        step = step * 1.0
        losses.append(step)
    state = {"total": total, "stacked": torch.stack(losses)}
    found = hidden_edges(gc.get_objects())
    print(found.n_unwalked > 0, len(found.notes), "lower bound" in found.notes[0])
    del total, step, losses, found

    def run():
        state["total"] = state["total"] * 1.0
        state.setdefault("history", []).append(torch.ones(10))

    report = leaklab.leakcheck(run, runs=6, namespace={"state": state})
    print(report.leaked, report.leaks[0].holder, any("lower bound" in note for note in report.notes))
    del report
    gc.collect()
    state.clear()
    gc.collect()
    print("freed")
"""


def test_a_chain_of_200_000_nodes_and_a_stack_of_100_000_are_checked_explained_and_freed():
    code = textwrap.dedent(HUGE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True 1 True", "True state['history'] True", "freed"]
