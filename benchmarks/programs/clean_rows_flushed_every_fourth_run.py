"""Rows are collected and written to a file at every fourth run; the list is made anew then."""

SOURCE = "none: a pattern that is reported often"
TRUTH = {
    "leaks": False,
    "cause": "none-bounded",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import itertools, json, os, tempfile
target = os.path.join(tempfile.mkdtemp(), 'rows.json')
numbers = itertools.count()

class Writer:
    def __init__(self, every):
        self.every, self.rows, self.calls = every, [], 0

    def add(self, rows):
        self.rows.extend(rows)
        self.calls += 1
        if self.calls % self.every == 0:
            with open(target, 'w') as file:
                json.dump(self.rows, file)
            self.rows = []

writer = Writer(every=4)
"""
CELL = """
writer.add([{'id': next(numbers), 'text': 'row %d' % n} for n in range(20)])
"""
FIXED_CELL = """
writer.add([])
"""
