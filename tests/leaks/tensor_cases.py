"""Leaks of tensors: with their graphs, in containers of many kinds, at every so many runs."""

from __future__ import annotations

from leak_case import Case

TENSOR_CASES = (
    Case(
        name="graph_smoothed_loss_with_backward",
        holders=("smoothed",),
        causes=("graph-kept",),
        setup="""
import torch
from torch import nn
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
smoothed = torch.zeros(())
""",
        cell="""
inputs, targets = torch.randn(32, 20), torch.randn(32, 1)
optimizer.zero_grad()
loss = nn.functional.mse_loss(net(inputs), targets)
loss.backward()
optimizer.step()
smoothed = 0.9 * smoothed + 0.1 * loss
""",
        fixed="""
inputs, targets = torch.randn(32, 20), torch.randn(32, 1)
optimizer.zero_grad()
loss = nn.functional.mse_loss(net(inputs), targets)
loss.backward()
optimizer.step()
smoothed = 0.9 * smoothed + 0.1 * loss.detach()
""",
    ),
    Case(
        name="graph_hidden_state_carried_on",
        holders=("hidden",),
        causes=("graph-kept",),
        setup="""
import torch
from torch import nn
torch.manual_seed(2)
rnn = nn.GRU(8, 16, batch_first=True)
hidden = torch.zeros(1, 4, 16)
""",
        cell="""
chunk = torch.randn(4, 10, 8)
out, hidden = rnn(chunk, hidden)
score = out.mean().item()
""",
        fixed="""
chunk = torch.randn(4, 10, 8)
out, hidden = rnn(chunk, hidden.detach())
score = out.mean().item()
""",
    ),
    Case(
        name="graph_in_namedtuples_of_a_deque",
        holders=("trace",),
        causes=("graph-kept",),
        setup="""
import collections, itertools, torch
from torch import nn
torch.manual_seed(3)
Record = collections.namedtuple('Record', 'number loss')
trace = collections.deque()
numbers = itertools.count()
net = nn.Linear(30, 30)
""",
        cell="""
loss = net(torch.randn(50, 30)).pow(2).mean()
trace.append(Record(next(numbers), loss))
""",
        fixed="""
loss = net(torch.randn(50, 30)).pow(2).mean()
trace.append(Record(next(numbers), loss.item()))
if len(trace) > 5:
    trace.popleft()
""",
    ),
    Case(
        name="tensors_in_a_numpy_object_array",
        holders=("results",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import itertools, numpy as np, torch
torch.manual_seed(4)
results = np.empty(5000, dtype=object)
place = itertools.count()
""",
        cell="""
results[next(place)] = torch.rand(40, 40)
""",
        fixed="""
results[next(place) % 2] = torch.rand(40, 40)
""",
    ),
    Case(
        name="tensors_in_a_pandas_object_column",
        holders=("table",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import pandas as pd, torch
torch.manual_seed(5)
table = pd.DataFrame({'name': pd.Series(dtype=object), 'embedding': pd.Series(dtype=object)})
""",
        cell="""
table.loc[len(table)] = ['sample', torch.rand(60, 20)]
""",
        fixed="""
table.loc[len(table)] = ['sample', torch.rand(60, 20)]
table = table.tail(3).reset_index(drop=True)
""",
    ),
    Case(
        name="frames_linked_through_slots",
        holders=("newest", ".previous"),
        causes=("tensor-kept",),
        setup="""
import torch
torch.manual_seed(6)

class Frame:
    __slots__ = ('image', 'previous')

    def __init__(self, image, previous):
        self.image = image
        self.previous = previous

newest = None
""",
        cell="""
newest = Frame(torch.rand(3, 24, 24), newest)
""",
        fixed="""
newest = Frame(torch.rand(3, 24, 24), newest)
newest.previous = None
""",
    ),
    Case(
        name="tuple_in_a_context_variable",
        holders=("trail", "ContextVar", "context"),
        causes=("tensor-kept", "container-growth"),
        setup="""
import contextvars, torch
torch.manual_seed(7)
trail = contextvars.ContextVar('trail', default=())
request = contextvars.copy_context()

def handle(keep):
    step = torch.rand(50, 30)
    trail.set((*trail.get(), step)[-keep:])
""",
        cell="""
request.run(handle, 10**6)
""",
        fixed="""
request.run(handle, 2)
""",
    ),
    Case(
        name="undo_list_of_a_property_setter",
        holders=("_undo",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import torch
torch.manual_seed(8)

class Canvas:
    def __init__(self):
        self._mask = None
        self._undo = []

    @property
    def mask(self):
        return self._mask

    @mask.setter
    def mask(self, value):
        if self._mask is not None:
            self._undo.append(self._mask)
        self._mask = value

    def commit(self):
        self._undo.clear()

canvas = Canvas()
""",
        cell="""
canvas.mask = torch.rand(64, 20) > 0.5
area = int(canvas.mask.sum())
""",
        fixed="""
canvas.mask = torch.rand(64, 20) > 0.5
area = int(canvas.mask.sum())
canvas.commit()
""",
    ),
    Case(
        name="evaluations_in_a_dataclass_field",
        holders=("state.evaluations",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import dataclasses, torch
torch.manual_seed(9)

@dataclasses.dataclass
class Evaluation:
    logits: torch.Tensor
    labels: torch.Tensor

@dataclasses.dataclass
class State:
    step: int = 0
    evaluations: list = dataclasses.field(default_factory=list)

state = State()
""",
        cell="""
state.step += 1
with torch.no_grad():
    state.evaluations.append(Evaluation(torch.rand(64, 10), torch.randint(10, (64,))))
""",
        fixed="""
state.step += 1
with torch.no_grad():
    state.evaluations[:] = [Evaluation(torch.rand(64, 10), torch.randint(10, (64,)))]
""",
    ),
    Case(
        name="logits_concatenated_with_themselves",
        holders=("all_logits",),
        causes=("container-growth", "tensor-kept"),
        setup="""
import torch
torch.manual_seed(10)
all_logits = torch.empty(0, 10)
""",
        cell="""
logits = torch.rand(32, 10)
all_logits = torch.cat([all_logits, logits])
accuracy = float(all_logits.argmax(1).float().mean())
""",
        fixed="""
logits = torch.rand(32, 10)
all_logits = torch.cat([all_logits, logits])[-64:].clone()
accuracy = float(all_logits.argmax(1).float().mean())
""",
    ),
    Case(
        name="buffers_registered_under_new_names",
        holders=("_buffers", "encoder"),
        causes=("tensor-kept", "container-growth"),
        setup="""
import itertools, torch
from torch import nn
torch.manual_seed(11)

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 16)

    def forward(self, x, name):
        self.register_buffer(name, torch.rand(40, 40).triu(), persistent=False)
        return self.proj(x)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(2)])

encoder = Encoder()
steps = itertools.count()
""",
        cell="""
with torch.no_grad():
    y = encoder.layers[1](torch.rand(4, 16), f'mask_{next(steps)}')
""",
        fixed="""
with torch.no_grad():
    y = encoder.layers[1](torch.rand(4, 16), 'mask')
""",
    ),
    Case(
        name="hard_examples_every_third_run",
        holders=("hard_examples",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import torch
torch.manual_seed(12)
step, hard_examples = 0, []
""",
        cell="""
batch = torch.rand(30, 30)
step += 1
if step % 3 == 0:
    hard_examples.append(batch.clone())
""",
        fixed="""
batch = torch.rand(30, 30)
step += 1
if step % 3 == 0:
    hard_examples[:] = [batch.clone()]
""",
    ),
    Case(
        name="crops_of_random_size_every_fourth_run",
        holders=("gallery",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import random, torch
torch.manual_seed(13)
random.seed(13)

class Viewer:
    def __init__(self):
        self.gallery = {}
        self.seen = 0

    def show(self, image):
        self.seen += 1
        if self.seen % 4 == 0:
            self.gallery.setdefault('train', []).append(image)

viewer = Viewer()
""",
        cell="""
viewer.show(torch.rand(3, random.randint(8, 60), random.randint(8, 60)))
""",
        fixed="""
viewer.show(torch.rand(3, random.randint(8, 60), random.randint(8, 60)))
viewer.gallery.clear()
""",
    ),
    Case(
        name="one_list_flushed_its_neighbour_not",
        holders=("done",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import torch
torch.manual_seed(14)
buffers = {'pending': [], 'done': []}
""",
        cell="""
buffers['pending'].append(torch.rand(20, 50))
if len(buffers['pending']) == 5:
    buffers['done'].append(torch.stack(buffers['pending']).amax(0))
    buffers['pending'].clear()
""",
        fixed="""
buffers['pending'].append(torch.rand(20, 50))
if len(buffers['pending']) == 5:
    buffers['done'][:] = [torch.stack(buffers['pending']).amax(0)]
    buffers['pending'].clear()
""",
    ),
    Case(
        name="weights_of_each_new_model_kept",
        holders=("snapshots",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import torch
from torch import nn
torch.manual_seed(15)
snapshots = []
""",
        cell="""
model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.rand(8, 20)).sum().backward()
    optimizer.step()
snapshots.append({name: value.clone() for name, value in model.state_dict().items()})
""",
        fixed="""
model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.rand(8, 20)).sum().backward()
    optimizer.step()
snapshots = [{name: value.clone() for name, value in model.state_dict().items()}]
""",
    ),
    Case(
        name="log_records_keep_their_arguments",
        holders=("buffer",),
        causes=("tensor-kept", "container-growth", "callback-registry"),
        setup="""
import logging, logging.handlers, torch
torch.manual_seed(16)
log = logging.getLogger('trainer.batches')
log.setLevel(logging.INFO)
log.propagate = False
memory = logging.handlers.MemoryHandler(capacity=10**6, flushLevel=logging.CRITICAL)
log.addHandler(memory)
""",
        cell="""
batch = torch.rand(25, 40)
log.info('batch %s', batch)
""",
        fixed="""
batch = torch.rand(25, 40)
log.info('batch %s', tuple(batch.shape))
memory.flush()
memory.buffer.clear()
""",
    ),
    Case(
        name="attributes_under_made_up_names",
        holders=("session",),
        causes=("tensor-kept", "container-growth"),
        setup="""
import random, string, torch
torch.manual_seed(17)
random.seed(17)

class Session:
    pass

session = Session()
""",
        cell="""
setattr(session, ''.join(random.choices(string.ascii_lowercase, k=8)), torch.rand(500))
""",
        fixed="""
session.result = torch.rand(500)
""",
    ),
    Case(
        name="variables_under_made_up_names",
        holders=("globals()", "notebook variable"),
        causes=("tensor-kept", "container-growth", "global-cache"),
        setup="""
import random, string, torch
torch.manual_seed(18)
random.seed(18)
""",
        cell="""
globals()['run_' + ''.join(random.choices(string.ascii_lowercase, k=8))] = torch.rand(500)
""",
        fixed="""
globals()['run_newest'] = torch.rand(500)
""",
    ),
    Case(
        name="objects_as_keys",
        holders=("outputs",),
        causes=("global-cache", "tensor-kept", "container-growth"),
        setup="""
import torch
torch.manual_seed(19)
outputs = {}

class Request:
    pass
""",
        cell="""
outputs[Request()] = torch.rand(500)
""",
        fixed="""
outputs = {Request(): torch.rand(500)}
""",
    ),
)
