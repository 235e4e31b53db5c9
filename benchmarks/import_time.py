"""Measure what ``import leaklab`` costs beyond ``import torch``; fail if it is more than the limit.

Run it as ``python benchmarks/import_time.py``. Each figure is taken in a fresh interpreter whose clock starts after
torch is there, so that torch's own second of import does not drown the answer. What ``%load_ext leaklab`` costs in a
shell, where the machinery of a check is loaded, is printed beside it, and what a suite without checks pays for the
plug-in of pytest: processor time of collecting and running 500 tests with it, in parts of that without it, in turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_SECONDS = 0.15
LIMIT_OF_SUITE = 1.2
N_REPEATS = 5
N_SUITES = 5
MEASURE = """
import {before}, time
started = time.perf_counter()
import {module}
print(time.perf_counter() - started)
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


def suite_seconds(folder: str, *options: str) -> float:
    """Return the processor seconds of one run of pytest in *folder*."""
    plain = ("-q", "-p", "no:cacheprovider", "-c", os.devnull)
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    before = os.times()
    command = [sys.executable, "-m", "pytest", *plain, "--rootdir", folder, *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=alone)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


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


def main() -> int:
    """Return an exit status: 1 if the import costs more than the limit."""
    median = measure("leaklab", before="torch")
    measure("leaklab.magics", before="torch, IPython")
    measure("leaklab.testing.plugin", before="pytest")
    ratio = measure_suite()
    if ratio > LIMIT_OF_SUITE:
        print(f"a suite without checks takes more than {LIMIT_OF_SUITE} of its time with the plug-in")
        return 1
    if median > LIMIT_SECONDS:
        print(f"import leaklab takes more than {LIMIT_SECONDS} s")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
