"""Leaks by how long things live: notebooks, garbage, threads, tasks, optimizers, whole training runs."""

from __future__ import annotations

from leak_case import Case

LIFE_CASES = (
    Case(
        name="displayed_dicts_of_tensors",
        holders=("Out",),
        causes=("notebook-history",),
        setup="""
import torch
torch.manual_seed(90)
model = torch.nn.Linear(30, 30)
shell = get_ipython()
""",
        cell="""
shell.run_cell('''with torch.no_grad(): prediction = {'y': model(torch.rand(40, 30))}
prediction;''', store_history=True)
shell.run_cell("{'y': prediction['y'] * 2}", store_history=True)
""",
        fixed="""
shell.run_cell('''with torch.no_grad(): prediction = {'y': model(torch.rand(40, 30))}
prediction;''', store_history=True)
shell.run_cell("result = {'y': prediction['y'] * 2}", store_history=True)
""",
    ),
    Case(
        name="displayed_data_frames",
        holders=("Out",),
        causes=("notebook-history",),
        setup="""
import numpy as np, pandas as pd
rng = np.random.default_rng(91)
shell = get_ipython()

def show(frame):
    shell.execution_count += 1
    shell.displayhook.exec_result = None
    shell.displayhook.update_user_ns(frame)
""",
        cell="""
show(pd.DataFrame(rng.random((300, 3)), columns=list('abc')))
""",
        fixed="""
frame = pd.DataFrame(rng.random((300, 3)), columns=list('abc'))
shell.execution_count += 1
""",
    ),
    Case(
        name="trees_with_parents_gc_off",
        gc_off=True,
        holders=("parent", "children"),
        causes=("cycle-garbage",),
        setup="""
import torch
torch.manual_seed(100)

class Node:
    def __init__(self, parent=None):
        self.parent = parent
        self.children = []
        self.value = torch.rand(300)
        if parent is not None:
            parent.children.append(self)
""",
        cell="""
root = Node()
leaves = [Node(root) for _ in range(3)]
total = float(sum(leaf.value.sum() for leaf in leaves))
""",
        fixed="""
root = Node()
leaves = [Node(root) for _ in range(3)]
total = float(sum(leaf.value.sum() for leaf in leaves))
root.children.clear()
""",
    ),
    Case(
        name="object_keeps_its_own_method_gc_off",
        gc_off=True,
        holders=("on_done", "__self__"),
        causes=("cycle-garbage",),
        setup="""
import torch
torch.manual_seed(101)

class Job:
    def __init__(self):
        self.data = torch.rand(500)
        self.on_done = self.finish

    def finish(self):
        return float(self.data.sum())
""",
        cell="""
job = Job()
result = job.on_done()
""",
        fixed="""
job = Job()
result = job.on_done()
job.on_done = None
""",
    ),
    Case(
        name="error_kept_in_its_own_frame_gc_off",
        gc_off=True,
        holders=("problem", "traceback", "tb_frame"),
        causes=("cycle-garbage", "traceback-kept"),
        setup="""
import torch
torch.manual_seed(102)

def load(forget):
    problem = None
    pixels = torch.rand(40, 20)
    try:
        return int('x' * 3)
    except ValueError as error:
        problem = error
    message = str(problem)
    if forget:
        problem = None
    return message
""",
        cell="""
message = load(False)
""",
        fixed="""
message = load(True)
""",
    ),
    Case(
        name="queue_that_nobody_drains",
        holders=("results",),
        causes=("thread-or-worker-kept", "tensor-kept", "container-growth"),
        setup="""
import queue, torch
torch.manual_seed(110)

class Service:
    def __init__(self):
        self.results = queue.Queue()

    def serve(self, x):
        self.results.put({'input': x, 'output': x * 2})

service = Service()
""",
        cell="""
service.serve(torch.rand(500))
""",
        fixed="""
service.serve(torch.rand(500))
answer = service.results.get()
""",
    ),
    Case(
        name="threads_waiting_for_an_event",
        holders=("thread", "waiter", "Thread"),
        causes=("thread-or-worker-kept",),
        setup="""
import threading, torch
torch.manual_seed(111)

def waiter(started, stop):
    workspace = torch.rand(800)
    started.set()
    stop.wait()
    return float(workspace.sum())

def launch():
    started, stop = threading.Event(), threading.Event()
    worker = threading.Thread(target=waiter, args=(started, stop), daemon=True)
    worker.start()
    started.wait()
    return worker, stop
""",
        cell="""
worker, stop = launch()
""",
        fixed="""
worker, stop = launch()
stop.set()
worker.join()
""",
    ),
    Case(
        name="futures_of_a_pool",
        holders=("submitted",),
        causes=("tensor-kept", "container-growth", "thread-or-worker-kept"),
        setup="""
import concurrent.futures, torch
torch.manual_seed(112)
pool = concurrent.futures.ThreadPoolExecutor(1)
submitted = []

def evaluate(scale):
    return torch.rand(600) * scale
""",
        cell="""
future = pool.submit(evaluate, 2.0)
submitted.append(future)
value = float(future.result().sum())
""",
        fixed="""
future = pool.submit(evaluate, 2.0)
submitted[:] = [future]
value = float(future.result().sum())
""",
    ),
    Case(
        name="asyncio_tasks_waiting_at_a_gate",
        holders=("gate", "loop"),
        causes=("closure-kept", "thread-or-worker-kept", "callback-registry"),
        setup="""
import asyncio, torch
torch.manual_seed(113)
loop = asyncio.new_event_loop()
gate = asyncio.Event()

async def consume(batch):
    await gate.wait()
    return float(batch.sum())

async def spawn(cancel):
    task = asyncio.ensure_future(consume(torch.rand(700)))
    await asyncio.sleep(0)
    if cancel:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
""",
        cell="""
loop.run_until_complete(spawn(False))
""",
        fixed="""
loop.run_until_complete(spawn(True))
""",
    ),
    Case(
        name="optimizer_state_of_replaced_parameters",
        holders=("optimizer", ".state"),
        causes=("optimizer-state",),
        setup="""
import torch
from torch import nn
torch.manual_seed(120)
optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))])
""",
        cell="""
model = nn.Linear(20, 20)
optimizer.param_groups[0]['params'] = list(model.parameters())
model(torch.rand(4, 20)).sum().backward()
optimizer.step()
""",
        fixed="""
model = nn.Linear(20, 20)
optimizer.param_groups[0]['params'] = list(model.parameters())
optimizer.state.clear()
model(torch.rand(4, 20)).sum().backward()
optimizer.step()
""",
    ),
    Case(
        name="parameters_added_to_one_group",
        holders=("optimizer",),
        causes=("optimizer-state",),
        setup="""
import torch
from torch import nn
torch.manual_seed(121)
body = nn.Linear(10, 20)

class Tuner:
    def __init__(self):
        self.optimizer = torch.optim.SGD(body.parameters(), lr=0.01, momentum=0.9)

    def tune(self, head):
        params = self.optimizer.param_groups[0]['params']
        params.extend(head.parameters())
        self.optimizer.zero_grad()
        head(body(torch.rand(4, 10))).mean().backward()
        self.optimizer.step()

    def forget(self, head):
        gone = set(head.parameters())
        self.optimizer.param_groups[0]['params'][:] = list(body.parameters())
        for p in gone:
            self.optimizer.state.pop(p, None)

tuner = Tuner()
""",
        cell="""
head = nn.Linear(20, 30)
tuner.tune(head)
""",
        fixed="""
head = nn.Linear(20, 30)
tuner.tune(head)
tuner.forget(head)
""",
    ),
    Case(
        name="runs_as_dataclasses_in_a_list",
        holders=("finished",),
        causes=("run-switch",),
        setup="""
import dataclasses, torch
from torch import nn
torch.manual_seed(130)

@dataclasses.dataclass
class Run:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: object
    loss: float = 0.0

finished = []
""",
        cell="""
model = nn.Linear(25, 25)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
run = Run(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2))
loss = model(torch.rand(4, 25)).pow(2).mean()
loss.backward()
optimizer.step()
run.loss = loss.item()
finished.append(run)
""",
        fixed="""
model = nn.Linear(25, 25)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
run = Run(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2))
loss = model(torch.rand(4, 25)).pow(2).mean()
loss.backward()
optimizer.step()
run.loss = loss.item()
finished[:] = [run.loss]
""",
    ),
    Case(
        name="trials_of_a_study_by_rate_and_seed",
        holders=("study",),
        causes=("run-switch",),
        setup="""
import collections, itertools, torch
from torch import nn
torch.manual_seed(131)
Trial = collections.namedtuple('Trial', 'model optimizer score')

class Study:
    def __init__(self):
        self.trials = collections.defaultdict(dict)

    def run(self, rate, seed):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        loss = model(torch.rand(8, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return Trial(model, optimizer, loss.item())

study = Study()
seeds = itertools.count()
""",
        cell="""
for rate in (0.1, 0.01):
    seed = next(seeds)
    study.trials[rate][seed] = study.run(rate, seed)
""",
        fixed="""
for rate in (0.1, 0.01):
    study.trials[rate][0] = study.run(rate, next(seeds)).score
""",
    ),
)
