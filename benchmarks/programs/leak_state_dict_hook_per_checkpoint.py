"""The function that saves a checkpoint registers a state dict hook to strip a prefix, and leaves it on the model."""

SOURCE = "pytorch/pytorch#117437"
TRUTH = {
    "leaks": True,
    "cause": "hook-left",
    "causes_ok": ["callback-registry"],
    "grows": "function",
    "holder": "_state_dict_hooks",
    "holders_ok": ["model"],
    "bytes_per_run": 970,
    "count_per_run": 1,
    "fix": "keep the handle and remove it",
}
SETUP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))

def save(path, keep=True):
    seen = []

    def strip(module, state, prefix, local_metadata):
        seen.append(prefix)
        for name in list(state):
            if name.startswith('module.'):
                state[name[7:]] = state.pop(name)
        return state

    handle = model._register_state_dict_hook(strip)
    state = model.state_dict()
    if not keep:
        handle.remove()
    return len(state), len(seen)
"""
CELL = """
sizes = save('last.pt')
"""
FIXED_CELL = """
sizes = save('last.pt', keep=False)
"""
