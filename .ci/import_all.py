"""Import every module of the installed leaklab and say which versions took part; started by ``.ci/wheel`` and a test.

A module of a framework or an engine that is not installed is left out, where it says so itself.
"""

from __future__ import annotations

import importlib
import pkgutil
import platform
import sys
from importlib import metadata

import leaklab
from leaklab.errors import MissingExtraError

_NEEDS = {
    "lightning", "ignite", "keras", "transformers", "mcp", "anyio", "pytest", "prometheus_client", "opentelemetry",
    "gdb",
}  # fmt: skip
"""What a module that is imported for it alone may miss; anyio comes with mcp."""


def main() -> int:
    """Return 0 where every module could be imported."""
    done, left_out, failed = 0, [], []
    for module in pkgutil.walk_packages(leaklab.__path__, "leaklab."):
        if module.name == "leaklab.__main__":
            continue
        try:
            importlib.import_module(module.name)
        except (ImportError, MissingExtraError) as error:
            missing = (getattr(error, "name", None) or "").partition(".")[0]
            is_extra = isinstance(error, MissingExtraError) or missing in _NEEDS
            (left_out if is_extra else failed).append(f"{module.name} ({error})")
        else:
            done += 1
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "ipython", "pandas"))
    print(f"Python {platform.python_version()}, {packages}, {leaklab.__file__}")
    for line in failed:
        print(f"failed: {line}")
    print(f"{'not ' if failed else ''}every module is imported: {done}, left out for a missing extra: {len(left_out)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
