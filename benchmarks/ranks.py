"""Start checks of many ranks again and again: no deadlock, no crash, the right verdicts, the right odd rank.

Usage: ``python benchmarks/ranks.py [--starts 50] [--only KIND ...]``. Each start is a job of its own: with 2 and 4 gloo
ranks under torchrun, of which one leaks; then one each with DDP, FSDP2 and tensor parallelism, a rank that raises, and
a rank that is killed. Prints one line per kind with what the agreement costs; the exit status is the number of kinds in
which a start went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 240
"""A start that takes longer hangs: gloo's own limit in the jobs is shorter."""
GLOO_SECONDS = 120
N_RUNS = 24
FEW_STARTS = 2
LEFT_OVER = "history"


def main() -> int:
    """Start all kinds; return how many of them went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--only", nargs="*", default=list(KINDS))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return work(options.job)
    n_wrong = 0
    for name in options.only:
        n_wrong += not starts_are_right(name, options.starts)
    return n_wrong


def starts_are_right(name: str, n_starts: int) -> bool:
    """Start jobs of one kind, print what came of them, return whether all are right."""
    kind, n_ranks = KINDS[name]
    n_starts = n_starts if kind == "plain" else min(n_starts, max(FEW_STARTS, n_starts // 10))
    wrong: list[int] = []
    answers: list[dict[str, Any]] = []
    began = time.perf_counter()
    for number in range(n_starts):
        odd = number % n_ranks if kind != "killed" else 1 + number % (n_ranks - 1)
        found, trouble = start(kind, n_ranks, odd)
        trouble = trouble or CHECKS.get(kind, is_odd_found)(found, odd, n_ranks)
        if trouble:
            wrong.append(number)
            print(f"           start {number}: {trouble[:600]}", flush=True)
        print(f"{name} {number + 1} of {n_starts}", end="\r", file=sys.stderr, flush=True)
        answers += found.values()
    per_start = (time.perf_counter() - began) / max(n_starts, 1)
    alone = [answer["agreement_us"] for answer in answers if "agreement_us" in answer]
    waited = [answer["waited_ms"] for answer in answers if "waited_ms" in answer]
    cost = f"{statistics.median(alone):,.0f} us a meeting" if alone else ""
    waits = f"{statistics.median(waited):.1f} ms waited a run, most {max(waited):.1f}" if waited else ""
    print(
        f"{name:10} {n_starts - len(wrong)} of {n_starts} right, {per_start:.1f} s a start; {cost}; {waits}", flush=True
    )
    return not wrong


def start(kind: str, n_ranks: int, odd: int) -> tuple[dict[int, dict[str, Any]], str]:
    """Run one job; return what each rank wrote, and what went wrong with its processes."""
    with tempfile.TemporaryDirectory() as folder:
        job = json.dumps({"kind": kind, "odd": odd, "folder": folder})
        me = [str(Path(__file__).resolve()), "--job", job]
        if kind == "killed":
            failed, output = by_hand(me, n_ranks)
        else:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_ranks)]
            failed, output = finished([subprocess.Popen([*launcher, *me], **PIPES)])
        found = {int(path.stem): json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
    return found, "" if not failed else f"{failed}: {output[-400:]}"


def by_hand(command: list[str], n_ranks: int) -> tuple[str, str]:
    """Start the ranks without torchrun, which ends the others at once where one dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n_ranks)}
    ranks = [
        subprocess.Popen(
            [sys.executable, *command], env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, **PIPES
        )
        for rank in range(n_ranks)
    ]
    return finished(ranks)


PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def finished(processes: list[subprocess.Popen[str]]) -> tuple[str, str]:
    """Wait for *processes*; return what is wrong with how they ended, and what they printed."""
    end, output, trouble = time.monotonic() + LIMIT_SECONDS, "", ""
    for process in processes:
        try:
            output += process.communicate(timeout=max(end - time.monotonic(), 1.0))[0]
        except subprocess.TimeoutExpired:
            for one in processes:
                one.kill()
            return f"hung for {LIMIT_SECONDS} s", output
        if process.returncode not in (0, -signal.SIGKILL):
            trouble = f"status {process.returncode}"
    return trouble, output


def is_odd_found(found: dict[int, dict[str, Any]], odd: int, n_ranks: int) -> str:
    """Return what is wrong: the odd rank leaks, its line is known, the others are clean, the first knows all."""
    if len(found) != n_ranks:
        return f"ranks {sorted(found)} answered"
    for rank, answer in found.items():
        wanted = "leak" if rank == odd else "clean"
        if answer["outcome"] != wanted:
            return f"rank {rank} said {answer['outcome']} ({answer['reason']})"
    if len({answer["n_calls"] for answer in found.values()}) != 1:
        return f"calls {[answer['n_calls'] for answer in found.values()]}"
    if LEFT_OVER not in found[odd]["holder"] or "# keeps it" not in found[odd]["line"]:
        return f"rank {odd} says {found[odd]['holder']}, {found[odd]['line']}"
    if found[0]["leaking"] != [odd]:
        return f"the first rank says that {found[0]['leaking']} leak"
    return ""


