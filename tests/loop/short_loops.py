"""A program of short loops, each watched by itself; prints what each is told to be, and since which step.

A program of its own: as far as the code shows, pytest may call a test again, and all that is in it comes again.
"""

import json
import sys

import leaklab


class Batch:
    def __init__(self):
        self.data = [0.0] * 16


class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)

    def empty(self):
        self.values.clear()


class Metrics:
    def __init__(self):
        self.of = {"loss": []}

    def log(self, name, value):
        self.of[name].append((len(self.of[name]), value))


def into_a_list(watch, n_steps):
    batches = []
    for _ in range(n_steps):
        batches.append(Batch())
        watch.step()
    return len(batches)


def into_a_list_below_an_object(watch, n_steps):
    metrics = Metrics()
    for _ in range(n_steps):
        metrics.log("loss", Batch())
        watch.step()


def until_there_are_so_many(watch, n_steps):
    pool = []
    while len(pool) < 2 * n_steps:
        pool.append(Batch())
        watch.step()
        if watch.status.step == n_steps:
            break


def with_a_limit_far_away(watch, n_steps):
    buffer = []
    for _ in range(n_steps):
        buffer.append(Batch())
        if len(buffer) > 1_000:
            buffer.pop(0)
        watch.step()


def of_an_epoch(watch, n_steps):
    for _epoch in range(2):
        of_this_epoch = []
        for _ in range(n_steps):
            of_this_epoch.append(Batch())
            watch.step()
            if watch.status.step == n_steps:
                return


def that_the_end_of_an_epoch_empties(watch, n_steps):
    meter = Meter()
    for _ in range(n_steps):
        meter.update(Batch())
        watch.step()


def that_is_asked_for_after_the_loop(watch, n_steps):
    features = []
    for _ in range(n_steps):
        features.append(Batch())
        watch.step()
    return [sum(one.data) for one in features]


FOUND = {}


def follow(loop):
    with leaklab.monitor(first_step=20, quiet=True) as watch:
        loop(watch, 110)  # eight times the first steps are 160
    (place,) = watch.record.places
    FOUND[loop.__name__] = place.state.value, place.since_step, place.leak.count_per_run


follow(into_a_list)
follow(into_a_list_below_an_object)
follow(until_there_are_so_many)
follow(with_a_limit_far_away)
follow(of_an_epoch)
follow(that_the_end_of_an_epoch_empties)
follow(that_is_asked_for_after_the_loop)
sys.stdout.write(json.dumps(FOUND))
