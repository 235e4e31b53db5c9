"""Cycles through autograd's C++ side, which no collection frees, and programs that come close to one."""

from __future__ import annotations

from leak_case import Case

IMMORTAL_CASES = (
    Case(
        name="node_hook_sees_the_result_of_its_node",
        holders=("post_hooks of the node", "closure variable 'activation'"),
        causes=("immortal-cycle",),
        setup="""
import torch
from torch import nn
net = nn.Linear(40, 40)
seen = {}
def watch(activation):
    return activation.grad_fn.register_hook(lambda inputs, outputs: seen.update(shape=activation.shape))
""",
        cell="""
activation = net(torch.randn(16, 40))
handle = watch(activation)
activation.sum().backward()
del activation, handle
""",
        fixed="""
activation = net(torch.randn(16, 40))
handle = watch(activation)
activation.sum().backward()
handle.remove()
del activation, handle
""",
    ),
    Case(
        name="hook_of_an_early_activation_sees_the_loss",
        holders=("tensor_pre_hooks of the node", "closure variable 'loss'"),
        causes=("immortal-cycle",),
        setup="""
import torch
from torch import nn
first, second = nn.Linear(30, 50), nn.Linear(50, 1)
def step(keep):
    hidden = first(torch.randn(20, 30))
    loss = second(hidden * 2).pow(2).mean()
    handle = hidden.register_hook(lambda gradient: gradient / loss.item())
    loss.backward()
    if not keep:
        handle.remove()
""",
        cell="step(keep=True)",
        fixed="step(keep=False)",
    ),
    Case(
        name="prototype_keeps_its_own_distance",
        holders=(".distance",),
        causes=("immortal-cycle",),
        setup="""
import torch
def prototype(detach):
    center = torch.randn(80, 80, requires_grad=True)
    distance = (center - torch.randn(80, 80)).pow(2).mean()
    center.distance = distance.detach() if detach else distance
    return center.shape
""",
        cell="prototype(detach=False)",
        fixed="prototype(detach=True)",
    ),
    Case(
        name="optimizer_steps_inside_backward",
        holders=("._post_accumulate_grad_hooks",),
        causes=("immortal-cycle",),
        setup="""
import torch
from torch import nn
def train(remove):
    model = nn.Linear(60, 60)
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
    handles = [p.register_post_accumulate_grad_hook(update) for p in model.parameters()]
    model(torch.randn(8, 60)).sum().backward()
    if remove:
        for handle in handles:
            handle.remove()
""",
        cell="train(remove=False)",
        fixed="train(remove=True)",
    ),
    Case(
        name="pack_hook_keeps_what_it_gets",
        holders=("saved for backward as 'result'",),
        causes=("immortal-cycle",),
        setup="""
import torch
weight = torch.randn(70, 70, requires_grad=True)
def score(pack):
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed[1]):
        return weight.softmax(dim=0).max().item()
""",
        cell="score(lambda tensor: ('kept', tensor))",
        fixed="score(lambda tensor: ('kept', tensor.detach()))",
    ),
    Case(
        name="heat_map_recorder_caches_and_hooks",
        holders=(".activation", "Recorder"),
        causes=("immortal-cycle",),
        setup="""
import torch
from torch import nn
class Recorder:
    def __init__(self, layer):
        self.handle = layer.register_forward_hook(self.forward)
    def forward(self, layer, inputs, output):
        self.activation = output
        self.of_output = output.register_hook(self.backward)
    def backward(self, gradient):
        self.gradient = gradient
    def close(self):
        self.of_output.remove()
net = nn.Conv2d(3, 8, 3)
def explain(close):
    recorder = Recorder(net)
    net(torch.randn(1, 3, 20, 20)).sum().backward()
    recorder.handle.remove()
    if close:
        recorder.close()
""",
        cell="explain(close=False)",
        fixed="explain(close=True)",
    ),
    Case(
        name="clean_second_order_gradients_that_are_returned",
        setup="""
import torch
weight = torch.randn(50, 50, requires_grad=True)
def penalty():
    (gradient,) = torch.autograd.grad(weight.pow(3).sum(), weight, create_graph=True)
    return gradient.pow(2).sum().item()
""",
        cell="penalty()",
    ),
    Case(
        name="clean_hook_of_a_live_node_sees_the_newest_other_graph",
        setup="""
import torch
weight = torch.randn(40, 40, requires_grad=True)
""",
        cell="""
live, other = weight * 2, (weight * 3).sum()
handle = live.grad_fn.register_hook(lambda inputs, outputs, other=other: None)
total = live.sum()
""",
    ),
)
