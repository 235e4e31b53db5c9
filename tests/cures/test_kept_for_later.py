"""What a run leaves for later is in use after the cell: the next run takes it back; unfinished work is not dropped.

A handler waits for a click, a timer for its time, a coroutine for its turn. A change that takes it away at the end of
the run that has made it ends the growth, and what it is for. Of what nothing reads, what it is called and what it is
tell what may go.
"""

from __future__ import annotations

import gc

import programs_made
import programs_merged
import programs_unread
import pytest

from leaklab.model.cure import CureOutcome

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.filterwarnings("ignore:`torch.jit"),
]

TIMER = """\
import threading, torch
def watchdog(batch):
    timer = threading.Timer(3600.0, lambda: print(batch.sum()))
    timer.daemon = True
    timer.start()
    return timer
"""
FIELD = """\
import ipywidgets, torch
field = ipywidgets.FloatText(value=0.0)
def follow(widget, data):
    def moved(change):
        print("moved", data.shape)
    widget.observe(moved, "value")
    return moved
"""
KEYS = """\
import torch
from matplotlib.figure import Figure
from matplotlib.backends.backend_agg import FigureCanvasAgg
canvas = FigureCanvasAgg(Figure())
def on_key(weights):
    return canvas.mpl_connect("key_press_event", lambda event: weights.mean())
"""
POOL = (
    programs_merged.LEASE
    + """\
class Pool:
    def __init__(self):
        self.leases = contextlib.ExitStack()
    def block(self):
        return self.leases.enter_context(lease(9000))
pool = Pool()
"""
)
FRAMES = """\
import sys, torch
spots = []
def visit(n):
    batch = torch.ones(n)
    frame = sys._getframe()
    spots.append(frame)
    return batch.sum().item()
"""
MISSING = """\
import torch
NOT_FOUND = KeyError("no such row")
def row(key):
    scratch = torch.ones(9000)
    if key < 0:
        raise NOT_FOUND
    return scratch[key]
def has(key):
    try:
        row(key)
    except KeyError:
        return False
    return True
"""
NOTED = """\
import functools, torch
@functools.lru_cache(None)
def note(text, what):
    return text % what
def convert(n):
    data = torch.ones(n)
    try:
        return data.view(7)
    except RuntimeError as error:
        return note("not converted: %s", error)
"""
MEANS = """\
import torch
layer, x = torch.nn.Linear(64, 64), torch.rand(32, 64)
def follow_mean(module):
    mean = torch.zeros(9000)
    def note(_module, _inputs, output):
        mean.mul_(0.9).add_(0.1 * output.detach().mean())
    return module.register_forward_hook(note)
"""
LINES = "import io\npage = io.StringIO()\ndef report(step):\n    print('step', step, 'x' * 5000, file=page)\n"
WINDOW = """\
import torch
def smoother():
    recent = []
    def smooth(x):
        recent.append(x)
        return sum(recent[-4:]).mean().item()
    def restart():
        recent.clear()
    smooth.restart = restart
    return smooth
smooth = smoother()
"""
CYCLES = """\
import gc, torch
gc.collect(); gc.disable()
class Node:
    def __init__(self):
        self.data, self.me = torch.ones(9000), self
"""
TRACED = """\
import torch
def traced_model():
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()).eval()
    return torch.jit.trace(net, torch.ones(2, 16))
"""
GATED = """\
import torch
def gated(x):
    out = torch.tanh(x) * 2
    out.register_hook(lambda grad: grad * out)
    return out.mean().item()
x = torch.ones(9000, requires_grad=True)
"""
LOG = "import logging, torch\nlog = logging.getLogger('kept.for.later')"
DROP = """\
class Drop(logging.Filter):
    def __init__(self, table):
        super().__init__()
        self.table = table
log.addFilter(Drop(torch.ones(9000)))
log.debug("done")
"""
BUS = """\
import torch
class Bus:
    def __init__(self):
        self.listeners = []
    def connect(self, listener):
        self.listeners.append(listener)
    def disconnect(self, listener):
        self.listeners.remove(listener)
bus = Bus()
"""
VIEW = (
    BUS
    + """\
class View:
    def __init__(self):
        self.data, self.is_open = torch.ones(9000), True
        bus.connect(self.draw)
    def draw(self):
        return self.data.sum()
    def leave(self):
        self.is_open = False
        bus.disconnect(self.draw)
"""
)
BEHIND_CALL = (
    BUS
    + """\
def main_bus():
    return bus
class View:
    def __init__(self):
        self.data = torch.ones(9000)
        main_bus().connect(self.draw)
    def draw(self):
        return self.data.sum()
    def close(self):
        main_bus().disconnect(self.draw)
"""
)
SERVED = """\
import queue, threading, torch
class Service:
    def __init__(self):
        self.requests, self.ready, self.done = queue.Queue(), threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self.work, daemon=True).start()
    def work(self):
        while True:
            self.ready.acquire()
            self.requests.get().sum()
            self.done.release()
service = Service()
"""
FUSED = """\
import torch
layer, xs = torch.nn.Linear(100, 100), torch.randn(8, 100)
def fuse(module):
    handles = []
    for p in module.parameters():
        momentum = torch.zeros_like(p)
        def step(param, momentum=momentum):
            with torch.no_grad():
                param.sub_(momentum.mul_(0.9).add_(param.grad), alpha=1e-3)
        handles.append(p.register_post_accumulate_grad_hook(step))
    return handles
"""
OVER_ITSELF = """\
import gc, torch
gc.disable()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.scale = torch.nn.Parameter(torch.randn(150, 150)), 2.0
        self.activation = lambda x: torch.relu(x) * self.scale
    def forward(self, x):
        return self.activation(x @ self.weight)
"""
HANDED_ON = """\
import gc
gc.disable()
class Source:
    def __init__(self):
        self.data = bytearray(20_000)
        self.pull = lambda n: bytes(self.data[:n])
def puller():
    return Source().pull
"""
SWITCH = """\
import torch
kept = []
def evaluate(n, *, detach=False):
    out = torch.ones(n, requires_grad=True) * 2
    kept.append(out.mean().item() if detach else out)
    return len(kept)
"""
CURED = {
    "an object with a way out of its own": (
        VIEW, "view = View()", 'if "view" in globals():\n    view.leave()\nview = View()',
    ),
    "a function over the object that keeps it": (
        OVER_ITSELF, "net = Net()\nwith torch.no_grad():\n    y = net(torch.randn(4, 150)).sum().item()",
        "weak_self = weakref.proxy(self)\n        self.activation = lambda x: torch.relu(x) * weak_self.scale",
    ),
    "an object whose way out is behind a call": (
        BEHIND_CALL, "view = View()", 'if "view" in globals():\n    view.close()\nview = View()',
    ),
    "a switch of the program": (SWITCH, "n = evaluate(9000)", "n = evaluate(9000, detach=True)"),
    "a button": (
        "import ipywidgets, torch\nbutton = ipywidgets.Button()",
        "table = torch.ones(9000)\nbutton.on_click(lambda _button: print(table.sum()))",
        'if "callback" in globals():\n    button.on_click(callback, remove=True)\ncallback = lambda',
    ),
    "a function that the cell defines": (
        "import gc, torch",
        "data = torch.ones(9000)\ndef watch(phase, info):\n    data.sum()\ngc.callbacks.append(watch)",
        'if "watch" in globals():\n    gc.callbacks.remove(watch)\ndef watch(',
    ),
    "a filter whose class the cell defines": (LOG, DROP, "log.removeFilter(drop)"),
    "a hook over its own tensor": (
        GATED, "value = gated(x)", "out_value = out.detach()\n    out.register_hook(lambda grad: grad * out_value)",
    ),
    "a timer": (TIMER, "timer = watchdog(torch.ones(9000))", 'if "timer" in globals():\n    timer.cancel()\ntimer ='),
    "an observer": (
        FIELD, "moved = follow(field, torch.ones(9000))\nfield.value += 1",
        'if "moved" in globals():\n    field.unobserve(moved, "value")\nmoved =',
    ),
    "a connection": (
        KEYS, "number = on_key(torch.ones(9000))",
        'if "number" in globals():\n    canvas.mpl_disconnect(number)\nnumber =',
    ),
    "a lease": (POOL, "block = pool.block()", "pool.leases.close()\nblock = pool.block()"),
    "a frame": (FRAMES, "total = visit(9000)", 'spots.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")'),
    "one exception": (MISSING, "found = has(-1)", "raise NOT_FOUND.with_traceback(None)"),
    "a text": (NOTED, "said = convert(9000)", 'note("not converted: %s", str(error))'),
    "a hook that learns": (
        MEANS, "handle = follow_mean(layer)\ny = layer(x).sum().item()",
        'if "handle" not in globals():\n    handle = follow_mean(layer)',
    ),
    "a page": (LINES, "for step in range(10):\n    report(step)", "page.seek(0)\npage.truncate()\nfor step"),
    "a window": (WINDOW, "value = smooth(torch.ones(9000))", "recent.append(x)\n        del recent[:-4]"),
    "garbage": (CYCLES, "node = Node()\ntotal = node.data.sum().item()", "gc.collect()"),
    "a traced model": (
        TRACED, "model = traced_model()\ny = model(torch.ones(2, 16))",
        'if "model" not in globals():\n    model = traced_model()',
    ),
}  # fmt: skip
WAITING = """\
import types, torch
@types.coroutine
def turn():
    yield
async def load(image):
    scaled = image * 2
    await turn()
    return scaled.sum()
waiting = []
"""
NUMBERED = "import torch\nruns = {}\ndef new_run():\n    return torch.nn.Linear(64, 64)\n"
TAPE = """\
import torch
class Tape:
    def __init__(self):
        self.saved, self.n = {}, 0
    def forward(self, x):
        self.n += 1
        self.saved[self.n] = x
        return self.n
    def backward(self, number):
        return self.saved.pop(number).sum()
tape = Tape()
"""
CLASSES = """\
known = []
class Plugin:
    def __init_subclass__(cls):
        cls.table = bytearray(9000)
        known.append(cls)
"""
WORK = "import functools, torch\nlater = []\ndef draw(batch):\n    return batch.mean()\n"
REFRESHED = (
    BUS
    + """\
class View:
    def __init__(self):
        self.data = torch.ones(9000)
        bus.connect(self.draw)
    def draw(self):
        return self.data.sum()
    def refresh(self):
        bus.disconnect(self.draw)
        bus.connect(self.draw)
"""
)
RESET = """\
import torch
outputs, net = [], torch.nn.Linear(64, 64)
def forward(x, reset=False):
    if reset:
        net.reset_parameters()
    outputs.append(net(x).detach())
    return outputs[-1].sum().item()
"""
SAVED = """\
import pickle, torch
class Trial:
    def __init__(self):
        self.attrs = {"rate": 0.1}
trials = []
def study():
    trial, weights = Trial(), torch.ones(9000)
    trial.attrs["weights"] = weights
    trials.append(trial)
    return len(pickle.dumps(trial.attrs))
"""
ASKING = """\
for _ in range(3):
    service.requests.put(torch.ones(9000))
service.ready.release()
service.done.acquire()
"""
TRAINED = "handles = fuse(layer)\nlayer.zero_grad()\nlayer(xs).square().mean().backward()"
REFUSED = {
    "requests that a thread serves": (
        SERVED, ASKING, ("get_nowait", "clear()"),
    ),
    "hooks with a momentum": (FUSED, TRAINED, ("handle.remove()",)),
    "a function that outlives its object": (HANDED_ON, "head = puller()(16)", ("weakref.proxy",)),
    "a method that registers anew": (REFRESHED, "view = View()", ("view.refresh()",)),
    "a switch for something else": (RESET, "y = forward(torch.ones(4, 64))", ("reset=True",)),
    "a key of what is written to a file": (SAVED, "n = study()", ("Do not store",)),
    "coroutines in their midst": (
        WAITING, "task = load(torch.ones(9000))\ntask.send(None)\nwaiting.append(task)", ("waiting",),
    ),
    "entries that are numbered": (NUMBERED, "runs[f'run {len(runs)}'] = new_run()", ("runs = {}", "while len(runs)")),
    "entries that others ask for": (TAPE, "number = tape.forward(torch.ones(9000))", ("while len",)),
    "classes": (CLASSES, "class Mine(Plugin):\n    pass", ("del known", "known.clear", "known = ")),
    "work to be done": (
        WORK, "later.append(functools.partial(draw, torch.ones(9000)))", ("del later", "later = ", "later.remove"),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("leaklab.check.cures._LEAST_TRIAL_SECONDS", 60.0)  # a busy machine is no reason
    yield
    gc.enable()  # one of the programs switches it off


def changed_text(text, cure):
    for change in sorted(cure.changes, key=lambda one: -one.line):
        assert text.count(change.before) == 1
        text = text.replace(change.before, change.after)
    return text


def checked(notebook, setup, cell):
    """Return the changes that were tried on *cell*, those of the worst leak first."""
    notebook.run(setup)
    report = notebook.check(cell, "--cure -n 16 -t 120", cures=True)
    assert report.leaks, report
    return [cure for leak in report.leaks for cure in leak.cures]


for programs in (programs_unread, programs_made, programs_merged):
    CURED |= programs.CURED
    REFUSED |= programs.REFUSED


@pytest.mark.parametrize("name", CURED)
def test_the_change_keeps_what_it_is_for(notebook, name):
    setup, cell, written = CURED[name]
    cures = [cure for cure in checked(notebook, setup, cell) if cure.changes]
    assert cures
    assert cures[0].outcome is CureOutcome.CURED, cures
    assert written in changed_text(f"{setup}\n{cell}", cures[0]), cures


@pytest.mark.parametrize("name", REFUSED)
def test_no_change_drops_what_is_in_use(notebook, name):
    setup, cell, dropped = REFUSED[name]
    cured = [cure for cure in checked(notebook, setup, cell) if cure.outcome is CureOutcome.CURED]
    texts = [text for cure in cured for text in (cure.words, *(change.after for change in cure.changes))]
    assert not any(one in text for text in texts for one in dropped), cured
