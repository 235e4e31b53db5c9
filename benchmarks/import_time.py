"""Measure what leaklab costs where it starts: `import leaklab` beyond torch, and more; fail where that is too much.

Run it as ``python benchmarks/import_time.py``. Each figure is taken in a fresh interpreter whose clock starts after
torch is there, so that torch's own second of import does not drown the answer. What ``%load_ext leaklab`` costs in a
shell, where the machinery of a check is loaded, is printed beside it, and what a suite without checks pays for the
plug-in of pytest: processor time of collecting and running 500 tests with it, in parts of that without it, in turns.
Last, what ``leaklab watch`` adds to the processor time of short scripts that import torch: of 30 steps, which are too
few to look at, and of 2,000, of which the first check looks at 1,400 while the loop itself takes a tenth of a second.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_SECONDS = 0.15
LIMIT_OF_SUITE = 1.2
LIMIT_OF_WATCH_SECONDS = 2.0
N_REPEATS = 5
N_SUITES = 5
N_PROGRAMS = 5
MEASURE = """
import {before}, time
started = time.perf_counter()
import {module}
print(time.perf_counter() - started)
"""

PROGRAM = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
"""


def measure_once(module: str, before: str) -> float:
    """Return the seconds that importing *module* takes in a fresh interpreter that has imported *before*."""
    code = MEASURE.format(module=module, before=before)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(module: str, before: str) -> float:
    """Print the figures of *module* and return their median, seconds."""
    measure_once(module, before)  # fills the caches of the file system and writes the .pyc files
    seconds = sorted(measure_once(module, before) for _ in range(N_REPEATS))
    median = statistics.median(seconds)
    spread = f"{seconds[0]:.4f} to {seconds[-1]:.4f}"
    print(f"import {module} after {before}: median {median:.4f} s of {N_REPEATS} ({spread})")
    return median


def processor_seconds(folder: str, *arguments: str, **environment: str) -> float:
    """Return what one run of Python with *arguments* takes in *folder*."""
    before = os.times()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, **environment})
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def suite_seconds(folder: str, *options: str) -> float:
    """Return the processor seconds of one run of pytest in *folder*."""
    plain = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder)
    return processor_seconds(folder, *plain, *options, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def measure_suite() -> float:
    """Print what the plug-in costs a suite without checks; return the median of the ratios."""
    tests = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_one(n): assert n >= 0\n"
    ratios = {"collected": [], "run": []}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_many.py").write_text(tests, "utf-8")
        plugin = ("-p", "leaklab.testing.plugin")
        for _ in range(N_SUITES):
            for how, options in (("collected", ["--collect-only"]), ("run", [])):
                without = suite_seconds(folder, *options)
                ratios[how].append(suite_seconds(folder, *plugin, *options) / without)
    for how, values in ratios.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"500 tests {how} with the plug-in: {middle:.3f} of the time without ({low:.3f} to {high:.3f})")
    return max(statistics.median(values) for values in ratios.values())


def measure_watch() -> float:
    """Print what ``leaklab watch`` adds to short programs; return the largest median, seconds of the processor."""
    medians = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(PROGRAM, "utf-8")
        for n_steps in ("30", "2000"):
            seconds = []
            for _ in range(N_PROGRAMS):
                plain = processor_seconds(folder, "train.py", n_steps)
                seconds.append(processor_seconds(folder, "-m", "leaklab", "watch", "train.py", n_steps) - plain)
            low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
            print(f"leaklab watch of {n_steps} steps: {middle:.2f} s of the processor more ({low:.2f} to {high:.2f})")
            medians.append(middle)
    return max(medians)


def main() -> int:
    """Return an exit status: 1 if a start costs more than its limit."""
    median = measure("leaklab", before="torch")
    measure("leaklab.magics", before="torch, IPython")
    measure("leaklab.testing.plugin", before="pytest")
    ratio = measure_suite()
    if ratio > LIMIT_OF_SUITE:
        print(f"a suite without checks takes more than {LIMIT_OF_SUITE} of its time with the plug-in")
        return 1
    if measure_watch() > LIMIT_OF_WATCH_SECONDS:
        print(f"leaklab watch takes more than {LIMIT_OF_WATCH_SECONDS} s of a short program")
        return 1
    if median > LIMIT_SECONDS:
        print(f"import leaklab takes more than {LIMIT_SECONDS} s")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
