"""Make the stored records: run by hand, ``python tests/guards/make_records.py``, with leaklab importable.

Made once, by leaklab 0.1.0; they are kept as they are, so that what leaklab wrote then can be read later. Each is made
by public functions, magics and commands alone. Large or unfriendly ones are derived from real ones, field by field.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import linecache
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from shell import open_shell

import leaklab

RECORDS = Path(__file__).parent / "records"

PROGRAMS = {
    "tensors_kept": """
        import torch
        history = []
        def step():
            history.append(torch.zeros(64, 32))
    """,
    "graph_kept": """
        import torch
        model = torch.nn.Linear(16, 4)
        losses = []
        def step():
            loss = model(torch.ones(8, 16)).square().mean()
            losses.append(loss)
    """,
    "cache": """
        import functools
        import torch
        number = 0
        @functools.lru_cache(maxsize=None)
        def encode(index):
            return torch.full((256,), float(index))
        def step():
            global number
            number += 1
            return encode(number)
    """,
    "hook_left": """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)
            def forward(self, x):
                return self.layer(x)
        net = Net()
        def step():
            seen = {}
            net.layer.register_forward_hook(lambda module, args, result: seen.update(result=result))
    """,
    "immortal_cycle": """
        import torch
        def step():
            x = torch.ones(100, 50, requires_grad=True)
            y = x * 2
            y.register_hook(lambda grad: grad * y.detach())
    """,
    "growing_containers": """
        log = bytearray()
        rows = []
        table = {}
        def step():
            log.extend(b"x" * 5000)
            rows.extend(range(1000, 1200))
            table[len(table)] = ("row", len(table))
    """,
    "two_leaks": """
        import torch
        class Trainer:
            def __init__(self):
                self.outputs = []
                self.callbacks = {}
        trainer = Trainer()
        last = []
        def step():
            out = torch.zeros(128)
            trainer.outputs.append(out)
            last.append(out)
            trainer.callbacks[f"epoch {len(trainer.callbacks)}"] = lambda: trainer
    """,
    "clean": """
        import torch
        def step():
            batch = torch.ones(8, 8)
            return (batch @ batch).sum()
    """,
    "bounded": """
        import collections
        recent = collections.deque(maxlen=6)
        def step():
            recent.append({"number": object()})
    """,
    "failed": """
        numbers = iter(range(4))
        kept = []
        def step():
            kept.append([next(numbers)])
            if len(kept) > 3:
                raise ValueError("out of data")
    """,
}
FIXED = {
    "graph_kept": "losses.append(loss.item())",
    "two_leaks": "last.append(out)",  # one of its two places stays
}


def program(name: str, source: str) -> dict[str, Any]:
    """Execute *source* as the file train.py and return its variables."""
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] for line in lines) + "\n"
    linecache.cache["train.py"] = (len(text), None, text.splitlines(keepends=True), "train.py")
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(text, "train.py", "exec"), variables)  # noqa: S102 - the programs above
    return variables


def checked(name: str, source: str, **options: Any) -> leaklab.LeakReport:
    variables = program(name, source)
    try:
        return leaklab.leakcheck(variables["step"], namespace=variables, name=name, runs=12, **options)
    except ValueError as error:
        return error.leaklab_report
    finally:
        variables.clear()


def write(name: str, data: str | bytes) -> None:
    if isinstance(data, str):  # nothing of the machine
        data = re.sub(r"Linux-[^\s\"<,]+", "Linux-6.1-x86_64-with-glibc2.36", data).encode()
    (RECORDS / name).write_bytes(data)


def make_checks() -> None:
    reports = {name: checked(name, source) for name, source in PROGRAMS.items()}
    source = PROGRAMS["graph_kept"].replace("losses.append(loss)", FIXED["graph_kept"])
    reports["graph_kept_fixed"] = checked("graph_kept", source)
    source = PROGRAMS["two_leaks"].replace('trainer.callbacks[f"epoch', "_ = lambda: trainer  #")
    reports["two_leaks_one_fixed"] = checked("two_leaks", source)
    for name, report in reports.items():
        write(f"check_{name}.json", report.to_json())
    write("check_graph_kept.html", without_pictures(reports["graph_kept"].to_html()))
    write("check_clean.html", without_pictures(reports["clean"].to_html()))


STATEMENTS = (
    """
