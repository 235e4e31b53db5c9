"""What the port learns: a small network of torch."""

import torch
from torch import nn

MODEL = nn.Linear(8, 4)
QUIET = nn.Linear(8, 4)
QUIET_OPTIMIZER = torch.optim.SGD(QUIET.parameters(), lr=0.01, momentum=0.9)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.01, momentum=0.9)
LOSSES = []
NUMBERS = []
FEATURES = {}
CROPS = {}


def watch_layer():
    """Keep the outputs of the layer for this call; the hook stays."""
    seen = []
    MODEL.register_forward_hook(lambda _m, _i, output: seen.append(output.detach()))  # LEAK test_hook_stays
    MODEL(torch.ones(1, 8))
    return len(seen)


def watch_layer_once():
    """Keep the outputs of the layer for this call."""
    seen = []
    handle = QUIET.register_forward_hook(lambda _m, _i, output: seen.append(output.detach()))
    QUIET(torch.ones(1, 8))
    handle.remove()
    return len(seen)


def learn(batch):
    """Take one step; the loss is kept with its graph."""
    loss = MODEL(batch).square().mean()
    loss.backward(retain_graph=True)
    OPTIMIZER.step()
    OPTIMIZER.zero_grad()
    LOSSES.append(loss)  # LEAK test_losses_with_their_graphs
    return loss


def learn_clean(batch):
    """Take one step; the loss is kept as a number."""
    loss = QUIET(batch).square().mean()
    loss.backward()
    QUIET_OPTIMIZER.step()
    QUIET_OPTIMIZER.zero_grad()
    NUMBERS.append(loss.item())
    return NUMBERS[-1]


def unfreeze(layer):
    """Train one more layer."""
    OPTIMIZER.add_param_group({"params": list(layer.parameters())})  # LEAK test_unfrozen_layers
    return len(OPTIMIZER.param_groups)


def feature(image):
    """Return a feature; the table's key is new each time."""
    FEATURES[id(image), len(FEATURES)] = found = image.numpy().copy()  # LEAK test_features_by_id
    return found


def feature_by_shape(image):
    """Return a feature; there are few shapes."""
    if tuple(image.shape) not in CROPS:
        CROPS[tuple(image.shape)] = torch.zeros(image.shape)
    return CROPS[tuple(image.shape)]


def train_anew(n_steps):
    """Make a network and an optimizer, and let both go."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(n_steps):
        loss = model(torch.randn(4, 8)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
