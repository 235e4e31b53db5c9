"""A watchdog starts a timer in every step and never cancels it."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "grows": "threading.Timer",
    "holder": "threading",
    "bytes_per_run": 11891,
    "count_per_run": 1,
    "fix": "timer.cancel() where the step ends",
}
SETUP = """
import threading, torch

class Watchdog:
    def __init__(self, seconds):
        self.seconds = seconds

    def start(self, state):
        timer = threading.Timer(self.seconds, print, ["stuck", state])
        timer.daemon = True
        timer.start()
        return timer

watchdog = Watchdog(3600.0)
"""
CELL = """
timer = watchdog.start(torch.zeros(2000))
total = float(torch.ones(10).sum())
"""
FIXED_CELL = """
timer = watchdog.start(torch.zeros(2000))
total = float(torch.ones(10).sum())
timer.cancel()
timer.join()
"""