import torch
model = torch.nn.Linear(8, 4)
log, best = [], []
""",
    """%%leakcheck -q -n 12 --no-cure --statements -T check_statements.json
loss = model(torch.ones(16, 8)).sum()
log.append({"loss": loss, "step": 1})
for value in (0.1, 0.2):
    if value > 0.1:
        best.append(model.weight.clone())
model.register_forward_hook(lambda *_: None)
loss = float(loss.detach())
""",
)


def make_statements() -> None:
    """A cell with what each of its statements leaves behind; leaklab can do that since 0.2.0."""
    with contextlib.chdir(RECORDS), open_shell() as run:
        for cell in STATEMENTS:
            run(cell.strip())
        write("check_statements.json", Path("check_statements.json").read_text())


def without_pictures(page: str) -> str:
    """Leave out the pixels: the record is what is read back."""
    return re.sub(r"(data:image/[a-z+]+;base64,)[A-Za-z0-9+/=]+", r"\1", page)


def derive_checks() -> None:
    """Checks that hardly any program makes: every cause, hostile texts, very large figures."""
    graph = json.loads((RECORDS / "check_graph_kept.json").read_text())
    two = json.loads((RECORDS / "check_two_leaks.json").read_text())
    causes = [
        "graph-kept", "tensor-kept", "hook-left", "closure-kept", "global-cache", "cycle-garbage", "immortal-cycle",
        "traceback-kept", "notebook-history", "deepcopy-kept", "container-growth", "thread-or-worker-kept", "native",
        "optimizer-state", "autograd-ctx", "run-switch", "callback-registry", "unknown", "no-slug-of-today",
    ]  # fmt: skip
    every = copy.deepcopy(graph)
    every["settings"]["name"] = "every cause"
    every["leaks"] = []
    for number, cause in enumerate(causes):
        leak = copy.deepcopy((graph["leaks"] + two["leaks"])[number % 2])
        every["leaks"].append({**leak, "cause": cause, "fingerprint": f"{number:010x}", "advice": f"advice {number}"})
    write("check_every_cause.json", json.dumps(every, separators=(",", ":")))

    nasty = "<script>alert(1)</script>\"&\\'{}|$x_1$\n\x1b[31m\u202e\u00e9\u4e2d"
    hostile = copy.deepcopy(two)
    plain = ("format", "outcome", "status", "schema")

    def spoil(value: Any, name: str = "") -> Any:
        if isinstance(value, str) and name not in plain:
            return nasty if value else value
        if isinstance(value, dict):
            return {key: spoil(item, key) for key, item in value.items()}
        return [spoil(item, name) for item in value] if isinstance(value, list) else value

    write("check_hostile.json", json.dumps(spoil(hostile), separators=(",", ":")))

    large = copy.deepcopy(graph)
    large["settings"].update(name="large figures", max_runs=5000, summaries=False, sites=False, native=True)
    large["verdict"].update(bytes_per_run=3.7e9, full_after_runs=3, n_runs=4999)
    for leak in large["leaks"]:
        leak.update(bytes_per_run=3.7e9, count_per_run=12345.5, retained_bytes=123_456_789_012,
                    sites=["cell 3, line 7: x = f(y)", "train.py:12"], holders=["a", "b.c", "d['key']"],
                    others=[["dict", 2.0], ["function", 0.5], ["torch.Tensor", 1200.0]])  # fmt: skip
    for run in large["runs"]:
        run.update(accelerator_bytes=8_000_000 + 1_000_000 * run["number"], python_blocks=500_000, seconds=0.01)
    large["notes"] = ["a first note", "a second note, which is longer: " + "word " * 30]
    write("check_large_figures.json", json.dumps(large, separators=(",", ":")))

    unmeasured = copy.deepcopy(json.loads((RECORDS / "check_failed.json").read_text()))
    unmeasured.update(runs=[], objects=[], tensors=[], containers=[], notes=[], environment=[],
                      failure="KeyboardInterrupt in run 1")  # fmt: skip
    unmeasured["verdict"].update(reason="no run was measured", n_runs=0)
    write("check_unmeasured.json", json.dumps(unmeasured, separators=(",", ":")))


CELLS_BEFORE = (
    "import torch\nmodel = torch.nn.Linear(16, 4)\nlosses, kept, recent = [], [], {}",
    "%%leakcheck --name training -n 8\nloss = model(torch.ones(8, 16)).square().mean()\nlosses.append(loss)",
    "%%leakcheck --name evaluation -n 8\nwith torch.no_grad():\n    score = model(torch.ones(2, 16)).sum().item()",
    "%%leakcheck -n 8 --no-sites\nkept.append({'secret key': torch.zeros(32)})",
    "%autograd losses[0]",
    "%whyalive losses[0]",
    "%memdiff recent['new'] = torch.zeros(1000)",
    "%leakreport -q --title Training {folder}/notebook_before.json",
    "%leakreport -q --title Training {folder}/notebook_before.html",
    "%leakreport -q --title Training --redact {folder}/notebook_redacted.json",
)
CELLS_AFTER = (
    CELLS_BEFORE[0],
    CELLS_BEFORE[1].replace("append(loss)", "append(loss.item())"),
    CELLS_BEFORE[3],
    "%leakreport -q {folder}/notebook_after.json",
)


def make_notebooks() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for cells in (CELLS_BEFORE, CELLS_AFTER):
            with open_shell() as run:
                for cell in cells:
                    run(cell.replace("{folder}", folder))
        for path in sorted(Path(folder).iterdir()):
            text = path.read_text()
            write(path.name, without_pictures(text) if path.suffix == ".html" else text)


def make_answers() -> None:
    variables = program("alive", PROGRAMS["two_leaks"])
    variables["step"]()
    answer = leaklab.whyalive(variables["trainer"].outputs[0], namespace=variables)
    write("whyalive_held.json", answer.to_json())
    write("whyalive_variable.json", leaklab.whyalive(variables["trainer"], namespace=variables, max_paths=2).to_json())
    loop: list[Any] = []
    loop.append({"me": loop})
    write("whyalive_frame.json", leaklab.whyalive(loop, namespace={}).to_json())
    del loop
    variables.clear()

    variables = program("graph", PROGRAMS["graph_kept"])
    for _ in range(3):
        variables["step"]()
    write("autograd_tensor.json", leaklab.autograd(variables["losses"][0], namespace=variables).to_json())
    write("autograd_list.json", leaklab.autograd(variables["losses"], name="losses", namespace=variables).to_json())
    variables.clear()
    linked = """
        import torch
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(40)])
        with torch.autograd.detect_anomaly(check_nan=False):
            out = model(torch.ones(2, 8)).sum()
        state = {"hidden": out}
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variables = program("linked", linked)
    write("autograd_lines.json", leaklab.autograd(variables["out"], name="out", namespace=variables).to_json())
    variables.clear()


