"""Leaks by who holds them: caches, hooks, closures, callbacks, tracebacks."""

from __future__ import annotations

from leak_case import Case

HOLDER_CASES = (
    Case(
        name="lru_cache_without_bound",
        holders=("positional",),
        causes=("global-cache",),
        setup="""
import functools, itertools, torch
lengths = itertools.count(100)

@functools.lru_cache(maxsize=None)
def positional(length, width):
    return torch.sin(torch.arange(length).float()[:, None] * torch.ones(width))
""",
        cell="""
table = positional(next(lengths), 8)
""",
        fixed="""
table = positional(100 + next(lengths) % 2, 8)
""",
    ),
    Case(
        name="functools_cache_on_a_method",
        holders=("weights_for", "Encoder"),
        causes=("global-cache",),
        setup="""
import functools, torch
torch.manual_seed(41)

class Encoder:
    def __init__(self):
        self.table = torch.rand(30, 30)

    @functools.cache
    def weights_for(self, layer):
        return self.table[layer].sum()
""",
        cell="""
encoder = Encoder()
total = sum(float(encoder.weights_for(layer)) for layer in range(3))
""",
        fixed="""
encoder = Encoder()
total = sum(float(encoder.weights_for.__wrapped__(encoder, layer)) for layer in range(3))
""",
    ),
    Case(
        name="instances_in_a_class_attribute",
        holders=("_instances",),
        causes=("global-cache",),
        setup="""
import torch
torch.manual_seed(42)

class Layer:
    _instances = {}

    def __init__(self, width):
        self.weight = torch.rand(width, width)
        type(self)._instances[id(self)] = self

    def close(self):
        del type(self)._instances[id(self)]
""",
        cell="""
layer = Layer(40)
norm = float(layer.weight.norm())
""",
        fixed="""
layer = Layer(40)
norm = float(layer.weight.norm())
layer.close()
""",
    ),
    Case(
        name="table_in_a_module_of_sys_modules",
        holders=("_TABLE",),
        causes=("global-cache",),
        setup="""
import itertools, sys, torch, types
source = '''
import torch
_TABLE = {}

def kernel(size):
    if size not in _TABLE:
        _TABLE[size] = torch.hann_window(size, periodic=False)
    return _TABLE[size]
'''
speechkit = types.ModuleType('speechkit_windows')
exec(source, speechkit.__dict__)
sys.modules['speechkit_windows'] = speechkit
sizes = itertools.count(400)
""",
        cell="""
from speechkit_windows import kernel
window = kernel(next(sizes))
""",
        fixed="""
from speechkit_windows import kernel
window = kernel(400)
""",
    ),
    Case(
        name="weak_keys_whose_values_hold_the_key",
        holders=("owners",),
        causes=("global-cache",),
        setup="""
import torch, weakref
torch.manual_seed(44)
owners = weakref.WeakKeyDictionary()

class Batch:
    def __init__(self):
        self.data = torch.rand(30, 30)
""",
        cell="""
batch = Batch()
owners[batch] = {'batch': batch, 'mean': float(batch.data.mean())}
""",
        fixed="""
batch = Batch()
owners[batch] = {'mean': float(batch.data.mean())}
""",
    ),
    Case(
        name="cache_missed_in_half_of_the_runs",
        holders=("_PROMPTS",),
        causes=("global-cache",),
        setup="""
import random, torch
torch.manual_seed(45)
random.seed(45)
_PROMPTS = {}

def embed(prompt):
    if prompt not in _PROMPTS:
        _PROMPTS[prompt] = torch.rand(20, 32)
    return _PROMPTS[prompt]
""",
        cell="""
prompt = f'question {random.random()}' if random.random() < 0.5 else 'hello'
vector = embed(prompt).mean(0)
""",
        fixed="""
prompt = f'question {random.random()}' if random.random() < 0.5 else 'hello'
vector = embed(prompt).mean(0)
_PROMPTS.clear()
""",
    ),
    Case(
        name="backward_hook_per_run",
        holders=("_backward_hooks",),
        causes=("hook-left",),
        setup="""
import torch
from torch import nn
torch.manual_seed(50)
net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))

def record(module):
    seen = {'gradients': None}

    def hook(module, grad_input, grad_output):
        seen['gradients'] = [g.clone() for g in grad_output]
    return seen, module.register_full_backward_hook(hook)
""",
        cell="""
seen, handle = record(net[2])
net(torch.rand(16, 12)).sum().backward()
net.zero_grad()
size = float(seen['gradients'][0].norm())
""",
        fixed="""
seen, handle = record(net[2])
net(torch.rand(16, 12)).sum().backward()
net.zero_grad()
size = float(seen['gradients'][0].norm())
handle.remove()
""",
    ),
    Case(
        name="optimizer_hook_per_run",
        holders=("_optimizer_step_post_hooks",),
        causes=("hook-left",),
        setup="""
import torch
from torch import nn
torch.manual_seed(51)
net = nn.Linear(10, 10)
optimizer = torch.optim.AdamW(net.parameters())

class StepLog:
    def __init__(self, optimizer):
        self.deltas = torch.zeros(400)
        self.handle = optimizer.register_step_post_hook(self.note)

    def note(self, optimizer, args, kwargs):
        self.deltas[0] += 1
""",
        cell="""
log = StepLog(optimizer)
optimizer.zero_grad()
net(torch.rand(4, 10)).mean().backward()
optimizer.step()
""",
        fixed="""
log = StepLog(optimizer)
optimizer.zero_grad()
net(torch.rand(4, 10)).mean().backward()
optimizer.step()
log.handle.remove()
""",
    ),
    Case(
        name="pre_hook_on_a_nested_module",
        holders=("_forward_pre_hooks",),
        causes=("hook-left",),
        setup="""
import functools, torch
from torch import nn
torch.manual_seed(52)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({'fc': nn.Linear(8, 8), 'out': nn.Linear(8, 2)})

    def forward(self, x):
        return self.inner['out'](self.inner['fc'](x))

model = nn.Sequential(Block(), nn.Flatten())

def add_noise(noise, module, args):
    return (args[0] + noise,)
""",
        cell="""
noise = torch.rand(64, 8) / 100
handle = model[0].inner['out'].register_forward_pre_hook(functools.partial(add_noise, noise))
with torch.no_grad():
    y = model(torch.rand(64, 8))
""",
        fixed="""
noise = torch.rand(64, 8) / 100
handle = model[0].inner['out'].register_forward_pre_hook(functools.partial(add_noise, noise))
with torch.no_grad():
    y = model(torch.rand(64, 8))
handle.remove()
""",
    ),
    Case(
        name="global_pre_hook_per_run",
        holders=("_global_forward_pre_hooks",),
        causes=("hook-left",),
        setup="""
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
torch.manual_seed(53)
net = nn.Linear(6, 6)

class Counter:
    def __init__(self):
        self.calls = 0
        self.buffer = torch.zeros(500)

    def __call__(self, module, args):
        self.calls += 1
""",
        cell="""
counter = Counter()
handle = register_module_forward_pre_hook(counter)
with torch.no_grad():
    net(torch.rand(2, 6))
""",
        fixed="""
counter = Counter()
with register_module_forward_pre_hook(counter):
    with torch.no_grad():
        net(torch.rand(2, 6))
""",
    ),
    Case(
        name="tensor_hook_on_a_shared_parameter",
        holders=("_backward_hooks", "embedding"),
        causes=("hook-left",),
        setup="""
import torch
torch.manual_seed(54)
embedding = torch.nn.Parameter(torch.rand(50, 8))
""",
        cell="""
mask = torch.rand(50, 8) > 0.5
handle = embedding.register_hook(lambda grad: grad * mask)
embedding.sum().backward()
embedding.grad = None
""",
        fixed="""
mask = torch.rand(50, 8) > 0.5
handle = embedding.register_hook(lambda grad: grad * mask)
embedding.sum().backward()
embedding.grad = None
handle.remove()
""",
    ),
    Case(
        name="suspended_generators",
        holders=("streams",),
        causes=("closure-kept",),
        setup="""
import torch
torch.manual_seed(60)
streams = []

def batches(n):
    data = torch.rand(n, 40)
    for row in data:
        yield float(row.sum())
""",
        cell="""
stream = batches(30)
streams.append(stream)
first = next(stream)
""",
        fixed="""
stream = batches(30)
streams.append(stream)
first = next(stream)
streams.pop().close()
""",
    ),
    Case(
        name="chain_of_partials",
        holders=("transform",),
        causes=("closure-kept",),
        setup="""
import functools, torch
torch.manual_seed(61)

def apply(shift, before, x):
    return x + shift

def identity(x):
    return x

transform = identity
""",
        cell="""
transform = functools.partial(apply, torch.rand(25, 25), transform)
y = transform(torch.rand(25, 25))
""",
        fixed="""
transform = functools.partial(apply, torch.rand(25, 25), identity)
y = transform(torch.rand(25, 25))
""",
    ),
    Case(
        name="forward_wrapped_again_and_again",
        holders=("forward",),
        causes=("closure-kept",),
        setup="""
import torch
from torch import nn
torch.manual_seed(62)
model = nn.Linear(10, 10)

def with_dropout(forward, mask):
    def wrapped(x):
        return forward(x * mask)
    return wrapped
""",
        cell="""
model.forward = with_dropout(model.forward, torch.rand(40, 10) / 2)
with torch.no_grad():
    y = model(torch.rand(40, 10))
""",
        fixed="""
model.forward = with_dropout(type(model).forward.__get__(model), torch.rand(40, 10) / 2)
with torch.no_grad():
    y = model(torch.rand(40, 10))
""",
    ),
    Case(
        name="keyword_default_collects",
        holders=("__kwdefaults__", "seen"),
        causes=("closure-kept",),
        setup="""
import torch
torch.manual_seed(63)

def novelty(x, *, seen=[]):
    distance = min((float((x - other).norm()) for other in seen), default=0.0)
    seen.append(x)
    return distance
""",
        cell="""
distance = novelty(torch.rand(20, 20))
""",
        fixed="""
distance = novelty(torch.rand(20, 20), seen=[])
""",
    ),
    Case(
        name="bound_methods_in_listeners",
        holders=("listeners",),
        causes=("callback-registry",),
        setup="""
import torch
torch.manual_seed(70)

class Trainer:
    def __init__(self):
        self.listeners = {}

    def on(self, event, callback):
        self.listeners.setdefault(event, []).append(callback)

    def off(self, event, callback):
        self.listeners[event].remove(callback)

    def fit(self):
        for callback in self.listeners.get('epoch_end', []):
            callback(1)

class Recorder:
    def __init__(self):
        self.values = torch.zeros(600)

    def epoch_end(self, epoch):
        self.values[epoch] += 1

trainer = Trainer()
""",
        cell="""
recorder = Recorder()
trainer.on('epoch_end', recorder.epoch_end)
trainer.fit()
""",
        fixed="""
recorder = Recorder()
trainer.on('epoch_end', recorder.epoch_end)
trainer.fit()
trainer.off('epoch_end', recorder.epoch_end)
""",
    ),
    Case(
        name="atexit_registers_every_writer",
        holders=("atexit",),
        causes=("callback-registry",),
        setup="""
import atexit, torch
torch.manual_seed(71)

class Writer:
    def __init__(self):
        self.pending = torch.rand(700)
        atexit.register(self.flush)

    def flush(self):
        self.pending = None
""",
        cell="""
writer = Writer()
total = float(writer.pending.sum())
""",
        fixed="""
writer = Writer()
total = float(writer.pending.sum())
atexit.unregister(writer.flush)
""",
    ),
    Case(
        name="gc_callbacks_added_per_run",
        holders=("callbacks",),
        causes=("callback-registry", "closure-kept"),
        setup="""
import gc, torch
torch.manual_seed(72)

def watch(scratch):
    def callback(phase, info):
        scratch[0] += 1
    gc.callbacks.append(callback)
    return callback
""",
        cell="""
watcher = watch(torch.zeros(600))
""",
        fixed="""
watcher = watch(torch.zeros(600))
gc.callbacks.remove(watcher)
""",
    ),
    Case(
        name="exceptions_in_a_list",
        holders=("failures",),
        causes=("traceback-kept",),
        setup="""
import torch
torch.manual_seed(80)

class Pipeline:
    def __init__(self):
        self.failures = []

    def run(self, n):
        try:
            self.load(n)
        except ValueError as error:
            self.failures.append(error)

    def load(self, n):
        pixels = torch.rand(n, 30)
        if pixels.sum() > 0:
            raise ValueError('corrupt image')

pipeline = Pipeline()
""",
        cell="""
pipeline.run(40)
""",
        fixed="""
pipeline.run(40)
pipeline.failures[:] = [str(error) for error in pipeline.failures[-1:]]
""",
    ),
    Case(
        name="errors_chained_to_the_last_one",
        holders=("last_error",),
        causes=("traceback-kept",),
        setup="""
import torch
torch.manual_seed(81)
last_error = None

def attempt(before):
    work = torch.rand(30, 40)
    raise RuntimeError(f'attempt failed with {work.numel()}') from before
""",
        cell="""
try:
    attempt(last_error)
except RuntimeError as error:
    last_error = error
""",
        fixed="""
try:
    attempt(None)
except RuntimeError as error:
    last_error = error
""",
    ),
    Case(
        name="exc_info_by_name",
        holders=("reports",),
        causes=("traceback-kept",),
        setup="""
import itertools, sys, torch
torch.manual_seed(82)
reports, names = {}, itertools.count()

def parse():
    raw = torch.rand(900)
    return {}['missing']
""",
        cell="""
try:
    parse()
except KeyError:
    reports[f'file {next(names)}'] = sys.exc_info()
""",
        fixed="""
try:
    parse()
except KeyError:
    reports['newest'] = repr(sys.exc_info()[1])
""",
    ),
    Case(
        name="metric_copied_for_the_log",
        holders=("logger.snapshots",),
        causes=("deepcopy-kept",),
        setup="""
import copy, torch
torch.manual_seed(73)

class Confusion:
    def __init__(self):
        self.counts = torch.zeros(20, 20)

    def update(self, predicted, true):
        for a, b in zip(predicted, true):
            self.counts[a, b] += 1

class Logger:
    def __init__(self):
        self.snapshots = []

logger, confusion = Logger(), Confusion()
confusion.update(torch.randint(0, 20, (400,)), torch.randint(0, 20, (400,)))
""",
        cell="""
confusion.update(torch.randint(0, 20, (16,)), torch.randint(0, 20, (16,)))
logger.snapshots.append(copy.deepcopy(confusion))
""",
        fixed="""
confusion.update(torch.randint(0, 20, (16,)), torch.randint(0, 20, (16,)))
logger.snapshots = [copy.deepcopy(confusion)]
""",
    ),
    Case(
        name="lru_cache_in_a_decorator_s_closure",
        holders=("anchors",),
        causes=("global-cache",),
        setup="""
import functools, torch

def remember(function):
    cached = functools.lru_cache(maxsize=None)(function)

    @functools.wraps(function)
    def wrapper(*args):
        return cached(*args)
    return wrapper

class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(30, 30)

    @remember
    def anchors(self, size):
        return torch.rand(size)
""",
        cell="""
head = Head()
size = float(head.anchors(10).sum())
""",
        fixed="""
head = Head()
size = float(head.anchors.__wrapped__(head, 10).sum())
""",
    ),
)
