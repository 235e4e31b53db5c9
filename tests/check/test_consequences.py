"""What grows beside a larger leak is a leak of its own, unless the references show that it ends with that leak."""

from __future__ import annotations

import collections
import copy
import threading
import weakref

import numpy as np
import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced
N_BYTES = 300_000


class Frame:
    """Has a weak reference."""

    def __init__(self) -> None:
        self.pixels = torch.ones(N_BYTES // 4)


def check(cell, **namespace):
    return leaklab.leakcheck(cell, namespace=namespace, sites=False, cure=False, runs=8)


def test_a_hook_of_every_run_is_a_leak_beside_kept_losses():
    net, losses = torch.nn.Linear(64, 64), []

    def epoch():
        net.register_forward_hook(lambda module, arguments, output: None)
        losses.append(net(torch.ones(32, 64)).sum())

    first, second = check(epoch, net=net, losses=losses).leaks
    assert (first.holder, second.holder) == ("losses", "net._forward_hooks")
    assert first.bytes_per_run > 20 * second.bytes_per_run


def test_callbacks_that_pile_up_are_leaks_beside_a_thousand_times_as_much():
    observers, watched, frames = [], [], []

    class Viewer:
        def on_change(self, event):
            pass

    def run():
        viewer = Viewer()
        observers.append(viewer.on_change)
        watched.append(weakref.ref(Viewer()))
        frames.append(np.zeros(N_BYTES // 8))

    leaks = check(run, observers=observers, watched=watched, frames=frames).leaks
    assert {leak.holder for leak in leaks} == {"frames", "observers", "watched"}


def test_a_table_of_weak_references_that_clear_themselves_is_no_leak_beside_what_keeps_their_objects():
    kept, parents = [], {}

    def run():
        frame = Frame()
        kept.append(frame)
        number = id(frame)
        parents[number] = weakref.ref(frame, lambda _dead: parents.pop(number))

    (leak,) = check(run, kept=kept, parents=parents).leaks
    assert leak.holder == "kept"


def test_a_table_that_keeps_the_same_and_has_to_let_go_as_well_is_told_with_the_leak():
    kept, by_number = [], {}

    def run():
        tensor = torch.ones(N_BYTES // 4)
        kept.append(tensor)
        by_number[len(kept)] = ("tensor", tensor)

    report = check(run, kept=kept, by_number=by_number)
    (leak,) = report.leaks
    assert {"kept", "by_number"} <= set(leak.holders)
    assert any(
        "goes away with a leak listed above, as the references show: tuple in by_number" in note
        for note in report.notes
    )


def test_the_memory_of_copies_that_are_kept_is_told_with_them():
    model, rounds = torch.nn.Linear(64, 64), []
    (leak,) = check(lambda: rounds.append(copy.deepcopy(model.state_dict())), model=model, rounds=rounds).leaks
    assert leak.holder == "rounds"


def test_what_a_class_is_told_of_its_subclasses_ends_with_them():
    classes = []

    class Base:
        pass

    def run():
        classes.append(type("Made", (Base,), {"data": np.zeros(N_BYTES // 8)}))

    (leak,) = check(run, classes=classes).leaks
    assert leak.holder == "classes"


def test_the_table_of_subclasses_of_a_class_that_is_kept_by_one_of_them_ends_with_them():
    classes = []

    def run():
        base = type("Base", (), {"__slots__": ("x",)})
        classes.append(type("Made", (base,), {"data": np.zeros(N_BYTES // 8)}))

    (leak,) = check(run, classes=classes).leaks
    assert leak.holder == "classes"


@pytest.mark.parametrize("is_kept", [False, True], ids=["by nobody", "in a list"])
def test_what_waiting_threads_have_in_hand_ends_with_them(is_kept):
    frames, threads, stop = [], [], threading.Event()

    def run():
        thread = threading.Thread(target=stop.wait)
        thread.start()
        threads.extend([thread] * is_kept)
        frames.append(np.zeros(N_BYTES // 8))

    try:
        leaks = check(run, frames=frames, stop=stop, threads=threads).leaks
    finally:
        stop.set()
    assert [leak.cause for leak in leaks] == ["container-growth", "thread-or-worker-kept"]


class Meter:
    """Adds up what it is given."""

    def __init__(self):
        self.total = torch.zeros(())

    def update(self, value):
        self.total = self.total + value


def test_a_graph_that_gets_longer_is_a_leak_beside_kept_graphs():
    net, other, losses, meter = torch.nn.Linear(64, 64), torch.nn.Linear(8, 1), [], Meter()
    given = torch.ones(4, 8)

    def epoch():
        losses.append(net(torch.ones(32, 64)).sum())
        meter.update(other(given).sum())

    first, second = check(epoch, net=net, other=other, losses=losses, meter=meter).leaks
    assert (first.holder, second.holder) == ("losses", "meter.total")
    assert (first.cause, second.cause, second.unit) == ("graph-kept", "graph-kept", "graph nodes")
    assert second.count_per_run == pytest.approx(4, abs=1)


def test_what_adds_up_the_kept_losses_keeps_them_too():
    net, losses, meter = torch.nn.Linear(64, 64), [], Meter()

    def epoch():
        losses.append(net(torch.ones(32, 64)).sum())
        meter.update(losses[-1])

    leaks = check(epoch, net=net, losses=losses, meter=meter).leaks
    assert {leak.holder for leak in leaks} == {"losses", "meter.total"}


def test_graphs_of_the_last_runs_are_no_leaks_beside_kept_graphs():
    net, gate, losses = torch.nn.Linear(64, 64), torch.nn.Linear(4, 4), []
    recent, states, given = collections.deque(maxlen=4), [torch.ones(4)], torch.ones(4)

    def epoch():
        states[0] = gate(states[0] if len(losses) % 3 else states[0].detach()).tanh()
        losses.append(net(torch.ones(32, 64)).sum())
        recent.append(gate(given).tanh().exp().sin().sum())

    report = check(epoch, net=net, gate=gate, losses=losses, recent=recent, states=states)
    assert [leak.holder for leak in report.leaks] == ["losses"]
