"""Cells that look as if they leaked, and do not: caches that fill, windows, sawteeth, what is replaced by each run."""

from __future__ import annotations

from leak_case import Case

CLEAN_CASES = (
    Case(
        name="kernels_prepared_in_the_first_eleven_runs",
        setup="""
import torch
kernels = []
""",
        cell="""
if len(kernels) < 11:
    kernels.append(torch.rand(30, 30))
y = torch.rand(30, 30) @ kernels[-1]
""",
    ),
    Case(
        name="cache_of_three_keys_then_full",
        setup="""
import itertools, torch
widths = itertools.cycle((64, 128, 256))
masks = {}
""",
        cell="""
width = next(widths)
if width not in masks:
    masks[width] = torch.ones(width, width).tril()
scores = torch.rand(width, width) * masks[width]
""",
    ),
    Case(
        name="cache_of_sixteen_keys_then_full",
        setup="""
import itertools, torch
bucket = itertools.cycle(range(16))

class Batcher:
    _tables = {}

    def table(self, n):
        return self._tables.setdefault(n, torch.rand(20 + n, 30))
""",
        cell="""
total = float(Batcher().table(next(bucket)).sum())
""",
    ),
    Case(
        name="cache_of_twenty_keys_filled_at_random",
        setup="""
import functools, random, torch
random.seed(203)

@functools.lru_cache(maxsize=None)
def embedding(token):
    return torch.rand(200)
""",
        cell="""
sentence = torch.stack([embedding(random.randrange(20)) for _ in range(6)])
""",
    ),
    Case(
        name="lru_cache_of_sixteen",
        setup="""
import functools, itertools, torch
number = itertools.count()

@functools.lru_cache(maxsize=16)
def page(n):
    return torch.rand(300)
""",
        cell="""
content = page(next(number))
""",
    ),
    Case(
        name="lru_cache_of_128",
        setup="""
import functools, itertools, torch
number = itertools.count()

class Store:
    @staticmethod
    @functools.lru_cache(maxsize=128)
    def page(n):
        return {'pixels': torch.rand(20, 20)}
""",
        cell="""
content = Store.page(next(number))['pixels'].sum()
""",
    ),
    Case(
        name="deque_of_fifty",
        setup="""
import collections, torch

class Meter:
    def __init__(self):
        self.window = collections.deque(maxlen=50)

meter = Meter()
""",
        cell="""
meter.window.append({'loss': torch.rand(100), 'lr': 0.1})
average = torch.stack([entry['loss'] for entry in meter.window]).mean()
""",
    ),
    Case(
        name="ring_of_twelve_places",
        setup="""
import itertools, torch
ring, place = [None] * 12, itertools.count()
""",
        cell="""
ring[next(place) % 12] = torch.rand(25, 25)
newest = max(float(x.max()) for x in ring if x is not None)
""",
    ),
    Case(
        name="flushed_every_third_run",
        setup="""
import torch
pending = {}
""",
        cell="""
pending[len(pending)] = torch.rand(400)
if len(pending) == 3:
    mean = torch.stack(list(pending.values())).mean()
    pending.clear()
""",
    ),
    Case(
        name="flushed_every_sixth_run_of_random_size",
        setup="""
import random, torch
random.seed(209)

class Writer:
    def __init__(self):
        self.chunks = []

    def add(self, chunk):
        self.chunks.append(chunk)
        if len(self.chunks) >= 6:
            self.chunks = []

writer = Writer()
""",
        cell="""
writer.add(torch.rand(random.randint(100, 2000)))
""",
    ),
    Case(
        name="flushed_every_seventh_run",
        setup="""
import torch
losses = []
""",
        cell="""
losses.append(torch.rand(300))
if len(losses) == 7:
    losses.clear()
""",
    ),
    Case(
        name="rows_flushed_every_ninth_run",
        setup="""
import io, random
random.seed(211)
rows = []
""",
        cell="""
rows.extend((random.random(), str(random.random())) for _ in range(40))
if len(rows) >= 9 * 40:
    text = io.StringIO()
    for row in rows:
        print(*row, sep=',', file=text)
    rows = []
""",
    ),
    Case(
        name="new_model_optimizer_and_scheduler_per_run",
        setup="""
import torch
from torch import nn
torch.manual_seed(212)
best = float('inf')
""",
        cell="""
model = nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.rand(16, 20)).pow(2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
best = min(best, loss.item())
""",
    ),
    Case(
        name="gradient_accumulated_over_four_runs_in_autocast",
        setup="""
import torch
from torch import nn
torch.manual_seed(213)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
micro_step = 0
""",
        cell="""
with torch.autocast('cpu', dtype=torch.bfloat16):
    loss = net(torch.rand(8, 16)).float().pow(2).mean() / 4
loss.backward()
micro_step += 1
if micro_step % 4 == 0:
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Case(
        name="batches_of_random_length",
        setup="""
import random, torch
random.seed(214)
net = torch.nn.Linear(8, 8)
""",
        cell="""
x = torch.rand(random.randint(1, 3000), 8)
y = net(x)
texts = ['token'] * random.randint(10, 4000)
""",
    ),
    Case(
        name="inputs_longer_by_design",
        setup="""
import itertools, torch
lengths = itertools.count(64, 64)
net = torch.nn.Linear(4, 4)
""",
        cell="""
n = next(lengths)
x = torch.rand(n, 4)
positions = torch.arange(n)
padding = torch.zeros(n)
y = net(x) + positions[:, None]
""",
    ),
    Case(
        name="loader_with_workers_per_epoch",
        setup="""
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.rand(12, 4), torch.rand(12))
""",
        cell="""
loader = DataLoader(data, batch_size=6, shuffle=True, num_workers=1)
total = sum(float(y.sum()) for x, y in loader)
""",
    ),
    Case(
        name="threads_that_end",
        setup="""
import queue, threading, torch

def produce(box, n):
    for _ in range(n):
        box.put(torch.rand(200))
    box.put(None)
""",
        cell="""
box = queue.Queue(maxsize=2)
thread = threading.Thread(target=produce, args=(box, 4))
thread.start()
total = sum(float(item.sum()) for item in iter(box.get, None))
thread.join()
""",
    ),
    Case(
        name="temporary_files_and_a_progress_bar",
        setup="""
import io, json, os, sys, tempfile, time, torch

class Progress:
    alive = set()

    def __init__(self, iterable, stream):
        self.iterable, self.stream, self.started = iterable, stream, time.time()
        Progress.alive.add(self)

    def __iter__(self):
        for i, item in enumerate(self.iterable):
            self.stream.write(f'\\r{i} done, {time.time() - self.started:.3f} s')
            yield item
        Progress.alive.discard(self)
""",
        cell="""
with tempfile.TemporaryDirectory() as folder:
    for i in Progress(range(5), io.StringIO()):
        path = os.path.join(folder, f'{i}.pt')
        torch.save({'x': torch.rand(100)}, path)
        x = torch.load(path)['x']
""",
    ),
    Case(
        name="figures_closed",
        setup="""
import io, matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
import torch
""",
        cell="""
figure, axes = plt.subplots(figsize=(2, 2))
axes.plot(torch.rand(30).tolist())
figure.savefig(io.BytesIO(), format='png')
plt.close(figure)
""",
    ),
    Case(
        name="table_of_the_newest_rows",
        setup="""
import numpy as np, pandas as pd
rng = np.random.default_rng(220)
table = pd.DataFrame({'loss': [], 'step': []})
step = 0
""",
        cell="""
step += 1
table = pd.concat([table, pd.DataFrame({'loss': [rng.random()], 'step': [step]})]).tail(10)
summary = table.describe()
""",
    ),
    Case(
        name="checkpoints_and_best_state_replaced",
        setup="""
import copy, io, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(221)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
best = {'loss': float('inf'), 'state': None}
""",
        cell="""
x = torch.rand(8, 16, requires_grad=True)
loss = checkpoint(net, x, use_reentrant=False).pow(2).mean()
loss.backward()
net.zero_grad()
if loss.item() < best['loss']:
    best = {'loss': loss.item(), 'state': copy.deepcopy(net.state_dict())}
file = io.BytesIO()
torch.save(net.state_dict(), file)
""",
    ),
    Case(
        name="averaged_model_copied_per_run",
        setup="""
import copy, torch
from torch import nn
torch.manual_seed(222)
net = nn.Linear(20, 20)
averaged = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
""",
        cell="""
with torch.no_grad():
    for p in net.parameters():
        p.add_(0.01 * torch.randn_like(p))
averaged.update_parameters(net)
teacher = copy.deepcopy(averaged).eval()
y = teacher(torch.rand(2, 20)).detach()
""",
    ),
    Case(
        name="replay_memory_full_from_the_start",
        setup="""
import random, torch
random.seed(223)
memory = [(torch.rand(40), random.random()) for _ in range(200)]
""",
        cell="""
for _ in range(8):
    memory[random.randrange(200)] = (torch.rand(40), random.random())
states = torch.stack([state for state, _ in random.sample(memory, 16)])
""",
    ),
    Case(
        name="validation_every_third_run",
        setup="""
import torch
from torch import nn
torch.manual_seed(224)
net, epoch, report = nn.Linear(10, 3), 0, {}
""",
        cell="""
epoch += 1
logits = net(torch.rand(32, 10))
if epoch % 3 == 0:
    with torch.no_grad():
        report = {'epoch': epoch, 'predictions': net(torch.rand(64, 10)), 'matrix': torch.zeros(3, 3)}
""",
    ),
    Case(
        name="records_in_a_bounded_handler",
        setup="""
import collections, logging, torch

class Recent(logging.Handler):
    def __init__(self, n):
        super().__init__()
        self.records = collections.deque(maxlen=n)

    def emit(self, record):
        self.records.append(record)

log = logging.getLogger('training.recent')
log.setLevel(logging.INFO)
log.propagate = False
log.addHandler(Recent(5))
""",
        cell="""
log.info('loss %s', torch.rand(200))
""",
    ),
    Case(
        name="weak_registries",
        setup="""
import torch, weakref
alive, by_name, listeners = weakref.WeakSet(), weakref.WeakValueDictionary(), []

class Session:
    def __init__(self, name):
        self.data = torch.rand(300)
        alive.add(self)
        by_name[name] = self
        listeners[:] = [ref for ref in listeners if ref() is not None]
        listeners.append(weakref.WeakMethod(self.close))

    def close(self):
        alive.discard(self)

count = 0
""",
        cell="""
count += 1
session = Session(f'session {count}')
""",
    ),
    Case(
        name="classes_and_functions_defined_in_the_cell",
        setup="""
import collections, dataclasses, enum, functools, sys, torch
from torch import nn
""",
        cell="""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x)

