"""One ignite engine is kept, and the cell that runs it attaches its handlers once more each time."""

SOURCE = "pytorch/ignite#451"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["hook-left"],
    "grows": "function",
    "holder": "_event_handlers",
    "holders_ok": ["engine"],
    "bytes_per_run": 640,
    "count_per_run": 1,
    "fix": "attach handlers where the engine is made",
}
SETUP = """
import torch
from ignite.engine import Engine, Events
torch.manual_seed(0)
net = torch.nn.Linear(20, 5)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = [torch.randn(8, 20) for _ in range(3)]

def update(engine, batch):
    opt.zero_grad()
    loss = net(batch).pow(2).mean()
    loss.backward()
    opt.step()
    return loss.item()

engine = Engine(update)
"""
CELL = """
seen = torch.zeros(3, 100)

def tell(engine):
    seen[engine.state.iteration % 3, 0] = engine.state.output

engine.add_event_handler(Events.ITERATION_COMPLETED, tell)
state = engine.run(data, max_epochs=1)
"""
FIXED_CELL = """
seen = torch.zeros(3, 100)

def tell(engine):
    seen[engine.state.iteration % 3, 0] = engine.state.output

with engine.add_event_handler(Events.ITERATION_COMPLETED, tell):
    state = engine.run(data, max_epochs=1)
"""
