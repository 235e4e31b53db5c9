"""Checks written by hand, pure data: what the renderers are tested on."""

from __future__ import annotations

from dataclasses import replace

from leaklab.model import (
    Check,
    ContainerGrowth,
    Leak,
    ObjectGrowth,
    Outcome,
    RootPath,
    Run,
    Settings,
    Status,
    Step,
    TensorGrowth,
    Verdict,
)
from leaklab.model.cure import Change, Cure, CureOutcome

ENVIRONMENT = (("python", "3.11.7"), ("torch", "2.13.0+cpu"), ("leaklab", "0.1.0"))
ATTACK = "<script>alert(1)</script>"
N_RUNS = 12
MIB = 1024 * 1024


def make_runs(kept: tuple[int, ...], *, tensor_bytes_each: int = 0, cuda: bool = False) -> tuple[Run, ...]:
    """Runs of a training cell, of which run ``i`` keeps ``kept[i]`` objects."""
    total = 0
    runs = []
    for number, n_kept in enumerate(kept, 1):
        total += n_kept * tensor_bytes_each
        runs.append(
            Run(
                number=number,
                seconds=0.0125 + 0.0001 * number,
                n_born=41 + n_kept,
                n_kept=n_kept,
                n_tensors_kept=min(n_kept, 1),
                tensor_bytes_kept=n_kept * tensor_bytes_each,
                heap_bytes=64 * MIB + total,
                python_blocks=500_000 + 3 * number,
                accelerator_bytes=8 * MIB + total if cuda else None,
                rss_bytes=410 * MIB + total,
            )
        )
    return tuple(runs)


def history_leak() -> Leak:
    """The classic: ``history.append(loss)`` keeps every graph."""
    return Leak(
        what="torch.Tensor (64, 128) float32 cpu",
        path=RootPath(
            "notebook variable",
            (
                Step("trainer", "Trainer", "", Status.EXPECTED, "a variable of this notebook"),
                Step(".history", "list", "13 entries", Status.EXPECTED),
                Step("[3]", "torch.Tensor", "() float32 cpu", Status.LEAKED, "made in run 3, still here after run 12"),
                Step(".grad_fn", "torch.autograd.MeanBackward0", "", Status.LEAKED),
                Step("._saved_self", "torch.Tensor", "(64, 128) float32 cpu", Status.LEAKED),
            ),
        ),
        holder="trainer.history",
        cause="graph-kept",
        advice="Each entry of trainer.history is a loss that still carries its graph. Append the number instead:\n"
        "    before: trainer.history.append(loss)\n"
        "    after:  trainer.history.append(loss.item())\n"
        "Keep the tensor only if you call backward() on it later.",
        bytes_per_run=32_772.0,
        count_per_run=2.0,
        unit="objects",
        kept=(2,) * N_RUNS,
        fingerprint="7c1f0a9b2e",
        reason="each of the 12 runs left 2 tensors that are still alive",
        sites=("cell 4, line 7: loss = criterion(model(x), y)",),
        retained_bytes=393_264,
        holders=("trainer.history", "globals()['last_losses']"),
        others=(("torch.autograd.MeanBackward0", 1.0), ("torch.autograd.AddmmBackward0", 2.0)),
    )


CHANGED_CELL = """for x, y in loader:
    loss = criterion(model(x), y)
    trainer.history.append(loss.item())"""


def cured_leak() -> Leak:
    """The same, with a change that was tried."""
    line = "    trainer.history.append(loss)"
    change = Change("cell 4, line 8", line, "    trainer.history.append(loss.item())", "<cell 4>", 8)
    cure = Cure(
        words="Store only the number in `trainer.history`.",
        changes=(change,),
        outcome=CureOutcome.CURED,
        evidence="8 runs with this change: 0 B per run (was 32.0 KiB); same gradients",
        changed_cell=CHANGED_CELL,
    )
    sites = (f"cell 4, line 8: {line.strip()}  # keeps it", "cell 4, line 7: loss = criterion(model(x), y)  # makes it")
    return replace(history_leak(), cures=(cure,), sites=sites)


