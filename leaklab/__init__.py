"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from."""

__version__ = "0.1.0"
