"""The record of a notebook's kernel: what in it takes memory, or piles up, and what to do next about each."""

from __future__ import annotations

import enum
from dataclasses import dataclass

KERNEL_SCHEMA = 1
"""Raised whenever the record changes so that older files cannot be read any more."""


class Suspicion(str, enum.Enum):
    """What a suspect is."""

    OUTPUTS = "outputs"  # results that the notebook remembers, and nothing else holds
    EXCEPTION = "exception"  # the last error, with the variables of the functions it went through
    FIGURES = "figures"  # figures of matplotlib that nobody has closed
    HOOKS = "hooks"  # the same function registered again and again
    CALLBACKS = "callbacks"  # handlers of a logger, or callbacks of the notebook
    GRAPHS = "graphs"  # tensors that are kept with the autograd graphs behind them
    CELL = "cell"  # a cell each of whose later executions added memory
    HOLDER = "holder"  # what holds most of the rest
    DEVICE = "device"  # memory of an accelerator that no tensor of Python's explains, or that is only reserved


@dataclass(frozen=True, slots=True)
class Suspect:
    """One thing that takes memory, or piles up.

    Attributes:
        kind: What it is.
        where: Who has it: Python for the holder, the name of a hook, of a device; ``In[7]`` of a cell.
        n_bytes: What comes back if it goes; of a cell what its later executions added, of a holder what it holds; of
            small objects alone nothing, since their bytes are not known.
        count: How many there are: results, figures, hooks, tensors; of a cell its executions after the first.
        each: What one execution of a cell adds in bytes; the most hooks on one module.
        what: The largest of what it holds; of a cell its first line.
        command: What to run next, as a cell; empty where nothing is known.
        unit: What is counted of a holder: ``tensors``, ``arrays``.
    """

    kind: Suspicion
    where: str
    n_bytes: int
    count: int = 0
    each: float = 0.0
    what: str = ""
    command: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class CellGrowth:
    """The executions of one text.

    Attributes:
        number: What the notebook calls the newest of them.
        line: The first line of the text.
        n_runs: How many executions are known.
        n_bytes: What they added together, in native memory and on accelerators.
        n_blocks: The same in blocks of Python's allocator: small objects, and their parts.
        bytes_per_run: What each execution but the first adds; 0.0 where that is not steady.
        blocks_per_run: The same in blocks.
    """

    number: int
    line: str
    n_runs: int
    n_bytes: int
    n_blocks: int
    bytes_per_run: float = 0.0
    blocks_per_run: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceLevels:
    """Memory of one accelerator, in bytes.

    Attributes:
        device: Its name, ``cuda:0``.
        allocated: Handed out by torch's allocator.
        reserved: Taken by it from the driver.
        tensors: Storages there that tensors of Python use.
    """

    device: str
    allocated: int
    reserved: int
    tensors: int


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """Everything that was found out about a kernel.

    Attributes:
        suspects: The likeliest first.
        cells: What cells have added, the most first.
        devices: The accelerators that are used.
        rss: Resident set of the process.
        n_objects: Objects that the collector knows.
        n_tensors: Tensors alive.
        tensor_bytes: Bytes of their storages.
        notes: What could not be looked at, one sentence each.
        seconds: What it took to look.
        environment: Versions, as ``(name, version)``.
    """

    suspects: tuple[Suspect, ...]
    cells: tuple[CellGrowth, ...] = ()
    devices: tuple[DeviceLevels, ...] = ()
    rss: int = 0
    n_objects: int = 0
    n_tensors: int = 0
    tensor_bytes: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = KERNEL_SCHEMA
