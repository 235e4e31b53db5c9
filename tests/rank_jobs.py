"""Run a function on several gloo ranks, each a process of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

from apart import PRELOADED

TIMEOUT_SECONDS = 120


def on_ranks(function: Any, n_ranks: int, *arguments: Any) -> list[Any]:
    """Return what *function*, called with the rank and *arguments*, returned on each; None where a process died."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        ends, processes = [], []
        for rank in range(n_ranks):
            answers, other_end = context.Pipe(duplex=False)
            process = context.Process(
                target=_answer, args=(other_end, f"{folder}/store", (rank, n_ranks), function, arguments)
            )
            process.start()
            other_end.close()
            ends.append(answers)
            processes.append(process)
        try:
            return [_answer_from(end) for end in ends]
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answer_from(end: Any) -> Any:
    if not end.poll(TIMEOUT_SECONDS):
        msg = f"no answer within {TIMEOUT_SECONDS} s"
        raise TimeoutError(msg)
    try:
        answer, failure = end.recv()
    except EOFError:
        return None
    assert not failure, failure
    return answer


def _answer(end: Any, store: str, place: tuple[int, int], function: Any, arguments: tuple[Any, ...]) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    (rank, n_ranks), answer, failure = place, None, ""
    try:
        distributed.init_process_group(
            "gloo", init_method=Path(store).as_uri(), rank=rank, world_size=n_ranks, timeout=timedelta(seconds=60)
        )
        answer = function(rank, *arguments)
    except BaseException:  # noqa: BLE001 - whatever it is, the test tells
        failure = traceback.format_exc()
    end.send((answer, failure))
    time.sleep(TIMEOUT_SECONDS)  # until it is killed: a process that ends takes its connections along
