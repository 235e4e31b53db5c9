"""A background loader starts a thread that waits for a queue nobody empties."""

SOURCE = "justheuristic/prefetch_generator#8"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "grows": "threading.Thread",
    "holder": "thread",
    "bytes_per_run": 72578,
    "count_per_run": 1,
    "fix": "stop the thread, and join it",
}
SETUP = """
import queue, threading, torch

class Background:
    def __init__(self, batches):
        self.batches, self.queue, self.stopped = batches, queue.Queue(2), threading.Event()
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def fill(self):
        for batch in self.batches:
            while not self.stopped.is_set():
                try:
                    self.queue.put(batch, timeout=0.02)
                    break
                except queue.Full:
                    pass

    def next(self):
        return self.queue.get()

    def close(self):
        self.stopped.set()
        self.thread.join()
"""
CELL = """
loader = Background([torch.ones(2000) for _ in range(8)])
total = sum(float(loader.next().sum()) for _ in range(3))
"""
FIXED_CELL = """
loader = Background([torch.ones(2000) for _ in range(8)])
total = sum(float(loader.next().sum()) for _ in range(3))
loader.close()
"""
