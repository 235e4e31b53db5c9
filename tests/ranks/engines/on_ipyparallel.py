"""Check four engines of ipyparallel by the magic; print one merged report for each case, as a line of JSON."""

import json
import sys

import ipyparallel

import leaklab

PROGRAM = """
import os
import torch
model = torch.nn.Linear(8, 8)
kept = []
def step():
    loss = model(torch.ones(4, 8)).sum()
    if fate == "leaks":
        kept.append(loss)
    if fate == "raises":
        raise ValueError("the loader is empty")
    if fate == "dies":
        os._exit(3)
"""
CHECK = "%%leakcheck -n 12 --no-sites --no-cure\nstep()"


def checked(view, fates):
    view.scatter("fate", fates, flatten=True, block=True)
    asked = [view.client[number].execute(CHECK, silent=False, block=False) for number in view.targets]
    for one in asked:
        one.wait(120)
        one.wait_for_output(10)
    shown = [output for one in asked for output in one.outputs if "text/html" in output["data"]]
    return leaklab.gather(view, seconds=30).to_json(), len(shown)


def main(cases):
    with ipyparallel.Cluster(n=4, log_level=40) as client:
        client.wait_for_engines(4, interactive=False)
        view = client[:]
        view.execute(PROGRAM, block=True)
        view.execute("get_ipython().run_line_magic('load_ext', 'leaklab')", block=True)
        for fates in cases:
            report, n_shown = checked(view, fates)
            print(report, flush=True)
            print(f"shown {n_shown}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
