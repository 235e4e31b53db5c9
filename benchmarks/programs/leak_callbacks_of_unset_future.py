"""Each batch adds a callback to a torch future that is never completed: functions and batches are held from C++."""

SOURCE = "pytorch/pytorch#36502"
TRUTH = {
    "leaks": True,
    "cause": "native",
    "causes_ok": ["closure-kept", "callback-registry", "thread-or-worker-kept", "tensor-kept"],
    "grows": "torch.Tensor",
    "holder": "on_ready",
    "holders_ok": ["ready", "Future"],
    "bytes_per_run": 40900,
    "count_per_run": 1,
    "fix": "complete the future, or ask it when it is needed",
}
SETUP = """
import torch
torch.manual_seed(0)
ready = torch.futures.Future()

def submit(batch):
    def on_ready(future):
        return batch.sum()
    ready.add_done_callback(on_ready)
    return float(batch[0, 0])

def ask(batch):
    return float(batch.sum()) if ready.done() else float(batch[0, 0])
"""
CELL = """
value = submit(torch.randn(100, 100))
"""
FIXED_CELL = """
value = ask(torch.randn(100, 100))
"""
