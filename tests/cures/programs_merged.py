"""What a maintainer would merge, and what not: set-up, cell, what the change writes, or what it must not write."""

SNAPSHOTS = """\
import copy, torch
class Trainer:
    def __init__(self):
        self.net, self.epoch, self.snapshots = torch.nn.Linear(64, 64), 0, {}
    def end_epoch(self):
        self.epoch += 1
        self.snapshots[self.epoch] = copy.deepcopy(self.net.state_dict())
trainer = Trainer()
"""
ANCHORS = "import torch\nnet, task = torch.nn.Linear(64, 64), 0\n"
ROWS = """\
import collections, torch
class Recorder:
    def __init__(self):
        self.rows, self.row = collections.deque(), 0
    def note(self, values):
        self.row += 1
        entry = {"row": self.row, "values": values}
        self.rows.append(entry)
recorder = Recorder()
"""
COUNTED = "import itertools, torch\nnumbers, answers = itertools.count(), {}\n"
HISTORY = "import torch\nhistory, epoch = [], 0\n"
AVERAGE = """\
import torch
net, xs = torch.nn.Linear(64, 64), torch.randn(8, 64)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
class Average:
    def __init__(self, module, optimizer):
        self.weights, self.module = [one.detach().clone() for one in module.parameters()], module
        self.watch = optimizer.register_step_post_hook(self.follow)
    @torch.no_grad()
    def follow(self, *args):
        for mine, theirs in zip(self.weights, self.module.parameters()):
            mine.lerp_(theirs, 0.1)
"""
STEP = "opt.zero_grad()\nnet(xs).square().mean().backward()\nopt.step()"
THEME = """\
import torch
class Theme:
    def __init__(self):
        self.watchers = []
    def change(self, colour):
        for watcher in self.watchers:
            watcher(colour)
theme = Theme()
class Plot:
    def __init__(self):
        self.pixels = torch.ones(9000)
        theme.watchers.append(self.paint)
    def paint(self, colour):
        self.pixels.fill_(colour)
    def leave(self):
        theme.watchers.remove(self.paint)
"""
LEASE = """\
import contextlib, torch
@contextlib.contextmanager
def lease(n):
    block = torch.ones(n)
    yield block
    block.zero_()
"""
SESSION = (
    LEASE
    + """\
class Session:
    def __init__(self):
        self.leases, self.n = contextlib.ExitStack(), 0
    def block(self):
        return self.leases.enter_context(lease(9000))
    def give_back(self):
        self.leases.close()
session = Session()
"""
)
NOISE = """\
import torch
from torch.nn.utils import parametrize
layer, xs = torch.nn.Linear(100, 100), torch.randn(4, 100)
class Dropped(torch.nn.Module):
    def __init__(self, share):
        super().__init__()
        self.register_buffer("mask", (torch.rand(100, 100) > share).float())
    def forward(self, weight):
        return weight * self.mask
"""
NOISY = """\
parametrize.register_parametrization(layer, "weight", Dropped(0.2))
with torch.no_grad():
    y = layer(xs)
"""
ADAPTED = """\
import torch
from torch.nn.utils import parametrize
layer, xs = torch.nn.Linear(100, 100), torch.randn(4, 100)
class Adapter(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(100, rank))
        self.b = torch.nn.Parameter(torch.zeros(rank, 100))
    def forward(self, weight):
        return weight + self.a @ self.b
"""
ADAPT = """\
parametrize.register_parametrization(layer, "weight", Adapter(50))
with torch.no_grad():
    y = layer(xs)
"""
WRAPPED = """\
import torch
class Smoothed:
    def __init__(self, scheduler, beta):
        self.scheduler, self.beta, self.values = scheduler, beta, torch.zeros(9000)
    def rate(self):
        self.values.mul_(self.beta).add_(1 - self.beta)
        return self.scheduler.rate() * self.values.mean().item()
class Constant:
    def rate(self):
        return 0.1
scheduler = Constant()
"""
SEEN = """\
import torch
def deduplicator():
    seen = []
    def fresh(batch):
        key = float(batch.sum())
        is_new = key not in [one for one, _ in seen[-16:]]
        seen.append((key, batch))
        return is_new
    fresh.forget = lambda n: seen.__delitem__(slice(None, n))
    return fresh
fresh = deduplicator()
"""
EPOCHS = """\
import torch
class Runner:
    def __init__(self):
        self.net, self.outputs = torch.nn.Linear(64, 64), []
    def step(self, x):
        self.outputs.append({"loss": self.net(x).mean(), "x": x})
    def epoch_end(self):
        return sum(one["loss"].item() for one in self.outputs) / len(self.outputs)
runner = Runner()
"""
TRUNCATED = "import torch\nrnn, hidden = torch.nn.GRUCell(32, 64), torch.zeros(16, 64)\n"
UNROLLED = """\
hidden = rnn(torch.randn(16, 32), hidden)
rnn.zero_grad()
hidden.square().mean().backward(retain_graph=True)
"""
TWICE = UNROLLED + "hidden.abs().mean().backward(retain_graph=True)\n"
FINALIZED = """\
import torch, weakref
class Reader:
    def __init__(self):
        self.block = torch.ones(9000)
        self.ending = weakref.finalize(self, self.close)
    def close(self):
        self.block = None
"""
CURVE = """\
import torch
class Curve:
    def __init__(self):
        self.epochs, self.n = [], 0
    def on_epoch_end(self, values):
        self.epochs.append(values)
        self.n = sum(len(one) for one in self.epochs)
curve = Curve()
"""
GAINS = """\
import torch
class One:
    def rate(self):
        return 1.0
class Scaled:
    def __init__(self, inner, gain):
        self.inner, self.gain, self.pad = inner, gain, torch.zeros(9000)
    def rate(self):
        return self.inner.rate() * self.gain
schedule, now = One(), 1.0
def configure(gain):
    global schedule
    schedule = Scaled(schedule, gain)
"""
SOMETIMES = "n += 1\nif n % 2 == 1:\n    average = Average(net, opt)\n"
BATCHES = "import torch\nnet, data, outs = torch.nn.Linear(64, 64), [torch.rand(32, 64) for _ in range(3)], []\n"
NUMBERED = """\
step = 0
for batch in data:
    step += 1
    with torch.no_grad():
        outs.append((step, net(batch)))
"""
ODD = "import types, torch\nk, metas, outs = 1, [types.SimpleNamespace(step=3)], []\n"
LIVE = """\
import time, torch
class Table:
    def __init__(self):
        self.live = {}
    def start(self, key):
        self.live[key] = torch.ones(9000)
    def done(self, key):
        self.live.pop(key)
table = Table()
"""
CURED = {
    "a wrapper that is given something else in each run": (
        GAINS, "now *= 0.9\nconfigure(now)\nrate = schedule.rate()",
        'Scaled(getattr(schedule, "inner", schedule), gain)',
    ),
    "numbers that begin again": (BATCHES, NUMBERED, "outs = []\nstep = 0"),
    "an index that is no literal": (ODD, "outs.append((metas[-k].step, torch.rand(9000)))", "del outs[:-5]"),
    "what the end of an epoch has read": (
        EPOCHS, "for _ in range(3):\n    runner.step(torch.randn(32, 64))\nmean = runner.epoch_end()",
        "len(self.outputs)\n        self.outputs.clear()\n        return result",
    ),
    "a state whose graph was retained": (TRUNCATED, UNROLLED, "mean().backward()\nhidden = hidden.detach()"),
    "a graph that is needed twice": (TRUNCATED, TWICE, "backward(retain_graph=True)\nhidden = hidden.detach()"),
    "a finalizer with a method of its object": (
        FINALIZED, "reader = Reader()\ntotal = reader.block.sum().item()",
        'if "reader" in globals():\n    reader.ending()\nreader = Reader()',
    ),
    "an average that follows an optimizer": (
        AVERAGE, f"average = Average(net, opt)\n{STEP}",
        'if "average" in globals():\n    average.watch.remove()\naverage = Average(net, opt)',
    ),
    "a plot that listens while it is shown": (
        THEME, "plot = Plot()\ntheme.change(3.0)", 'if "plot" in globals():\n    plot.leave()\nplot = Plot()',
    ),
    "a session's own way to give back": (SESSION, "block = session.block()", "session.give_back()\nblock ="),
    "an adapter that learns": (ADAPTED, ADAPT, 'if not parametrize.is_parametrized(layer, "weight"):'),
    "a wrapper that learns": (
        WRAPPED, "scheduler = Smoothed(scheduler, 0.9)\nrate = scheduler.rate()",
        "if not isinstance(scheduler, Smoothed):\n    scheduler = Smoothed(scheduler, 0.9)",
    ),
    "a window beside a way to forget": (SEEN, "is_new = fresh(torch.rand(3000))", "del seen[:-16]"),
}  # fmt: skip
REFUSED = {
    "a curve that the end of each epoch draws": (CURVE, "curve.on_epoch_end(torch.rand(9000))", ("clear()",)),
    "an average that is made in some runs": (f"{AVERAGE}n = 0", f"{SOMETIMES}{STEP}", ("in globals()",)),
    "a variable that is there before the first run": (
        f"{AVERAGE}average = None", f"average = Average(net, opt)\n{STEP}", ("in globals()",),
    ),
    "what another method takes out by its key": (
        LIVE, "table.start(f'{time.time()}')", ("while len", "clear()"),
    ),
    "a mask that is drawn anew": (NOISE, NOISY, ("is_parametrized",)),
    "snapshots by epoch": (SNAPSHOTS, "trainer.end_epoch()", ("while len", "clear()", "snapshots = {}")),
    "buffers by task": (
        ANCHORS, "task += 1\nnet.register_buffer(f'anchor_{task}', torch.rand(64, 64))", ('"anchor"',),
    ),
    "rows with a number": (ROWS, "recorder.note(torch.ones(9000))", ("maxlen", "popleft", "clear()", "rows = ")),
    "answers by a counter": (
        COUNTED, "answers[next(numbers)] = torch.ones(9000)", ("while len", "clear", "answers = "),
    ),
    "figures of each epoch": (
        HISTORY, "epoch += 1\nhistory.append((epoch, torch.ones(9000)))", ("del history", "history = ", "clear"),
    ),
}  # fmt: skip
