"""Measure the programs beside this file by brute force: what does one run of each cell leave behind?

``python benchmarks/truth_of_programs.py [FILE ...]`` prints for each cell, and for its repaired twin, the bytes and the
objects that a run leaves. It knows nothing of leaklab. Every cell runs in a process of its own, in which all memory
comes from malloc, so that small objects are counted as well. The first runs are not counted: caches fill in them.
Of small objects malloc takes a fifth to a half more than Python asked for: ``asked`` is that (torch, zlib and other
native memory are not in it). The truth is ``asked`` where all is Python's own, and ``bytes`` where it is not.
"""

import collections
import gc
import json
import runpy
import sys
import tracemalloc
import types
from pathlib import Path

import psutil
from marked_answers import ask, give

FIRST, LAST = 44, 108
"""Between these runs the bytes are counted: a cache of forty entries is full, a table has doubled in the mean."""
MORE = 32
"""Further runs, in which the objects are counted: counting them takes memory itself."""


def main() -> None:
    """Measure each program in fresh processes, or, as such a process, measure one cell."""
    if sys.argv[1:2] == ["--child"]:
        give(measure(*sys.argv[2:]))
    for path in sys.argv[1:] or sorted(map(str, (Path(__file__).parent / "programs").rglob("*.py"))):
        names = ["CELL", "FIXED_CELL"] if runpy.run_path(path)["TRUTH"]["leaks"] else ["CELL"]
        for name in names:
            print(f"{Path(path).stem:42} {name:10} {run_alone(path, name)}", flush=True)


def run_alone(path: str, name: str) -> str:
    """Return what a new process says of one cell."""
    environment = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "MPLBACKEND": "agg"}
    found = ask([__file__, "--child", str(Path(path).resolve()), name], environment)
    return str(found.get("error") or json.dumps(found))


def measure(path: str, name: str) -> dict[str, object]:
    """Run the cell *name* of the program, and return what a run leaves."""
    program = runpy.run_path(path)
    is_off = program["TRUTH"].get("mode") == "gc-off"
    if is_off:
        gc.disable()
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    setup = program.get("FIXED_SETUP", program["SETUP"]) if name == "FIXED_CELL" else program["SETUP"]
    exec(compile(setup, "<setup>", "exec"), vars(module))  # noqa: S102 - running programs is the point
    code = compile(program[name], "<cell>", "exec")

    def run(times: int) -> None:
        for _ in range(times):
            exec(code, vars(module))  # noqa: S102
        if not is_off:
            gc.collect()

    run(20)
    bytes_in_use()  # its own first call is not to be counted
    run(FIRST - 20)
    before = bytes_in_use()
    run(LAST - FIRST)
    found: dict[str, object] = {"bytes": round((bytes_in_use() - before) / (LAST - FIRST), 1)}
    if is_off:
        gc.collect()
        found["bytes_after_collect"] = round((bytes_in_use() - before) / (LAST - FIRST), 1)
    kinds()
    known = kinds()
    run(MORE)
    gained = kinds()
    gained.subtract(known)
    found["objects"] = round(gained.total() / MORE, 2)
    tracemalloc.start()
    run(10)
    asked = tracemalloc.get_traced_memory()[0]
    run(4 * MORE)
    found["asked"] = round((tracemalloc.get_traced_memory()[0] - asked) / (4 * MORE), 1)
    found["kinds"] = {kind: round(count / MORE, 2) for kind, count in gained.most_common(6) if count >= MORE / 6}
    return found


def bytes_in_use() -> int:
    """Return how many bytes malloc has given out."""
    heap = psutil.heap_info()
    return int(heap.heap_used + heap.mmap_used)


def kinds() -> collections.Counter[str]:
    """Count the living objects that the collector knows, by type."""
    return collections.Counter(type.__repr__(type(thing)) for thing in gc.get_objects())


if __name__ == "__main__":
    main()