def have_ended(found: dict[int, dict[str, Any]], odd: int, n_ranks: int) -> str:
    """Return what is wrong: all but the odd rank end with a sentence that names it, and keep what they had found."""
    others = {rank: answer for rank, answer in found.items() if rank != odd}
    if len(others) != n_ranks - 1:
        return f"ranks {sorted(found)} answered"
    for rank, answer in others.items():
        if answer["error"] != "RankError" or f"rank {odd} " not in answer["words"] or not answer["n_runs"]:
            return f"rank {rank}: {answer['error']} {answer['words']}, {answer['n_runs']} runs"
    return ""


CHECKS: dict[str, Callable[[dict[int, dict[str, Any]], int, int], str]] = {"raises": have_ended, "killed": have_ended}
KINDS = {
    "plain-2": ("plain", 2),
    "plain-4": ("plain", 4),
    "ddp": ("ddp", 2),
    "fsdp2": ("fsdp2", 2),
    "tensor": ("tensor", 2),
    "raises": ("raises", 4),
    "killed": ("killed", 4),
}


def work(job: str) -> int:
    """Be one rank of a job: check, and write down what was found."""
    import torch
    from torch import distributed

    import leaklab
    from leaklab.ranks import rank_group

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=GLOO_SECONDS))
    wanted = json.loads(job)
    rank = distributed.get_rank()
    step = step_of(wanted["kind"], is_odd=rank == wanted["odd"])
    answer: dict[str, Any] = {"error": "", "words": ""}
    meetings: list[tuple[int, float]] = []
    close = rank_group.RankGroup.close

    def noted_close(group: Any) -> None:
        meetings.append((group.n_meetings, group.waited_seconds))
        close(group)

    rank_group.RankGroup.close = noted_close  # type: ignore[method-assign]
    try:
        report = leaklab.leakcheck(step, runs=N_RUNS, group=True, namespace=vars(sys.modules[__name__]))
    except Exception as error:  # noqa: BLE001 - what it is is the answer
        answer |= {"error": type(error).__name__, "words": str(error)}
        report = error.leaklab_report  # type: ignore[attr-defined]
    leak = report.leaks[0] if report.leaks else None
    answer |= {
        "outcome": report.verdict.outcome.value,
        "reason": report.verdict.reason,
        "holder": leak.holder if leak else "",
        "line": leak.sites[0] if leak and leak.sites else "",
        "n_runs": len(report.record.runs),
        "n_calls": step.n_calls,
    }
    if report.ranks is not None:
        answer["leaking"] = [one for one, its in report.ranks.reports.items() if its.leaked]
    if meetings:
        answer["waited_ms"] = 1000 * meetings[0][1] / max(meetings[0][0], 1)
    if not answer["error"]:
        answer["agreement_us"] = cost_of_meeting()
    Path(wanted["folder"], f"{rank}.json").write_text(json.dumps(answer))
    if not answer["error"]:
        distributed.barrier()
    return 0


def cost_of_meeting(n_meetings: int = 300) -> float:
    """Return the microseconds of a meeting to which all ranks come at once."""
    from leaklab.ranks.rank_group import rank_group

    group = rank_group(group=True, seconds=60.0)
    began = time.perf_counter()
    for _ in range(n_meetings):
        group.meet(1.0, 0.0, 0.0)
    return 1e6 * (time.perf_counter() - began) / n_meetings


history: list[Any] = []


class Step:
    """A tiny training step of one of the kinds."""

    def __init__(self, train: Callable[[], Any], kind: str, *, is_odd: bool) -> None:
        self.n_calls = 0
        self._train, self._kind, self._is_odd = train, kind, is_odd

    def __call__(self) -> None:
        """Train, and do what is odd."""
        self.n_calls += 1
        loss = self._train()
        if not self._is_odd:
            return
        if self._kind == "raises" and self.n_calls == N_RUNS // 2:
            msg = "only here"
            raise ValueError(msg)
        if self._kind == "killed" and self.n_calls == N_RUNS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        history.append(loss)


def step_of(kind: str, *, is_odd: bool) -> Step:
    """Return the step of a rank."""
    import torch
    from torch import distributed

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if kind == "tensor":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    parameters = list(model.parameters())

    def train() -> Any:
        loss = model(torch.ones(8, 16)).pow(2).mean()
        loss.backward()
        with torch.no_grad():  # by hand: an optimizer's first step imports the compiler, seconds of each start
            for parameter in parameters:
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
        if kind == "plain":
            distributed.all_reduce(loss.detach().clone())
        return loss

    return Step(train, kind, is_odd=is_odd)


if __name__ == "__main__":
    sys.exit(main())
