"""A registration returns the function that takes it back; nobody calls it."""

SOURCE = "pattern of zigpy's on_event(), which returns the function that removes the listener (zigpy/zigpy#1822)"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["closure-kept"],
    "grows": "torch.Tensor",
    "holder": "listeners",
    "bytes_per_run": 16389,
    "count_per_run": 1,
    "fix": "call what on_event() returned when the request ends",
}
SETUP = """
import torch

class Device:
    def __init__(self):
        self.listeners = []

    def on_event(self, function):
        self.listeners.append(function)
        def off():
            self.listeners.remove(function)
        return off

    def emit(self, value):
        return [function(value) for function in list(self.listeners)]

def make(payload):
    def listener(value):
        return float(payload[0]) + value
    return listener

device = Device()
"""
CELL = """
unsub = device.on_event(make(torch.ones(4000)))
device.emit(2.0)
"""
FIXED_CELL = """
unsub = device.on_event(make(torch.ones(4000)))
device.emit(2.0)
unsub()
"""
