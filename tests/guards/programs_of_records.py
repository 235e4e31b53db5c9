"""The programs whose checks are stored as ``check_NAME.json``; as a script, check some of them today and print that.

The records were made of them, once, and are kept as they are.
"""

from __future__ import annotations

import json
import linecache
import sys
from typing import Any

import leaklab

PROGRAMS = {
    "tensors_kept": """
        import torch
        history = []
        def step():
            history.append(torch.zeros(64, 32))
    """,
    "graph_kept": """
        import torch
        model = torch.nn.Linear(16, 4)
        losses = []
        def step():
            loss = model(torch.ones(8, 16)).square().mean()
            losses.append(loss)
    """,
    "cache": """
        import functools
        import torch
        number = 0
        @functools.lru_cache(maxsize=None)
        def encode(index):
            return torch.full((256,), float(index))
        def step():
            global number
            number += 1
            return encode(number)
    """,
    "hook_left": """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)
            def forward(self, x):
                return self.layer(x)
        net = Net()
        def step():
            seen = {}
            net.layer.register_forward_hook(lambda module, args, result: seen.update(result=result))
    """,
    "immortal_cycle": """
        import torch
        def step():
            x = torch.ones(100, 50, requires_grad=True)
            y = x * 2
            y.register_hook(lambda grad: grad * y.detach())
    """,
    "growing_containers": """
        log = bytearray()
        rows = []
        table = {}
        def step():
            log.extend(b"x" * 5000)
            rows.extend(range(1000, 1200))
            table[len(table)] = ("row", len(table))
    """,
    "two_leaks": """
        import torch
        class Trainer:
            def __init__(self):
                self.outputs = []
                self.callbacks = {}
        trainer = Trainer()
        last = []
        def step():
            out = torch.zeros(128)
            trainer.outputs.append(out)
            last.append(out)
            trainer.callbacks[f"epoch {len(trainer.callbacks)}"] = lambda: trainer
    """,
    "clean": """
        import torch
        def step():
            batch = torch.ones(8, 8)
            return (batch @ batch).sum()
    """,
    "bounded": """
        import collections
        recent = collections.deque(maxlen=6)
        def step():
            recent.append({"number": object()})
    """,
    "failed": """
        numbers = iter(range(4))
        kept = []
        def step():
            kept.append([next(numbers)])
            if len(kept) > 3:
                raise ValueError("out of data")
    """,
}


def program(name: str, source: str) -> dict[str, Any]:
    """Execute *source* as the file train.py and return its variables."""
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] for line in lines) + "\n"
    linecache.cache["train.py"] = (len(text), None, text.splitlines(keepends=True), "train.py")
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(text, "train.py", "exec"), variables)  # noqa: S102 - the programs above
    return variables


def checked(name: str, source: str, **options: Any) -> leaklab.LeakReport:
    variables = program(name, source)
    try:
        return leaklab.leakcheck(variables["step"], namespace=variables, name=name, runs=12, **options)
    except ValueError as error:
        return error.leaklab_report
    finally:
        variables.clear()


if __name__ == "__main__":
    said = {name: json.loads(checked(name, PROGRAMS[name], cure=False).to_json()) for name in sys.argv[1:]}
    sys.stdout.write(json.dumps(said))
