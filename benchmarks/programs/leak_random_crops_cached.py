"""A dataset caches crops under their random position, so the cache never hits.

A ring of recent batches beside it is full.
"""

SOURCE = "pytorch/pytorch#35642"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["tensor-kept", "container-growth"],
    "grows": "torch.Tensor",
    "holder": "cache",
    "bytes_per_run": 51800,
    "count_per_run": 4,
    "fix": "cache the picture, crop afterwards",
}
SETUP = """
import collections, random, torch
from torch.utils.data import DataLoader, Dataset
random.seed(3)
torch.manual_seed(3)

class Crops(Dataset):
    def __init__(self, n=16, by_position=True):
        self.pictures = torch.randn(n, 3, 256, 256)
        self.by_position = by_position
        self.cache = {}

    def __len__(self):
        return len(self.pictures)

    def load(self, index):
        return self.pictures[index] * 0.5 + 0.5

    def __getitem__(self, index):
        x, y = random.randrange(4000) / 20, random.randrange(4000) / 20
        key = (index, x, y) if self.by_position else index
        if key not in self.cache:
            picture = self.load(index)
            self.cache[key] = picture[:, int(x):int(x) + 32, int(y):int(y) + 32].clone()
        return self.cache[key]

class Trainer:
    def __init__(self, data):
        self.data = data
        self.recent = collections.deque(maxlen=5)
        self.net = torch.nn.Conv2d(3, 4, 3)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self, n=4):
        rows = random.sample(range(len(self.data)), n)
        batch = torch.stack([self.data[i] for i in rows])
        self.recent.append(batch)
        loss = self.net(batch).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

trainer = Trainer(Crops())
"""
CELL = """
loss = trainer.step()
"""
FIXED_CELL = """
trainer.data.by_position = False
loss = trainer.step()
"""
