"""What a program collects and does not read: set-up, cell, what the change writes."""

PREDICTIONS = "import torch\nnet, all_preds = torch.nn.Linear(64, 256), []\n"
BEST = """\
import copy, torch
class Stopper:
    def __init__(self):
        self.best_score, self.best_weights = 1e9, []
    def step(self, score, model):
        if score < self.best_score:
            self.best_score = score
            self.best_weights.append(copy.deepcopy(model.state_dict()))
stopper, model, score = Stopper(), torch.nn.Linear(100, 50), 1e8
"""
LAST = """\
import torch
class Probe:
    def __init__(self):
        self.last_inputs = []
    def see(self, batch):
        self.last_inputs.append(batch)
        return batch.mean()
probe = Probe()
"""
FUTURES = """\
import torch
from concurrent.futures import ThreadPoolExecutor
pool, pending = ThreadPoolExecutor(1), []
def enqueue(n):
    pending.append(pool.submit(torch.randn, n))
"""
ASKED = FUTURES + "def total():\n    return sum(one.result().sum() for one in pending)\n"
RECORDS = """\
import logging, torch
class Memory(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []
    def emit(self, record):
        self.seen.append(record)
memory, log = Memory(), logging.getLogger("test.unread")
log.propagate = False
log.handlers[:] = [memory]
"""
COUNTED = RECORDS + "def errors():\n    return [one for one in memory.seen if one.levelno > 30]\n"
CURED = {
    "what one cell collects": (
        PREDICTIONS, "all_preds.append(net(torch.randn(32, 64)).detach().numpy())", "all_preds = []\nall_preds.append(",
    ),
    "the best": (BEST, "score -= 1.0\nstopper.step(score, model)", "del self.best_weights[:-1]"),
    "the last": (LAST, "mean = probe.see(torch.randn(100, 100))", "del self.last_inputs[:-1]"),
    "work that is done": (FUTURES, "enqueue(9000)", "pending[:] = [future for future in pending if not future.done()]"),
    "log records": (RECORDS, "log.warning('mean %s', torch.randn(100, 100))", "self.seen.append(self.format(record))"),
}  # fmt: skip
ALL_POINTS = """\
import torch
names, vectors, n = ["origin"], [torch.zeros(500)], 0
def nearest(point):
    found = int(torch.stack(vectors).sub(point).norm(dim=1).argmin())
    return names[found], vectors[0]
"""
REFUSED = {
    "what is looked through for the nearest": (
        ALL_POINTS,
        "n += 1\nnames.append(f'point {n}')\nvectors.append(torch.randn(500))\nnear = nearest(torch.randn(500))",
        ("vectors = []", "vectors.clear()", "del vectors"),
    ),
    "work whose results are asked for": (ASKED, "enqueue(9000)\nnow = total()", ("done()",)),
    "records that are read": (
        COUNTED, "log.warning('mean %s', torch.randn(100, 100))\nn = len(errors())", ("self.format(record)",),
    ),
}  # fmt: skip
