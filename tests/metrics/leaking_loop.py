"""A training loop that keeps every output, watched and served; it goes on until it is ended."""

import torch
from torch import nn

import leaklab

torch.set_num_threads(1)  # other tests run beside this one

model = nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []

watch = leaklab.monitor("training", total_steps=10_000_000, first_step=20, quiet=True)
with leaklab.metrics.serve(0) as server, watch:
    print(server.port, flush=True)  # noqa: T201 - for the test
    while True:
        optimizer.zero_grad()
        output = model(torch.rand(64, 32))
        output.square().mean().backward()
        optimizer.step()
        history.append(output)
        watch.step()
