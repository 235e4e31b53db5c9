"""Make the memory snapshots of notebook 04: synthetic, because they must be the same everywhere and need no GPU.

A small caching allocator plays three runs of one training program. Usage: ``python notebooks/data/make_snapshots.py``.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent / "tests"))

from snapshot_writer import Card, snapshot, stack, write  # noqa: E402

MB = 1_000_000
TRAIN, MODEL, METRICS = "/home/me/spirals/train.py", "/home/me/spirals/model.py", "/home/me/spirals/metrics.py"
ADAM = "/opt/env/lib/python3.11/site-packages/torch/optim/adam.py"
LINEAR = "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"


def program(shift=0):
    """The call stacks of the program; *shift* moves its lines, as an edit above them would."""

    def line(number):
        return number + shift

    main = f"{TRAIN}:{line(60)} main"
    step = f"{TRAIN}:{line(41)} train_step"
    return {
        "weights": stack(f"{LINEAR}:112 __init__", f"{MODEL}:{line(14)} __init__", f"{TRAIN}:{line(52)} main"),
        "forward": stack(f"{LINEAR}:134 forward", f"{MODEL}:{line(23)} forward", step, main),
        "attention": stack(f"{MODEL}:{line(31)} attend", f"{MODEL}:{line(24)} forward", step, main),
        "state": stack(f"{ADAM}:180 _init_group", f"{TRAIN}:{line(45)} train_step", main),
        "history": stack(f"{METRICS}:{line(19)} update", f"{TRAIN}:{line(47)} train_step", main),
        "batch": stack(f"{TRAIN}:{line(38)} load_batch", main),
    }


class Run:
    """One run of the program."""

    def __init__(self, *, leaks=True, shift=0, batch=1):
        self.card, self.at, self.leaks, self.batch, self.n_steps = Card(), program(shift), leaks, batch, 0
        for size in (24, 24, 12, 6):
            self.card.alloc(size * MB, self.at["weights"])
        self.card.alloc(8 * MB, [])  # made before recording was switched on

    def train(self, n_steps):
        """Train so many steps."""
        for _ in range(n_steps):
            passing = [self.card.alloc(4 * MB * self.batch, self.at["batch"])]
            passing += [self.card.alloc(9 * MB * self.batch, self.at["forward"]) for _ in range(4)]
            passing += [self.card.alloc(7 * MB * self.batch, self.at["attention"]) for _ in range(2)]
            if not self.n_steps:
                for size in (24, 24, 12, 6) * 2:
                    self.card.alloc(size * MB, self.at["state"])
            if self.leaks:
                self.card.alloc(1_200_000, self.at["history"])
            for address in passing:
                self.card.free(address)
            self.n_steps += 1
        return self

    def dump(self, name):
        """Write a snapshot."""
        write(FOLDER / name, snapshot(self.card))


def main():
    """Write all files."""
    run = Run()
    for _ in range(4):
        run.train(10).dump(f"leaky_{run.n_steps}.pickle")
    run = Run(leaks=False, shift=3)
    for _ in range(4):
        run.train(10).dump(f"fixed_{run.n_steps}.pickle")
    run = Run(batch=8).train(3)
    run.card.alloc(4 * MB * 64, run.at["batch"])
    run.card.oom(9 * MB * 64, run.at["forward"], device_free=220 * MB)
    run.dump("out_of_memory.pickle")


if __name__ == "__main__":
    main()
