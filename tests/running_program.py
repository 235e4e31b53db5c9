"""A program that runs beside a test, and is told what to do."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
import os, sys, time, torch
kept = [torch.ones(1 << 18) for _ in range(4)]
print("ready", flush=True)
"""


class Running:
    """A program that runs, until the end of the ``with`` block at most."""

    def __init__(self, source, *arguments, python=(sys.executable,)):
        command = [*python, "-c", source, *map(str, arguments)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, text=True, **pipes)
        assert self.process.stdout.readline() == "ready\n"
        self.pid = str(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.process.kill()
        self.process.communicate()

    def tell(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def ends(self):
        out, err = self.process.communicate(timeout=100)
        return self.process.returncode, out, err
