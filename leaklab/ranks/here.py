"""Where this process stands among those that run the same program."""

from __future__ import annotations

import os
import socket
import sys

from leaklab.model.check import Check
from leaklab.model.monitor import MonitorRecord
from leaklab.model.ranks import UNNUMBERED, RankRecord


def record_here(
    *,
    check: Check | None = None,
    monitor: MonitorRecord | None = None,
    error: str = "",
    label: str = "",
    rank: int | None = None,
) -> RankRecord:
    """Return what this process found, with its place.

    Args:
        check: Its check.
        monitor: The record of its loop.
        error: Why it has no answer, or only a part of one.
        label: What people call this process where it is no rank.
        rank: Its number; None asks torch.distributed, then the variables that torchrun and others set.
    """
    found, world_size = rank_here()
    number = found if rank is None else rank
    return RankRecord(number, world_size, socket.gethostname(), os.getpid(), label, check, monitor, error)


def rank_here() -> tuple[int, int]:
    """Return rank and world size of this process; `UNNUMBERED` and 0 where nobody says them."""
    distributed = sys.modules.get("torch.distributed")  # whoever has a process group has imported it
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return UNNUMBERED, 0
    return (rank, world_size) if 0 <= rank < world_size else (UNNUMBERED, 0)
