"""A tracer registers its own shutdown at exit, and is kept until then."""

SOURCE = "DataDog/dd-trace-py#2409"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["native"],
    "grows": "Tracer",
    "holder": "atexit",
    "bytes_per_run": 33,
    "count_per_run": 1,
    "fix": "atexit.unregister(self.shutdown) in the function that shuts down",
}
SETUP = """
import atexit, torch

class Tracer:
    def __init__(self):
        self.spans = torch.zeros(3000)
        atexit.register(self.shutdown)

    def trace(self):
        self.spans += 1

    def shutdown(self):
        self.spans = None
"""
CELL = """
tracer = Tracer()
tracer.trace()
tracer.shutdown()
"""
FIXED_CELL = """
tracer = Tracer()
tracer.trace()
tracer.shutdown()
atexit.unregister(tracer.shutdown)
"""
