"""Each run opens a log file, and keeps it in a table by its name."""

SOURCE = "ludwig-ai/ludwig#269"
TRUTH = {
    "leaks": True,
    "cause": "descriptor-left",
    "causes_ok": ["container-growth", "global-cache"],
    "grows": "_io.TextIOWrapper",
    "holder": "writers",
    "bytes_per_run": 4301,
    "count_per_run": 1,
    "fix": "writer.close() and take it out of the table",
}
SETUP = """
import itertools, tempfile, os, torch

folder = tempfile.mkdtemp()
numbers = itertools.count()
writers = {}

class Writer:
    def __init__(self, path):
        self.file = open(path, "w")

    def add_scalar(self, value):
        self.file.write(f"{value}\\n")

    def close(self):
        self.file.close()

def writer_for(name):
    if name not in writers:
        writers[name] = Writer(os.path.join(folder, name))
    return writers[name]
"""
CELL = """
name = f"run{next(numbers)}"
writer = writer_for(name)
writer.add_scalar(0.5)
"""
FIXED_CELL = """
name = f"run{next(numbers)}"
writer = writer_for(name)
writer.add_scalar(0.5)
writers.pop(name).close()
"""
