"""Measure what ``import leaklab`` costs beyond ``import torch``; fail if it is more than the limit.

Run it as ``python benchmarks/import_time.py``. Each figure is taken in a fresh interpreter whose clock starts after
torch is there, so that torch's own second of import does not drown the answer. What ``%load_ext leaklab`` costs in a
shell, where the machinery of a check is loaded, is printed beside it.
"""

import statistics
import subprocess
import sys

LIMIT_SECONDS = 0.15
N_REPEATS = 7
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


def main() -> int:
    """Return an exit status: 1 if the import costs more than the limit."""
    median = measure("leaklab", before="torch")
    measure("leaklab.magics", before="torch, IPython")
    if median > LIMIT_SECONDS:
        print(f"import leaklab takes more than {LIMIT_SECONDS} s")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