@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 6
    name: str = 'small'

class Color(enum.Enum):
    RED = 1
    BLUE = 2

Point = collections.namedtuple('Point', 'x y')

@functools.lru_cache(maxsize=None)
def squares(n):
    return [i * i for i in range(n)]

key = sys.intern('layer ' + str(squares(9)[-1]))
y = Net()(torch.rand(2, Config().width))
where = Point(Color.RED, y.detach())
""",
    ),
    Case(
        name="exceptions_caught_and_the_last_one_kept",
        setup="""
import torch, traceback
last_error, message = None, ''

def risky(n):
    data = torch.rand(n)
    return data[n]
""",
        cell="""
try:
    risky(300)
except IndexError as error:
    last_error = error
    message = traceback.format_exc()
""",
    ),
    Case(
        name="much_is_printed_and_counted",
        setup="""
import random, torch
calls, totals = 0, {'tokens': 0, 'loss': 0.0}
""",
        cell="""
random.seed(calls)
torch.manual_seed(calls)
calls += 1
for i in range(30):
    totals['tokens'] += 17
    totals['loss'] += float(torch.rand(()))
    print(f'step {calls}.{i}: tokens={totals["tokens"]} loss={totals["loss"]:.4f}')
""",
    ),
    Case(
        name="generators_consumed",
        setup="""
import itertools, torch

def windows(data, n):
    for start in range(0, len(data) - n, n):
        yield data[start : start + n]

pairs = []
""",
        cell="""
stream = windows(torch.rand(64), 8)
first, second = itertools.tee(stream)
pairs = [(a.sum(), b.sum()) for a, b in zip(first, second)]
rest = list(stream)
""",
    ),
    Case(
        name="patterns_compiled_from_data",
        setup="""
import itertools, re
number = itertools.count()
""",
        cell="""
pattern = f'(loss|acc){next(number)}=([0-9.]+)'
found = re.search(pattern, 'epoch 3 loss3=0.25 acc3=0.5')
""",
    ),
    Case(
        name="ring_of_a_hundred_places_filled_slowly",
        setup="""
import itertools, torch
ring, place = [None] * 100, itertools.count()
""",
        cell="""
ring[next(place) % 100] = torch.rand(500)
""",
    ),
)
