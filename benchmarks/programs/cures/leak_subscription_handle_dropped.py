"""An event bus returns a handle for each subscription, and every episode drops it."""

SOURCE = "zigpy/zigpy#1822"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "grows": "torch.Tensor",
    "holder": "_subscribers",
    "bytes_per_run": 20503,
    "count_per_run": 1,
    "fix": "keep the subscription and dispose of it when the episode ends",
}
SETUP = """
import torch

class Subscription:
    def __init__(self, bus, key):
        self.bus, self.key = bus, key

    def dispose(self):
        self.bus._subscribers.pop(self.key, None)

class Bus:
    def __init__(self):
        self._subscribers, self._next = {}, 0

    def subscribe(self, function):
        self._next += 1
        self._subscribers[self._next] = function
        return Subscription(self, self._next)

    def publish(self, value):
        for function in list(self._subscribers.values()):
            function(value)

class Episode:
    def __init__(self):
        self.frames = torch.zeros(5000)

    def on_value(self, value):
        self.frames[0] += value

bus = Bus()
"""
CELL = """
episode = Episode()
bus.subscribe(episode.on_value)
bus.publish(1.0)
"""
FIXED_CELL = """
episode = Episode()
subscription = bus.subscribe(episode.on_value)
bus.publish(1.0)
subscription.dispose()
"""