def hook_leak() -> Leak:
    """A forward hook registered again by every run."""
    return Leak(
        what="function remember",
        path=RootPath(
            "notebook variable",
            (
                Step("model", "Net", "", Status.EXPECTED),
                Step(".layer1", "torch.nn.modules.linear.Linear", "", Status.EXPECTED),
                Step("._forward_hooks", "collections.OrderedDict", "13 entries", Status.UNKNOWN),
                Step("[17]", "function", "remember", Status.LEAKED, "made in run 5, still here after run 12"),
            ),
        ),
        holder="model.layer1._forward_hooks",
        cause="hook-left",
        advice="Keep what register_forward_hook returns and call remove() on it.",
        bytes_per_run=208.0,
        count_per_run=1.0,
        unit="objects",
        kept=(1,) * N_RUNS,
        fingerprint="51aa03dd10",
        reason="each of the 12 runs left 1 function that is still alive",
        holders=("model.layer1._forward_hooks",),
    )


def cycle_leak() -> Leak:
    """A cycle through C++ autograd that no root reaches and gc cannot free."""
    return Leak(
        what="torch.Tensor (100, 100) float32 cpu",
        path=RootPath(
            "garbage cycle",
            (
                Step("", "torch.Tensor", "(100, 100) float32 cpu", Status.LEAKED),
                Step(".grad_fn", "torch.autograd.MulBackward0", "", Status.LEAKED, "C++: the collector stops here"),
                Step("._backward_hooks[0]", "function", "leak.<lambda>", Status.LEAKED, "cut here"),
                Step(".__closure__[0].cell_contents", "torch.Tensor", "(100, 100) float32 cpu", Status.LEAKED),
            ),
        ),
        holder="the hook registered in leak(), train.py:4",
        cause="immortal-cycle",
        advice="The hook's closure names the tensor it is registered on: use the argument of the hook instead of y.",
        bytes_per_run=81_920.0,
        count_per_run=2.0,
        unit="objects",
        kept=(2,) * N_RUNS,
        fingerprint="c0ffee1234",
        reason="each of the 12 runs left 2 tensors that gc.collect() cannot free",
        sites=("train.py:4",),
    )


def window() -> Leak:
    """A deque with a limit: it grew and stopped."""
    return Leak(
        what="dict",
        path=RootPath(
            "notebook variable",
            (
                Step("recent", "collections.deque", "64 entries", Status.EXPECTED),
                Step("[0]", "dict", "3 entries", Status.EXPECTED),
            ),
        ),
        holder="recent",
        cause="container-growth",
        advice="",
        bytes_per_run=0.0,
        count_per_run=0.0,
        unit="objects",
        kept=(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1),
        fingerprint="b0b0b0b0b0",
        reason="it holds 64 entries at most: collections.deque(maxlen=64)",
    )


def object_rows() -> tuple[ObjectGrowth, ...]:
    return (
        ObjectGrowth("torch.Tensor", (2,) * N_RUNS, 30, 54, 2.0, 32_772.0, Outcome.LEAK),
        ObjectGrowth("function", (1,) * N_RUNS, 120_000, 120_012, 1.0, 208.0, Outcome.LEAK),
        ObjectGrowth("dict", (4, *(0,) * (N_RUNS - 2), 5), 40_000, 40_009, 0.0, 0.0, Outcome.CLEAN),
    )


def tensor_rows() -> tuple[TensorGrowth, ...]:
    kind = "torch.Tensor"
    return (
        TensorGrowth(
            kind, (64, 128), "float32", "cpu", True, (1,) * N_RUNS, 393_216, 1.0, 32_768.0, Outcome.LEAK
        ),
        TensorGrowth(kind, (), "float32", "cpu", True, (1,) * N_RUNS, 48, 1.0, 4.0, Outcome.LEAK),
    )  # fmt: skip


def container_rows() -> tuple[ContainerGrowth, ...]:
    return (
        ContainerGrowth(
            "list", "trainer.history", "entries", "torch.Tensor", (1, 7, 13), (0, 6, 12), 1.0, 8.0, Outcome.LEAK
        ),
    )  # fmt: skip


