"""An event keeps weak references to its listeners in a list; nobody takes the dead ones out."""

SOURCE = "robotools/defcon#12"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["container-growth"],
    "grows": "weakref.ReferenceType",
    "holder": "listeners",
    "bytes_per_run": 178,
    "count_per_run": 2,
    "fix": "a WeakSet, or prune dead references when one is added",
}
SETUP = """
import weakref

class Event:
    def __init__(self):
        self.listeners = []

    def subscribe(self, listener, prune=False):
        if prune:
            self.listeners[:] = [ref for ref in self.listeners if ref() is not None]
        self.listeners.append(weakref.ref(listener))

    def fire(self):
        return sum(ref() is not None for ref in self.listeners)

class View:
    def __init__(self, prune=False):
        changed.subscribe(self, prune)
        self.pixels = bytes(1000)

changed = Event()
"""
CELL = """
views = [View(), View()]
heard = changed.fire()
views.clear()
"""
FIXED_CELL = """
views = [View(prune=True), View(prune=True)]
heard = changed.fire()
views.clear()
"""
