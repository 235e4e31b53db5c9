"""Check four workers of Dask; print one merged report for each case, as a line of JSON."""

import json
import os
import sys

import dask
from distributed import Client, LocalCluster

import leaklab

# A worker sends a sign of life now and then: from 24 runs on, one thing that stays is known to be a one-off.
OPTIONS = {"runs": 32, "sites": False, "cure": False}


def job(fate):
    import torch

    kept, model = [], torch.nn.Linear(8, 8)

    def step():
        loss = model(torch.ones(4, 8)).sum()
        if fate == "leaks":
            kept.append(loss)
        if fate == "raises":
            raise ValueError("the loader is empty")
        if fate == "dies":
            os._exit(3)

    return leaklab.remote.check(step, **OPTIONS)


def checked(client, addresses, fates):
    asked = {
        address: client.submit(job, fate, workers=[address], pure=False)
        for address, fate in zip(addresses, fates, strict=True)
    }
    client.gather(list(asked.values()), errors="skip")
    return leaklab.merge({address: one.exception() or one.result() for address, one in asked.items()}).to_json()


def main(cases):
    # By default Dask starts a worker that died again, and its task with it, three times.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    one_thread = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=4, processes=True, **one_thread) as cluster, Client(cluster) as client:
        addresses = sorted(client.nthreads())
        for fates in cases:
            print(checked(client, addresses, fates), flush=True)
    with (
        LocalCluster(n_workers=1, processes=False, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        at_once = [client.submit(job, "clean", pure=False) for _ in range(2)]
        print(leaklab.merge(client.gather(at_once)).to_json(), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
