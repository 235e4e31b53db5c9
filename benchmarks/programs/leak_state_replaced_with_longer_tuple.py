"""A store in the style of reducers makes its state anew for each action; the new state holds a tuple of all actions."""

SOURCE = "none: a pattern that is reported often"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache", "run-switch"],
    "grows": "Action",
    "holder": "store",
    "holders_ok": ["state", "actions"],
    "bytes_per_run": 740,
    "count_per_run": 2,
    "fix": "keep the last actions only",
}
SETUP = """
import dataclasses, itertools
clock = itertools.count(1_000)

@dataclasses.dataclass(frozen=True)
class Action:
    kind: str
    at: int
    payload: tuple

@dataclasses.dataclass(frozen=True)
class State:
    total: int = 0
    last: str = ''
    actions: tuple = ()

def reduce(state, action, keep=None):
    actions = (*state.actions, action)
    if keep is not None:
        actions = actions[-keep:]
    return dataclasses.replace(state, total=state.total + len(action.payload), last=action.kind, actions=actions)

class Store:
    def __init__(self):
        self.state = State()
        self.keep = None

    def dispatch(self, kind, *payload):
        action = Action(kind, next(clock), tuple('%s-%d' % (kind, value + next(clock)) for value in payload))
        self.state = reduce(self.state, action, self.keep)
        return self.state.total

store = Store()
"""
CELL = """
def train_step(n):
    def tell(kind, *values):
        return store.dispatch(kind, *values)
    tell('loss', *range(n))
    return tell('metric', 1, 2)

total = train_step(4)
"""
FIXED_CELL = """
def train_step(n):
    def tell(kind, *values):
        return store.dispatch(kind, *values)
    tell('loss', *range(n))
    return tell('metric', 1, 2)

store.keep = 20
total = train_step(4)
"""
