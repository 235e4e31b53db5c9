"""A scheduler stores the error of each task in its record."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "traceback-kept",
    "causes_ok": ["tensor-kept", "container-growth"],
    "grows": "RuntimeError",
    "holder": "records",
    "bytes_per_run": 16386,
    "count_per_run": 1,
    "fix": "keep the text of the error",
}
SETUP = """
import torch
from dataclasses import dataclass

@dataclass
class Record:
    name: str
    error: object = None

class Scheduler:
    def __init__(self):
        self.records = []

    def run(self, name, function):
        record = Record(name)
        try:
            function()
        except RuntimeError as exc:
            record.error = exc
        self.records.append(record)

def job():
    work = torch.ones(4000)
    raise RuntimeError("no luck")

scheduler = Scheduler()
"""
CELL = """
scheduler.run("job", job)
"""
FIXED_SETUP = """
import torch
from dataclasses import dataclass

@dataclass
class Record:
    name: str
    error: object = None

class Scheduler:
    def __init__(self):
        self.records = []

    def run(self, name, function):
        record = Record(name)
        try:
            function()
        except RuntimeError as exc:
            record.error = repr(exc)
        self.records.append(record)

def job():
    work = torch.ones(4000)
    raise RuntimeError("no luck")

scheduler = Scheduler()
"""
FIXED_CELL = """
scheduler.run("job", job)
"""
