"""Containers that are to let go by themselves, and others that must not: set-up, cell, what the change writes."""

REGISTRY = """\
import torch
class Layer:
    instances = []
    def __init__(self, n):
        self.weight = torch.zeros(n)
        Layer.instances.append(self)
    def __call__(self, x):
        return self.weight.sum() + x
    @classmethod
    def total(cls):
        return sum(layer.weight.numel() for layer in cls.instances)
"""
SESSIONS = """\
import torch
_live: set["Session"] = set()
class Session:
    def __init__(self, n):
        self.buffer = torch.zeros(n)
        _live.add(self)
def flush():
    for session in _live:
        session.buffer.zero_()
"""
BY_MODEL = """\
import torch
importance = {}
def fisher(net):
    if net not in importance:
        importance[net] = [torch.zeros_like(p) for p in net.parameters()]
    return importance[net]
"""
BY_NUMBER = """\
import torch
_angles = {}
class Head:
    made = 0
    def __init__(self):
        Head.made += 1
        self.number = Head.made
def angles(head, n):
    _angles[id(head), head.number] = torch.outer(torch.arange(n), torch.ones(100))
    return _angles[id(head), head.number].sum()
"""
SMOOTHED = """\
import collections, torch
class Smoother:
    def __init__(self, length=10):
        self.length = length
        self.window = collections.deque()
    def update(self, value):
        self.window.append(value)
        return sum(list(self.window)[-self.length:]) / self.length
smoother = Smoother()
"""
REPLAY = """\
import collections, random, torch
class Agent:
    def __init__(self):
        self.memory = collections.deque()
    def learn(self, state):
        self.memory.append(state)
        if len(self.memory) >= 16:
            return torch.stack(random.sample(self.memory, 16)).mean()
agent = Agent()
"""
LOCAL = """\
import itertools, threading, torch
local, serial = threading.local(), itertools.count()
local.buffers = {}
def scratch(n):
    key = next(serial)
    local.buffers[key] = torch.zeros(n)
    return local.buffers[key]
"""
STATS = """\
import torch
class Stats:
    def __init__(self, model, names):
        self.model, self.names, self.handles, self.means = model, names, [], {}
    def attach(self):
        modules = dict(self.model.named_modules())
        for name in self.names:
            self.handles.append(modules[name].register_forward_hook(self._hook(name)))
        return self
    def _hook(self, name):
        def hook(module, inputs, output):
            self.means[name] = output.detach().mean()
        return hook
    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
class Trainer:
    def __init__(self):
        self.model, self.history = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), []
    def validate(self):
        stats = Stats(self.model, ["0", "1"]).attach()
        loss = self.model(torch.ones(4, 8)).mean().item()
        self.history.append(float(stats.means["0"]))
        return loss
trainer = Trainer()
"""
PROBE = """\
import torch
class Probe:
    def __init__(self, layer):
        self.seen, self.handle = [], layer.register_forward_hook(self.note)
    def note(self, module, inputs, output):
        self.seen = [output.detach()]
    def close(self):
        self.handle.remove()
layer = torch.nn.Linear(64, 64)
def evaluate(xs):
    probe = Probe(layer)
    y = layer(xs).sum().item()
    return y, probe.seen[0].std().item()
"""
ENGINE = """\
import itertools, torch
class Session:
    def __init__(self, prompt):
        self.tokens, self.cache, self.finished = list(prompt), None, False
class Engine:
    def __init__(self):
        self.sessions, self._ids = {}, itertools.count()
    def submit(self, prompt):
        rid = next(self._ids)
        self.sessions[rid] = Session(prompt)
        return rid
    def run(self):
        for s in self.sessions.values():
            if not s.finished:
                s.cache = torch.randn(4, 64, 16)
                s.finished = True
    def result(self, rid):
        return self.sessions[rid].tokens
engine = Engine()
"""
ASKED_FOR = """\
ids = [engine.submit([1, 2, 3]) for _ in range(4)]
engine.run()
n = sum(len(engine.result(i)) for i in ids)
"""
CURED = {
    "sessions that somebody has asked for": (ENGINE, ASKED_FOR, "return self.sessions.pop(rid).tokens"),
    "hooks that their object removes": (STATS, "loss = trainer.validate()", "stats.detach()\n        return loss"),
    "a hook that the one who made it removes": (
        PROBE, "y, s = evaluate(torch.randn(16, 64))", "    probe.close()\n    return result",
    ),
    "what registers itself in a list": (
        REGISTRY, "y = Layer(9000)(1.0) + Layer.total()", "instances = weakref.WeakSet()",
    ),
    "what registers itself in a set": (
        SESSIONS, "session = Session(9000)\nflush()", '_live: weakref.WeakSet["Session"] = weakref.WeakSet()',
    ),
    "what is known of a model": (
        BY_MODEL, "net = torch.nn.Linear(100, 90)\ns = sum(f.sum() for f in fisher(net))",
        "importance = weakref.WeakKeyDictionary()",
    ),
    "what has an id for a key": (
        BY_NUMBER, "head = Head()\nr = angles(head, 90)",
        "weakref.finalize(head, _angles.pop, (id(head), head.number), None)",
    ),
    "a window that knows its length": (
        SMOOTHED, "m = smoother.update(torch.randn(9000)).mean()", "collections.deque(maxlen=self.length)",
    ),
    "a window that a sample is taken from": (
        REPLAY, "loss = agent.learn(torch.randn(9000))", "collections.deque(maxlen=16)",
    ),
    "what this thread has in a thread-local": (LOCAL, "total = scratch(9000).sum()", "while len(local.buffers) > 5:"),
}  # fmt: skip
PLUGINS = """\
import torch
plugins = []
class Plugin:
    def __init__(self, scale):
        self.scale = torch.full((9000,), scale)
        plugins.append(self)
def run(x):
    for plugin in plugins:
        x = x + plugin.scale
    return x
"""
RANKED = """\
import torch
scores = {}
def evaluate(net):
    with torch.no_grad():
        scores[net] = float(net(torch.ones(1, 100)).sum())
def best():
    return max(scores, key=scores.get)
"""
CHAIN = """\
import torch
class Stage:
    opened = []
    def __init__(self, n):
        self.data = torch.zeros(n)
        self.before = Stage.opened[-1] if Stage.opened else None
        Stage.opened.append(self)
"""
LAYERS = """\
import torch
layers = []
class Layer:
    def __init__(self, scale):
        self.scale = torch.full((9000,), scale)
        layers.append(self)
def forward(x):
    for layer in layers:
        x = x * layer.scale + 1.0
    return x
"""
REFUSED = {
    "layers that are applied in their order": (
        LAYERS, "layer = Layer(0.5)\ny = forward(torch.ones(9000)).sum() + layer.scale.sum()", ("weakref",),
    ),
    "sessions that are gone through, those asked for as well": (
        ENGINE.replace("            if not s.finished:\n", "            s.n = 1\n            if not s.finished:\n"),
        ASKED_FOR, (".pop(rid)",),
    ),
    "plugins that nobody else has": (PLUGINS, "Plugin(0.5)\ny = run(torch.zeros(9000)).sum()", ("weakref",)),
    "keys that are compared with each other": (
        RANKED, "net = torch.nn.Linear(100, 90)\nevaluate(net)\nw = best().weight.sum()", ("weakref",),
    ),
    "instances that are asked for by their place": (
        CHAIN, "stage = Stage(9000)\ns = stage.data.sum()", ("weakref",),
    ),
}  # fmt: skip
