"""Every profiling session wraps the method that the session before has wrapped."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "closure-kept",
    "causes_ok": ["callback-registry"],
    "grows": "function",
    "holder": "forward",
    "bytes_per_run": 8408,
    "count_per_run": 1,
    "fix": "put the original back when the session ends",
}
SETUP = """
import torch, time

net = torch.nn.Linear(8, 8)

def profile(module):
    forward = module.forward
    times = torch.zeros(2000)
    def timed(x):
        start = time.perf_counter()
        y = type(module).forward(module, x)
        times[0] += time.perf_counter() - start
        return y
    timed.wrapped = forward
    module.forward = timed
    return times
"""
CELL = """
times = profile(net)
y = net(torch.ones(2, 8)).detach()
"""
FIXED_CELL = """
forward = net.forward
times = profile(net)
y = net(torch.ones(2, 8)).detach()
net.forward = forward
"""
