"""A torch whose CUDA functions are played: no device is needed, none of its own is shown."""

from types import SimpleNamespace

import pytest
import torch
from snapshot_writer import Training, snapshot


@pytest.fixture
def device(monkeypatch):
    """A card that a training loop fills, and a note of how recording was switched."""
    played = SimpleNamespace(training=Training(kept_bytes=1_000_000), switches=[], is_on=False)

    def switch(enabled="all", **options):
        played.switches.append((enabled, options))
        played.is_on = enabled is not None

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    card = SimpleNamespace(total_memory=80_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: card)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", switch)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: snapshot(played.training.card))
    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", lambda _mode: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: played.is_on, raising=False)
    return played