def make_run() -> None:
    variables = {**program("runs", PROGRAMS["hook_left"]), "kept": {}, "leaklab": leaklab}
    body = (
        "with leaklab.training_run('A', show=False) as run_a:\n"
        "    kept['model'] = Net()\n"
        "    kept['optimizer'] = torch.optim.SGD(kept['model'].parameters(), lr=0.1, momentum=0.9)\n"
        "with leaklab.training_run('B', show=False) as run_b:\n"
        "    pass\n"
        "try:\n"
        "    with leaklab.training_run('C', show=False) as run_c:\n"
        "        kept['rows'] = [torch.zeros(100) for _ in range(3)]\n"
        "        raise KeyError('x')\n"
        "except KeyError:\n"
        "    pass\n"
    )
    exec(compile(body, "train.py", "exec"), variables)  # noqa: S102
    for name in "abc":
        record = {"schema": 1, **dataclasses.asdict(variables[f"run_{name}"].record)}
        write(f"run_{name}.json", json.dumps(record, separators=(",", ":")))
    variables.clear()


def make_differences() -> None:
    """Two moments of one process, cut down to what differs, and the difference with its holders."""
    import torch

    variables: dict[str, Any] = {"__name__": "moments", "rows": [], "cache": {}, "old": torch.zeros(10)}
    exec("import leaklab, torch, numpy", variables)  # noqa: S102
    body = (
        "before = leaklab.snapshot('before')\n"
        "rows += [torch.ones(100) for _ in range(3)]\n"
        "cache.update({name: [name] for name in 'abc'})\n"
        "array = numpy.zeros(1000)\n"
        "graph = torch.ones(4, requires_grad=True) * 2\n"
        "old = torch.zeros(20)\n"
        "after = leaklab.snapshot('after')\n"
        "difference = leaklab.diff(before, after)\n"
    )
    exec(compile(body, "train.py", "exec"), variables)  # noqa: S102
    with tempfile.TemporaryDirectory() as folder:
        arrays = []
        for name in ("before", "after"):
            variables[name].save(f"{folder}/{name}.npz")
            with np.load(f"{folder}/{name}.npz") as file:
                arrays.append({key: file[key] for key in file.files})
    for name, cut in zip(("before", "after"), cut_down(*arrays), strict=True):
        packed = io.BytesIO()
        np.savez_compressed(packed, **cut)
        write(f"moment_{name}.npz", packed.getvalue())
    write(
        "memdiff_of_moments.json",
        leaklab.diff(*(RECORDS / f"moment_{name}.npz" for name in ("before", "after"))).to_json(),
    )
    write("memdiff_named.json", variables["difference"].to_json())
    with open_shell() as run:
        run("import torch\nkept = []")
        run("%%memdiff -q -v the_difference\nkept.append(torch.zeros(7, 3))\ntotal = sum(range(5))")
        run("import pathlib\ntext = the_difference.to_json()")
        with tempfile.TemporaryDirectory() as folder:
            run(f"the_difference.to_json({folder + '/d.json'!r})")
            write("memdiff_cell.json", (Path(folder) / "d.json").read_text())
    variables.clear()


