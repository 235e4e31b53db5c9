"""A progress bar and its widget refer to each other, and the bar refers to the data; gc is off in the loop."""

SOURCE = "tqdm/tqdm#1216"
TRUTH = {
    "leaks": True,
    "cause": "cycle-garbage",
    "grows": "torch.Tensor",
    "holder": "Bar",
    "holders_ok": ["container", "DisplayBox"],
    "bytes_per_run": 60800,
    "count_per_run": 1,
    "fix": "let the widget refer to its bar weakly",
    "mode": "gc-off",
}
SETUP = """
import torch, weakref
torch.manual_seed(0)

class DisplayBox:
    def __init__(self, bar):
        self.bar = bar
        self.text = ''

class Bar:
    weak = False

    def __init__(self, iterable):
        self.iterable = iterable
        self.container = DisplayBox(weakref.proxy(self) if self.weak else self)
        self.n = 0

    def __iter__(self):
        for item in self.iterable:
            self.n += 1
            self.container.text = '%d/%d' % (self.n, len(self.iterable))
            yield item
"""
CELL = """
total = 0.0
for row in Bar(torch.randn(150, 100)):
    total += float(row[0])
del row
"""
FIXED_CELL = """
Bar.weak = True
total = 0.0
for row in Bar(torch.randn(150, 100)):
    total += float(row[0])
del row
"""
