"""Check four actors of Ray; print one merged report for each case, as a line of JSON."""

import json
import os
import sys

import ray

import leaklab

# A worker sends a sign of life now and then: from 24 runs on, one thing that stays is known to be a one-off.
OPTIONS = {"runs": 32, "sites": False, "cure": False}


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, fate):
        import torch

        self.fate, self.kept, self.model = fate, [], torch.nn.Linear(8, 8)

    def step(self):
        import torch

        loss = self.model(torch.ones(4, 8)).sum()
        if self.fate == "leaks":
            self.kept.append(loss)
        if self.fate == "raises":
            raise ValueError("the loader is empty")
        if self.fate == "dies":
            os._exit(3)

    def becomes(self, fate):
        self.fate = fate

    def check(self):
        return leaklab.remote.check(self.step, **OPTIONS)


def answer(asked):
    try:
        return ray.get(asked)
    except ray.exceptions.RayError as error:
        return error


def checked(actors, fates):
    ray.get([actor.becomes.remote(fate) for actor, fate in zip(actors, fates, strict=True)])
    return leaklab.merge([answer(asked) for asked in [actor.check.remote() for actor in actors]]).to_json()


def start():
    """Start Ray, which gives up after 30 s of its own on a busy machine."""
    for _ in range(3):
        try:
            return ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        except Exception as error:  # noqa: BLE001 - it is a plain one
            print(error, file=sys.stderr)
            ray.shutdown()
    return None


def main(cases):
    start()
    actors = [Trainer.options(max_concurrency=2).remote("clean") for _ in range(4)]
    for fates in cases:
        print(checked(actors, fates), flush=True)
    at_once = [actors[0].check.remote() for _ in range(2)]
    print(leaklab.merge([answer(asked) for asked in at_once]).to_json(), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
