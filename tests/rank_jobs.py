"""Run a function on several gloo ranks, each a process of its own."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from apart import Apart, DiedError


def on_ranks(function: Any, n_ranks: int, *arguments: Any) -> list[Any]:
    """Return what *function*, called with the rank and *arguments*, returned on each; None where a process died."""
    with ExitStack() as ending:
        store = Path(ending.enter_context(tempfile.TemporaryDirectory())) / "store"
        processes = [
            ending.enter_context(Apart(_on_rank, store.as_uri(), rank, n_ranks, function, arguments))
            for rank in range(n_ranks)
        ]
        return [_answer_of(process) for process in processes]


def _answer_of(process: Apart) -> Any:
    try:
        return process.result()
    except DiedError:
        return None


def _on_rank(store: str, rank: int, n_ranks: int, function: Any, arguments: tuple[Any, ...]) -> Any:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=n_ranks, timeout=timedelta(seconds=60)
    )
    return function(rank, *arguments)
