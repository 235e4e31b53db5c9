"""Make the stored records of what 0.1.0 did not have: run by hand, as `make_records.py`, whose rules hold here.

Made once, by leaklab before 0.2.0, and kept as they are. Files of few objects, of processes in distress and of long
loops are derived, or written by hand in their format.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import json
import linecache
import sys
from typing import Any

import numpy as np
from make_records import PROGRAMS, RECORDS, program, write

import leaklab

MIB = 1 << 20


def make_heaps() -> None:
    """Two saved heaps of a few objects each; leaklab can do that since 0.2.0.

    A whole process has too many objects for a stored file: the function behind ``leaklab.snapshot(references=True)`` is
    given a few of them.
    """
    import torch

    from leaklab.heap.saved.file import save_heap
    from leaklab.heap.saved.taking import take_heap

    @contextlib.contextmanager
    def lent(variables: dict[str, Any]) -> Any:
        seen, pending = {}, [variables]
        while pending:
            thing = pending.pop()
            is_scope = type(thing) in (type, type(gc), type(lambda: 0))
            if id(thing) not in seen and gc.is_tracked(thing) and not is_scope:
                seen[id(thing)] = thing
                pending += gc.get_referents(thing)
        objects = list(seen.values())
        yield objects
        objects.clear()

    variables: dict[str, Any] = {
        "model": torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40)),
        "cache": {"secret word": {"arrays": (np.zeros(500), np.zeros(500)[10:300])}, "blob": bytearray(5000)},
        "views": [torch.zeros(100, 30)[number:] for number in (0, 1)],
        "losses": [(torch.ones(20, requires_grad=True) * 2).sum()],
        "<b>&": {"<i>": [torch.zeros(300)]},
    }
    variables["me"] = variables["cache"]["me"] = variables["cache"]
    for name in ("before", "after"):
        heap = take_heap(name, variables, heap=lent(variables))
        known = heap.start_vertices >= 0  # not the modules of this process
        starts = tuple(start for start, is_known in zip(heap.starts, known, strict=True) if is_known)
        few = {"starts": starts, "start_vertices": heap.start_vertices[known], "taken_at": 1.0 + (name == "after")}
        save_heap(dataclasses.replace(heap, **few), RECORDS / f"heap_{name}.heap")
        variables["losses"] += [(torch.ones(20, requires_grad=True) * 2).sum() for _ in range(3)]
        variables["cache"]["blob"] = bytearray(90_000)
        del variables["views"]
        variables["views"] = [1]


def make_questions() -> None:
    """A search, and two watches of a loop; leaklab can do that since 0.2.0."""
    variables = program("alive", PROGRAMS["two_leaks"])
    for _ in range(3):
        variables["step"]()
    found = json.loads(leaklab.find("torch.Tensor", "numel == 128", namespace=variables).to_json())
    write("found_live.json", compact({**found, "rows": [{**row, "number": 1000} for row in found["rows"]]}))
    saved = leaklab.load(RECORDS / "heap_after.heap")
    write("found_saved.json", saved.find("torch.*", "bytes > 1 KiB", limit=3).to_json())
    write("found_all.json", saved.find().to_json())
    write("found_nothing.json", leaklab.load(RECORDS / "heap_before.heap").find("Nobody").to_json())
    for name, append in (("leaky", "rows.append(torch.zeros(1000))"), ("steady", "rows[:] = [torch.zeros(1000)]")):
        body = (
            "import torch\nrows = []\n"
            "with watch:\n"
            "    for number in range(1200):\n"
            f"        {append}\n"
            "        watch.step()\n"
        )
        loop: dict[str, Any] = {"__name__": "loops"}
        loop["watch"] = leaklab.monitor(name, namespace=loop, quiet=True)
        linecache.cache["train.py"] = (len(body), None, body.splitlines(keepends=True), "train.py")
        exec(compile(body, "train.py", "exec"), loop)  # noqa: S102 - the program above
        write(f"monitor_{name}.json", loop["watch"].report.to_json())


def compact(fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"))


def derived(name: str, fields: Any) -> None:
    """Write *fields* as leaklab itself would: with all that are left out."""
    write(name, compact(fields))
    write(name, leaklab.load(RECORDS / name).to_json())


def derive_questions() -> None:
    """Reports that need a process in distress, or a long loop: written by hand, in the format of their files."""
    (leak,) = json.loads((RECORDS / "check_graph_kept.json").read_text())["leaks"]
    two = json.loads((RECORDS / "check_two_leaks.json").read_text())["leaks"]
    nasty = "<script>alert(1)</script>\"&\\'{}|$x_1$\n\x1b[31m\u202e\u00e9\u4e2d"
    places = [
        {"state": "leak", "since_step": 100, "seen_at": 400, "leak": leak, "is_alarm": True},
        {"state": "growing", "since_step": 300, "seen_at": 900, "leak": two[0]},
        {"state": "stopped", "since_step": 1100, "seen_at": 400, "leak": two[-1]},
    ]
    places = [{**one, "fingerprint": one["leak"]["fingerprint"], "bytes_per_step": 5000.0 / (n + 1)}
              for n, one in enumerate(places)]  # fmt: skip
    places.append({"fingerprint": "level:accelerator", "state": "growing", "since_step": 200, "seen_at": 1000,
                   "bytes_per_step": 2048.0, "memory": "accelerator"})  # fmt: skip
    changes = [
        {"step": 400, "state": "growing", "words": "`losses` grows by 1 tensor every step", "since_step": 200},
        {"step": 900, "state": "leak", "words": f"`losses` {nasty} grows", "since_step": 200, "is_alarm": True,
         "bytes_per_step": 5000.0, "full_at_step": 90_000, "fingerprint": leak["fingerprint"]},
        {"step": 1300, "state": "stopped", "words": "`last` grows no more", "since_step": 1100},
    ]  # fmt: skip
    status = {"name": "epoch 3", "step": 1500, "seconds": 30.5, "state": "leak", "is_alarm": True, "n_checks": 3,
              "bytes_per_step": 7048.0, "kept_bytes": 9e6, "n_survivors": 3000, "n_tensors": 1500, "full_at_step": 9000,
              "total_steps": 20_000, "heap_bytes": 300 * MIB, "rss_bytes": 900 * MIB, "accelerator_bytes": 70 * MIB,
              "own_seconds": 0.2, "longest_seconds": 0.05, "holder": "losses"}  # fmt: skip
    n = 16
    levels = {"steps": [100 * k for k in range(n)], "seconds": [2.0 * k for k in range(n)],
              "heap_bytes": [(100 + 2 * k) * MIB for k in range(n)],
              "rss_bytes": [(300 + 3 * k) * MIB for k in range(n)],
              "accelerator_bytes": [-1, *((10 + k) * MIB for k in range(1, n))],
              "reserved_bytes": [-1, *[64 * MIB] * (n - 1)]}  # fmt: skip
    check = json.loads((RECORDS / "check_two_leaks.json").read_text())
    del check["format"]
    watch = {"format": "leaklab monitor", "status": status, "levels": levels, "changes": changes, "places": places,
             "stretches": [{"first_step": 200, "last_step": 440, "steps_per_run": 20, "check": check}],
             "notes": ["one note"], "failure": "KeyError", "schema": 1}  # fmt: skip
    derived("monitor_states.json", watch)
    later = copy.deepcopy(watch)
    later["status"].update(name="epoch 4", step=700, state="steady", is_alarm=False, bytes_per_step=0.0,
                           full_at_step=None, holder="", accelerator_bytes=None)  # fmt: skip
    later.update(places=[{**places[1], "bytes_per_step": 9000.0}], changes=[], stretches=[], notes=[], failure="")
    later["levels"] = {name: column[:2] for name, column in levels.items()}
    derived("monitor_later.json", later)
    derived("monitor_begun.json", {"format": "leaklab monitor", "status": {}, "levels": {}, "schema": 1})

    tensor = "torch.Tensor (512, 1024) float32 cuda:0"
    process = {
        "format": "leaklab process",
        "occasion": "cuda:0 ran out of memory: an allocation of 1.00 GiB failed with 1.00 MiB of 80.0 GiB free",
        "made_at": "2026-01-02T03:04:05+00:00",
        "pid": 77,
        "program": f"python train.py --name {nasty}",
        "levels": {"rss": 3 << 30, "heap": 2 << 30, "accelerator": 70 << 30, "reserved": 79 << 30, "limit": 64 << 30,
                   "limit_words": "limit of the container", "limit_used": 5 << 30},
        "stack": ["train.py:41 in <module>: train()", "train.py:30 in train: loss.backward()"],
        "n_objects": 200_000,
        "kinds": [{"kind": "function", "count": 33_000}, {"kind": nasty, "count": 18_000}],
        "n_tensors": 60,
        "tensor_bytes": 70 << 30,
        "tensors": [
            {"holder": "trainer.history", "what": tensor, "n_tensors": 53, "n_bytes": 60 << 30,
             "largest_bytes": 2 << 30, "path": leak["path"]},
            {"holder": nasty, "what": nasty, "n_tensors": 2, "n_bytes": 2 << 30, "largest_bytes": 1 << 30,
             "unit": "arrays"},
            {"holder": "", "what": "torch.Tensor (8,) float32 cpu", "n_tensors": 1, "n_bytes": 1 << 30,
             "largest_bytes": 1 << 30},
        ],
        "monitors": [status],
        "notes": ["there is no snapshot of the accelerator: no room"],
        "files": ["out_of_memory_1_cuda.pickle"],
        "seconds": 0.5,
        "environment": [["leaklab", "0.2.0"], ["python", "3.11.7"]],
        "schema": 1,
    }  # fmt: skip
    derived("process_out_of_memory.json", process)
    asked = {"format": "leaklab process", "occasion": "somebody asked", "made_at": "2026-01-02T03:05:00+00:00",
             "pid": 77, "program": "python train.py", "levels": {"rss": 2 << 30}, "n_objects": 204_232,
             "n_tensors": 53, "tensor_bytes": 61 << 30,
             "tensors": [{**process["tensors"][0], "n_bytes": 61 << 30}], "schema": 1}  # fmt: skip
    derived("process_asked.json", asked)

    cured = json.loads((RECORDS / "check_graph_kept.json").read_text())
    before = "    losses.append(loss)"
    change = {
        "where": "train.py:6",
        "before": before,
        "after": "    losses.append(loss.item())",
        "filename": "",
        "line": 6,
    }
    both = [change, {**change, "where": f"this cell, line 3 {nasty}", "before": "seen = []", "after": "", "line": 3}]
    trial = "8 runs with this change: 0 B per run (was 32.0 KiB); same gradients"
    cures = [{"words": f"Store only the number in `losses`: {number}.", "changes": changed, "outcome": outcome,
              "evidence": trial, "changed_cell": cell}
             for number, (outcome, changed, cell) in enumerate((
                 ("cured", [change], "import torch\nlosses.append(loss.item())"), ("lessened", both, ""),
                 ("no effect", [change], ""), ("harmful", [change], ""), ("not tried", [], ""))) ]  # fmt: skip
    (graph,) = cured["leaks"]
    ways = [{"references": ["[i]"], "kind": "torch.Tensor", "count": 12},
            {"references": ["[i]", ".grad_fn", "..."], "kind": "", "count": 7}]  # fmt: skip
    cured["leaks"] = [
        {**graph, "cures": cures, "ways": ways, "also_causes": ["open-figures"]},
        *({**graph, "fingerprint": f"f{number}", "n_places": 4, "cures": cures[number:]} for number in range(1, 5)),
    ]
    cured["noted"] = [two[0]]
    cured["shares"] = [
        {"memory": "native memory (malloc)", "grown_bytes": 90_000.0, "known_bytes": 60_000.0,
         "estimated_bytes": 8000.0, "possible_bytes": 2000.0, "rest": "the rest is of C code"},
        {"memory": "accelerator memory (torch's allocator)", "grown_bytes": 5000.0, "known_bytes": 6000.0},
    ]  # fmt: skip
    cured["settings"].update(name="cured", min_bytes=1000)
    derived("check_cured.json", cured)
    after = {**json.loads((RECORDS / "check_two_leaks.json").read_text()), "noted": cured["leaks"]}
    after["settings"]["name"] = "cured"
    derived("check_noted.json", after)


STAGES = (make_heaps, make_questions, derive_questions)

if __name__ == "__main__":
    for stage in STAGES:
        if not sys.argv[1:] or stage.__name__ in sys.argv[1:]:
            stage()
