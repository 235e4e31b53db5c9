"""A cache per label is filled lazily; four of 36 labels come at random in a run, so the last ones come late."""

SOURCE = "GeneMANIA/genemania#118"
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
import random, torch
random.seed(5)
torch.manual_seed(0)
labels = ['label %d' % n for n in range(36)]
embeddings = {}

def embed(label):
    if label not in embeddings:
        embeddings[label] = torch.randn(50, 20)
    return embeddings[label]
"""
CELL = """
batch = torch.stack([embed(label) for label in random.sample(labels, 4)])
"""
FIXED_CELL = """
batch = torch.stack([embed(labels[0])])
"""