def cut_down(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Leave out of both moments most of what is in both; what changed stays, and so do tensors and some objects."""
    common = np.intersect1d(a["addresses"], b["addresses"])
    lengths = [dict(zip(one["addresses"][one["container_rows"]].tolist(), one["lengths"].tolist(), strict=True))
               for one in (a, b)]  # fmt: skip
    changed = [key for key in lengths[0] if key in lengths[1] and lengths[0][key] != lengths[1][key]]
    tensors = np.concatenate([one["addresses"][one["tensor_rows"]] for one in (a, b)])
    words = [json.loads(bytes(one["words"])) for one in (a, b)]
    named = [place["address"] for one in words for place in one["places"] if place["home"] == "notebook"]
    wanted = np.concatenate([tensors, np.array(changed + named, np.int64), common[:50]])
    unwanted = np.setdiff1d(common, wanted)
    arrays = np.intersect1d(a["array_addresses"], b["array_addresses"])[5:]
    return tuple(_without(one, told, unwanted, arrays) for one, told in zip((a, b), words, strict=True))


def _without(moment: dict[str, Any], words: dict[str, Any], unwanted: Any, arrays: Any) -> dict[str, Any]:
    moment = dict(moment)
    keep = ~np.isin(moment["addresses"], unwanted)
    number = np.cumsum(keep) - 1
    for rows, *others in (("container_rows", "lengths"), ("tensor_rows", "tensor_kinds")):
        kept = keep[moment[rows]]
        moment[rows] = number[moment[rows][kept]].astype(np.int32)
        for other in others:
            moment[other] = moment[other][kept]
    moment["addresses"], moment["kinds"] = moment["addresses"][keep], moment["kinds"][keep]
    used, moment["kinds"] = np.unique(moment["kinds"], return_inverse=True)
    moment["kinds"] = moment["kinds"].astype(np.int32)
    moment["kind_addresses"], moment["kind_bytes"] = moment["kind_addresses"][used], moment["kind_bytes"][used]
    words["kinds"] = [words["kinds"][place] for place in used]
    moment["young"] = np.setdiff1d(moment["young"], unwanted)
    kept = ~np.isin(moment["array_addresses"], arrays)
    for name in ("array_addresses", "array_kinds", "array_bytes"):
        moment[name] = moment[name][kept]
    used, kinds = np.unique(moment["array_kinds"], return_inverse=True)
    moment["array_kinds"] = kinds.astype(np.int32)
    words["arrays"] = [words["arrays"][place] for place in used]
    words["places"] = [place for place in words["places"] if place["home"] == "notebook"]
    words["modules"] = [name for name in words["modules"] if name in ("torch", "numpy", "leaklab")]
    moment["words"] = np.frombuffer(json.dumps(words).encode(), np.uint8)
    return moment


def make_snapshots() -> None:
    """Memory snapshots as torch would write them, by the played allocator of the tests; then their JSON."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from snapshot_writer import MODEL, STEP, Training, of_2023, snapshot

    def pickled(name: str, taken: Any) -> None:
        import pickle

        write(name, pickle.dumps(taken, protocol=4))

    training = Training(kept_bytes=3_000_000)
    training.card.alloc(500_000, MODEL)  # no two stacks are of the same size: their order would be open
    for number in (1, 2, 3):
        training.run(2)
        pickled(f"cuda_step_{number}.pickle", snapshot(training.card))
    pickled("cuda_of_2023.pickle", of_2023(snapshot(training.card)))
    pickled("cuda_without_trace.pickle", snapshot(training.card, trace=False))
    steady = Training(kept_bytes=0, expandable=True)
    steady.card.alloc(500_000, MODEL)
    for number in (1, 2, 3):
        steady.run(2)
        pickled(f"cuda_steady_{number}.pickle", snapshot(steady.card))
    steady.card.free(steady.card.alloc(2_000_000, STEP, stream=7, pool=(1, 0)), pending=True)
    steady.card.oom(40_000_000_000, STEP, device_free=1_000_000)
    pickled("cuda_oom.pickle", snapshot(steady.card))
    with contextlib.chdir(RECORDS):  # what is shown has the file's name as it was given
        for name in ("cuda_step_3", "cuda_oom", "cuda_of_2023"):
            write(f"{name}.json", leaklab.load_cuda_snapshot(f"{name}.pickle").to_json())
        for name in ("step", "steady"):
            files = [f"cuda_{name}_{number}.pickle" for number in (1, 2, 3)]
            write(f"cuda_{name}_series.json", leaklab.compare_cuda_snapshots(files).to_json())


def print_live(*names: str) -> None:
    """Print today's checks of some of the programs as JSON, for the test that compares them with the records."""
    told = {name: json.loads(checked(name, PROGRAMS[name], cure=False).to_json()) for name in names}
    sys.stdout.write(json.dumps(told))


STAGES = (
    make_checks, make_statements, derive_checks, make_notebooks, make_answers, make_run, make_differences,
    make_snapshots,
)  # fmt: skip

if __name__ == "__main__":
    wanted = sys.argv[1:]
    if wanted[:1] == ["live"]:
        print_live(*wanted[1:])
    for stage in STAGES:
        if not wanted or stage.__name__ in wanted:
            stage()
