"""A view is in a list and subscribed to a bus: either keeps it."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["tensor-kept", "container-growth"],
    "grows": "View",
    "holder": "listeners",
    "holders_ok": ["views"],
    "bytes_per_run": 12665,
    "count_per_run": 1,
    "fix": "unsubscribe it, and take it out of the list",
}
SETUP = """
import torch

class Bus:
    def __init__(self):
        self.listeners = []

    def subscribe(self, listener):
        self.listeners.append(listener)

    def unsubscribe(self, listener):
        self.listeners.remove(listener)

class View:
    def __init__(self):
        self.image = torch.zeros(3000)

    def on_event(self):
        return self.image

bus, views = Bus(), []
"""
CELL = """
view = View()
bus.subscribe(view.on_event)
views.append(view)
"""
FIXED_SETUP = """
import torch

class Bus:
    def __init__(self):
        self.listeners = []

    def subscribe(self, listener):
        self.listeners.append(listener)

    def unsubscribe(self, listener):
        self.listeners.remove(listener)

class View:
    def __init__(self):
        self.image = torch.zeros(3000)

    def on_event(self):
        return self.image

bus, views = Bus(), []
"""
FIXED_CELL = """
view = View()
bus.subscribe(view.on_event)
views.append(view)
bus.unsubscribe(view.on_event)
views.remove(view)
"""