def leaky_check(*, cuda: bool = False) -> Check:
    """A training cell with two leaks and a bounded window."""
    return Check(
        settings=Settings(name="training step"),
        verdict=Verdict(
            Outcome.LEAK,
            "each of the 12 runs left at least 3 objects that are still alive",
            n_runs=N_RUNS,
            bytes_per_run=32_980.0,
            full_after_runs=251_000,
        ),
        leaks=(history_leak(), hook_leak()),
        bounded=(window(),),
        objects=object_rows(),
        tensors=tensor_rows(),
        containers=container_rows(),
        runs=make_runs((3,) * N_RUNS, tensor_bytes_each=10_924, cuda=cuda),
        notes=("The native heap could not be read on this system: leaks of C++ code alone would go unseen.",),
        environment=ENVIRONMENT,
    )


def only(leak: Leak) -> Check:
    """A check that found nothing but *leak*."""
    verdict = Verdict(Outcome.LEAK, leak.reason, n_runs=N_RUNS, bytes_per_run=leak.bytes_per_run)
    return Check(
        settings=Settings(),
        verdict=verdict,
        leaks=(leak,),
        bounded=(),
        objects=(),
        tensors=(),
        containers=(),
        runs=make_runs(leak.kept),
        environment=ENVIRONMENT,
    )


def clean_check() -> Check:
    kept = (4, *(0,) * (N_RUNS - 2), 5)
    return Check(
        settings=Settings(name="evaluation"),
        verdict=Verdict(Outcome.CLEAN, "runs 2 to 11 left nothing behind", n_runs=N_RUNS),
        leaks=(),
        bounded=(),
        objects=(),
        tensors=(),
        containers=(),
        runs=make_runs(kept),
        environment=ENVIRONMENT,
    )


def bounded_check() -> Check:
    return replace(
        clean_check(),
        settings=Settings(),
        verdict=Verdict(Outcome.BOUNDED, "1 place grew to a limit that is known", n_runs=N_RUNS),
        bounded=(window(),),
        runs=make_runs(window().kept),
    )


def failed_check() -> Check:
    return replace(
        clean_check(),
        settings=Settings(name="broken cell"),
        verdict=Verdict(Outcome.INCONCLUSIVE, "2 runs are too few to tell a leak from a warm-up", n_runs=2),
        runs=make_runs((3, 3)),
        failure="ValueError in run 3",
        notes=("The cell raised an error in run 3: mend it first.",),
    )


def empty_check() -> Check:
    """Not one run was measured."""
    return replace(
        failed_check(),
        verdict=Verdict(Outcome.INCONCLUSIVE, "no run was measured", n_runs=0),
        runs=(),
        notes=(),
        failure="KeyboardInterrupt in run 1",
        environment=(),
    )


def hostile_leak() -> Leak:
    """Every word that comes from the user tries to break out."""
    nasty = f"{ATTACK}\"&\\'{{}}|$x_1$\n\x1b[31m\x00\udc80"
    return replace(
        history_leak(),
        what=nasty,
        path=RootPath(
            nasty,
            (
                Step(nasty, nasty, nasty, Status.EXPECTED, nasty),
                Step(nasty, nasty, nasty, Status.UNKNOWN, nasty),
                Step(nasty, "K" * 900, nasty * 40, Status.LEAKED, nasty),
            ),
        ),
        holder=nasty,
        cause=nasty,
        advice=nasty,
        unit=nasty,
        fingerprint=nasty,
        reason=nasty,
        sites=(nasty,),
        holders=(nasty, nasty + "2"),
        others=((nasty, 1.0),),
    )


def hostile_check() -> Check:
    nasty = f"{ATTACK}\"&\\'$x_1$\n\x1b[31m\x00\udc80"
    return Check(
        settings=Settings(name=nasty),
        verdict=Verdict(Outcome.LEAK, nasty, n_runs=N_RUNS, bytes_per_run=1.0),
        leaks=(hostile_leak(),),
        bounded=(hostile_leak(),),
        objects=(ObjectGrowth(nasty, (1,) * N_RUNS, 0, 12, 1.0, 1.0, Outcome.LEAK),),
        tensors=(
            TensorGrowth(nasty, (1,), nasty, nasty, False, (1,) * N_RUNS, 1, 1.0, 1.0, Outcome.LEAK),
        ),
        containers=(
            ContainerGrowth(nasty, nasty, nasty, nasty, (0, 12), (0, 12), 1.0, 1.0, Outcome.LEAK),
        ),
        runs=make_runs((1,) * N_RUNS),
        notes=(nasty,),
        failure=nasty,
        environment=((nasty, nasty),),
    )  # fmt: skip
