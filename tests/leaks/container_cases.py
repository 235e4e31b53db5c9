"""Leaks of plain data: numbers, texts, bytes, arrays and tables that get longer."""

from __future__ import annotations

from leak_case import Case

CONTAINER_CASES = (
    Case(
        name="floats_in_a_defaultdict_of_lists",
        holders=("history",),
        causes=("container-growth",),
        setup="""
import collections, torch
torch.manual_seed(20)
history = collections.defaultdict(list)
""",
        cell="""
for value in torch.rand(60).tolist():
    history['loss'].append(value)
""",
        fixed="""
for value in torch.rand(60).tolist():
    history['loss'].append(value)
del history['loss'][:-60]
""",
    ),
    Case(
        name="numbers_in_nested_logs",
        holders=("log", "metrics"),
        causes=("container-growth",),
        setup="""
import random
random.seed(21)

class Trainer:
    def __init__(self):
        self.metrics = {'train': {'loss': [], 'lr': []}, 'valid': {'loss': []}}

    def log(self, split, **values):
        for key, value in values.items():
            self.metrics[split][key].append(value)

trainer = Trainer()
""",
        cell="""
for _ in range(50):
    trainer.log('train', loss=random.random(), lr=random.random())
""",
        fixed="""
for _ in range(50):
    trainer.log('train', loss=random.random(), lr=random.random())
for values in trainer.metrics['train'].values():
    values.clear()
""",
    ),
    Case(
        name="text_added_to_itself",
        holders=("transcript",),
        causes=("container-growth",),
        setup="""
import random
random.seed(22)
transcript = 'run log\\n'
""",
        cell="""
transcript += ' '.join(f'{random.random():.6f}' for _ in range(200)) + '\\n'
""",
        fixed="""
transcript += ' '.join(f'{random.random():.6f}' for _ in range(200)) + '\\n'
transcript = transcript[-1500:]
""",
    ),
    Case(
        name="numpy_append_to_itself",
        holders=("curve",),
        causes=("container-growth",),
        setup="""
import numpy as np
rng = np.random.default_rng(23)

class Monitor:
    pass

monitor = Monitor()
monitor.curve = np.empty(0)
""",
        cell="""
monitor.curve = np.append(monitor.curve, rng.random(200))
""",
        fixed="""
monitor.curve = np.append(monitor.curve, rng.random(200))[-400:]
""",
    ),
    Case(
        name="numpy_features_in_a_dict",
        holders=("features",),
        causes=("container-growth", "global-cache"),
        setup="""
import itertools, numpy as np
rng = np.random.default_rng(24)
features, ids = {}, itertools.count()
""",
        cell="""
features[next(ids)] = rng.random(300)
""",
        fixed="""
features[next(ids) % 2] = rng.random(300)
""",
    ),
    Case(
        name="words_in_a_set",
        holders=("vocabulary",),
        causes=("container-growth", "global-cache"),
        setup="""
import random, string
random.seed(25)

class Tokenizer:
    def __init__(self):
        self.vocabulary = set()

    def encode(self, text):
        words = text.split()
        self.vocabulary.update(words)
        return len(words)

tokenizer = Tokenizer()

def sentence(n):
    return ' '.join(''.join(random.choices(string.ascii_lowercase, k=9)) for _ in range(n))
""",
        cell="""
n_tokens = tokenizer.encode(sentence(80))
""",
        fixed="""
n_tokens = tokenizer.encode(sentence(80))
tokenizer.vocabulary.clear()
""",
    ),
    Case(
        name="packets_in_an_endless_deque",
        holders=("packets",),
        causes=("container-growth",),
        setup="""
import collections, random
random.seed(26)
packets = collections.deque()
""",
        cell="""
packets.append(random.randbytes(2000))
""",
        fixed="""
packets.append(random.randbytes(2000))
while len(packets) > 3:
    packets.popleft()
""",
    ),
    Case(
        name="pandas_rows_concatenated",
        holders=("frame",),
        causes=("container-growth",),
        setup="""
import numpy as np, pandas as pd
rng = np.random.default_rng(27)
frame = pd.DataFrame({'loss': [0.0], 'accuracy': [0.0]})
""",
        cell="""
rows = pd.DataFrame(rng.random((100, 2)), columns=['loss', 'accuracy'])
frame = pd.concat([frame, rows], ignore_index=True)
""",
        fixed="""
rows = pd.DataFrame(rng.random((100, 2)), columns=['loss', 'accuracy'])
frame = pd.concat([frame, rows], ignore_index=True).tail(150)
""",
    ),
    Case(
        name="pair_counts_in_a_counter",
        holders=("pairs",),
        causes=("container-growth", "global-cache"),
        setup="""
import collections, random
random.seed(28)
pairs = collections.Counter()
""",
        cell="""
tokens = [random.randrange(10**9) for _ in range(40)]
pairs.update(zip(tokens, tokens[1:]))
""",
        fixed="""
tokens = [random.randrange(50) for _ in range(40)]
pairs.update(zip([0] * 40, tokens))
if len(pairs) > 20:
    pairs.clear()
""",
    ),
    Case(
        name="tuples_of_numbers_in_a_list",
        holders=("points",),
        causes=("container-growth",),
        setup="""
import random
random.seed(29)

class Plot:
    def __init__(self):
        self.points = []

plots = {'loss': Plot()}
""",
        cell="""
plots['loss'].points.extend((step, random.random()) for step in range(40))
""",
        fixed="""
plots['loss'].points = [(step, random.random()) for step in range(40)]
""",
    ),
    Case(
        name="dict_of_numbers_by_step",
        holders=("timings",),
        causes=("container-growth", "global-cache"),
        setup="""
import itertools, time
timings = {}
clock = itertools.count()
""",
        cell="""
for _ in range(40):
    timings[next(clock)] = time.perf_counter()
""",
        fixed="""
for _ in range(40):
    timings[next(clock) % 40] = time.perf_counter()
""",
    ),
    Case(
        name="rows_as_dicts_of_random_number",
        holders=("rows",),
        causes=("container-growth",),
        setup="""
import random
random.seed(31)

class Sweep:
    rows = None

sweep = Sweep()
sweep.rows = []
""",
        cell="""
for i in range(random.randint(5, 40)):
    sweep.rows.append({'trial': i, 'lr': random.random(), 'score': random.random()})
""",
        fixed="""
sweep.rows = []
for i in range(random.randint(5, 40)):
    sweep.rows.append({'trial': i, 'lr': random.random(), 'score': random.random()})
""",
    ),
    Case(
        name="dict_merged_with_itself",
        holders=("scores",),
        causes=("container-growth", "global-cache"),
        setup="""
import itertools
scores, ids = {}, itertools.count()
""",
        cell="""
scores = {**scores, **{i: i / 7 for i in itertools.islice(ids, 60)}}
""",
        fixed="""
scores = {i: i / 7 for i in itertools.islice(ids, 60)}
""",
    ),
    Case(
        name="frozen_set_united_with_itself",
        holders=("seen",),
        causes=("container-growth",),
        setup="""
import itertools
seen, ids = frozenset(), itertools.count(10**6)
""",
        cell="""
seen = seen | set(itertools.islice(ids, 80))
""",
        fixed="""
seen = frozenset(itertools.islice(ids, 80))
""",
    ),
    Case(
        name="series_concatenated",
        holders=("values",),
        causes=("container-growth",),
        setup="""
import numpy as np, pandas as pd
rng = np.random.default_rng(34)
values = pd.Series([0.0])
""",
        cell="""
values = pd.concat([values, pd.Series(rng.random(200))], ignore_index=True)
""",
        fixed="""
values = pd.Series(rng.random(200))
""",
    ),
    Case(
        name="words_in_a_context_variable",
        holders=("trail.get()",),
        causes=("container-growth",),
        setup="""
import contextvars
trail = contextvars.ContextVar('trail', default=())

def handle(keep):
    trail.set((*trail.get(), {'step': 'request is answered'})[-keep:])
""",
        cell="""
handle(10**6)
""",
        fixed="""
handle(2)
""",
    ),
    Case(
        name="module_under_a_new_name",
        holders=("sys.modules",),
        causes=("container-growth", "global-cache"),
        setup="""
import sys, types, uuid

def rules(name):
    made = types.ModuleType(name)
    exec('def pays(tonnes): return 2 * tonnes', vars(made))
    sys.modules[made.__name__] = made
    return made
""",
        cell="""
assert rules(f'rules_{uuid.uuid4().hex}').pays(2) == 4
""",
        fixed="""
assert rules('rules_of_ships').pays(2) == 4
""",
    ),
    Case(
        name="history_of_a_state_that_is_replaced",
        holders=("state.history",),
        causes=("container-growth",),
        setup="""
from dataclasses import dataclass, replace

@dataclass(frozen=True)
class State:
    history: tuple = ()

state = State()

def after(state, keep):
    row = {'step': len(state.history), 'words': 'as it was read'}
    return replace(state, history=(*state.history, row)[-keep:])
""",
        cell="""
state = after(state, 10**6)
""",
        fixed="""
state = after(state, 3)
""",
    ),
    Case(
        name="text_of_an_attribute",
        holders=("page.text",),
        causes=("container-growth",),
        setup="""
class Page:
    text = ''

page = Page()
""",
        cell="""
page.text += f'{len(page.text)}: a line of the protocol' * 12
""",
        fixed="""
page.text = f'{len(page.text)}: a line of the protocol' * 12
""",
    ),
)
