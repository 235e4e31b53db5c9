"""Give leaklab the repaired twins of programs that leak, and wrong changes, to try: which does it call cured?

``python benchmarks/given_changes.py [FOLDER or FILE ...]`` runs each program in a process of its own, as a notebook:
`SETUP` as a cell, `CELL` under ``%%leakcheck``. `leaklab.try_change` then gets the repaired twin, as a unified diff
where `SETUP` differs as well, and must call it cured. It must not call that any of `WRONG`, which is a list of changes
where a program has one, nor what is wrong for every program: a cell that does nothing, and one that raises at its end.
"""

import difflib
import runpy
import sys
from pathlib import Path
from typing import Any

from marked_answers import ask, give

SECONDS = 300.0


def main() -> None:
    """Try the changes of each program, or, as a process of its own, those of one."""
    if sys.argv[1:2] == ["--child"]:
        give(outcomes(runpy.run_path(sys.argv[2])))
    paths = [Path(one) for one in sys.argv[1:]] or [Path(__file__).parent / "programs"]
    files = [one for path in paths for one in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    right, wrong = [], []
    for path in files:
        if not runpy.run_path(str(path))["TRUTH"]["leaks"]:
            continue
        found = ask([__file__, "--child", str(path.resolve())], {"MPLBACKEND": "agg", "PYTHONHASHSEED": "0"}, SECONDS)
        for name, said in found.items():
            print(f"{path.stem:42} {name:9} {said}", flush=True)
            (right if name == "repaired" else wrong).append(said.startswith("cured"))
    print(f"repaired twins called cured: {sum(right)} of {len(right)}; wrong changes: {sum(wrong)} of {len(wrong)}")


def outcomes(program: dict[str, Any]) -> dict[str, str]:
    """Return what leaklab says of each change to one program."""
    from IPython.core.interactiveshell import InteractiveShell

    setup, cell = program["SETUP"], program["CELL"]
    shell = InteractiveShell.instance()
    if program["TRUTH"].get("mode") == "gc-off":
        shell.run_cell("import gc; gc.disable()").raise_error()
    shell.run_cell(setup).raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    shell.run_cell_magic("leakcheck", "-q --no-cure -v _report", cell)
    report = shell.user_ns["_report"]
    wrong = {f"wrong {number}": text for number, text in enumerate(program.get("WRONG", ()), 1)}
    wrong |= {"idle": "pass", "raises": f"{cell.rstrip()}\nraise ValueError\n"}
    if "FIXED_CELL" not in program and "FIXED_SETUP" not in program:
        return {name: outcome(report, change) for name, change in wrong.items()}
    repaired = program.get("FIXED_CELL", cell)
    if (fixed_setup := program.get("FIXED_SETUP", setup)) != setup:
        repaired = difference(setup, fixed_setup, "setup") + difference(cell, repaired, "this cell")
    return {name: outcome(report, change) for name, change in {"repaired": repaired, **wrong}.items()}


def outcome(report: Any, change: str) -> str:
    """Return what comes of one change."""
    import leaklab

    try:
        return str(leaklab.try_change(report, change))
    except leaklab.ChangeError as error:
        return f"refused: {error}"


def difference(before: str, after: str, name: str) -> str:
    """Return a unified diff."""
    lines = (text.rstrip().splitlines() for text in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(*lines, name, name, lineterm=""))


if __name__ == "__main__":
    main()
