"""The report on a process: its text, its page, its file."""

from __future__ import annotations

import pytest

import leaklab
from leaklab.model import RootPath, Status
from leaklab.model.loop import LoopState, MonitorStatus
from leaklab.model.paths import Step
from leaklab.model.process import HeldTensors, KindCount, ProcessLevels, ProcessRecord
from leaklab.reports.process import ProcessReport

PATH = RootPath(
    "notebook variable",
    (
        Step("trainer", "Trainer", "", Status.UNKNOWN),
        Step(".history", "list", "53 entries", Status.UNKNOWN),
        Step("[0]", "torch.Tensor", "(512, 1024) float32 cuda:0", Status.UNKNOWN),
    ),
)
RECORD = ProcessRecord(
    occasion="cuda:0 ran out of memory: an allocation of 1.00 GiB failed with 1.00 MiB of 80.0 GiB free",
    made_at="2026-01-02T03:04:05+00:00",
    pid=77,
    program="python train.py --name <b>",
    levels=ProcessLevels(3 << 30, 2 << 30, 70 << 30, 79 << 30, 64 << 30, "limit of the container", 5 << 30),
    stack=("train.py:41 in <module>: train()", "train.py:30 in train: loss.backward()"),
    n_objects=200_000,
    kinds=(KindCount("function", 33_000), KindCount("dict", 18_000)),
    n_tensors=60,
    tensor_bytes=70 << 30,
    tensors=(
        HeldTensors("trainer.history", "torch.Tensor (512, 1024) float32 cuda:0", 53, 60 << 30, 2 << 30, PATH),
        HeldTensors("", "torch.Tensor (8,) float32 cpu", 1, 1 << 30, 1 << 30),
    ),
    monitors=(
        MonitorStatus(
            "epoch 3", step=1200, state=LoopState.GROWING, total_steps=5000, bytes_per_step=2 << 20,
            holder="trainer.history", full_at_step=1300, is_alarm=True,
        ),
    ),
    notes=("there is no snapshot of the accelerator: no room",),
    files=("out_of_memory_1_cuda.pickle",),
    seconds=0.5,
    environment=(("leaklab", "0.1.0"),),
)  # fmt: skip
TEXT = """\
cuda:0 ran out of memory: an allocation of 1.00 GiB failed with 1.00 MiB of 80.0 GiB free
  process 77 at 2026-01-02T03:04:05+00:00
  python train.py --name <b>

Memory
  process (resident)           3.00 GiB
  handed out by malloc         2.00 GiB
  accelerators, allocated      70.0 GiB
  accelerators, reserved       79.0 GiB
  limit of the container       5.00 GiB of 64.0 GiB

Monitors
  epoch 3: step 1,200 of 5,000, growing, 2.00 MiB a step, held by trainer.history, memory is full at
    step 1,300

Where it was, innermost call last
  train.py:41 in <module>: train()
  train.py:30 in train: loss.backward()

Largest tensors and arrays by holder (200,000 objects, 60 tensors of 70.0 GiB)
   60.0 GiB  trainer.history
             53 tensors, the largest 2.00 GiB: torch.Tensor (512, 1024) float32 cuda:0
             from notebook variable: trainer  .history  [0]
   1.00 GiB  (holder not known)
             torch.Tensor (8,) float32 cpu

Objects by type
        33,000  function
        18,000  dict

Beside this file
  out_of_memory_1_cuda.pickle

note: there is no snapshot of the accelerator: no room
made in 500 ms; leaklab 0.1.0
"""


def test_text():
    assert str(ProcessReport(RECORD)) == TEXT


def test_page_shows_the_same_and_escapes_what_is_no_markup():
    page = ProcessReport(RECORD).to_html()
    for words in (
        "trainer.history",
        "60.0 GiB",
        "growing",
        "train.py:30",
        "no room",
        "(200,000 objects",
        "5.00 GiB of",
    ):
        assert words in page
    assert "--name &lt;b&gt;" in page
    assert "<b>train" not in page


@pytest.mark.parametrize(
    "record", [RECORD, ProcessRecord("asked", "now", 1, "", ProcessLevels(1))], ids=["full", "least"]
)
def test_file_is_read_back(record, tmp_path):
    file = tmp_path / "report.json"
    ProcessReport(record).save(file)
    assert leaklab.load(file) == ProcessReport(record)
    assert str(leaklab.load(file))


def test_one_line():
    report = ProcessReport(RECORD)
    assert repr(report) == f"<ProcessReport 77: {RECORD.occasion}>"
    assert report.holders == ("trainer.history", "")


def test_long_path_loses_its_middle():
    steps = tuple(Step(f".next_functions[{number}]", "Node", "", Status.UNKNOWN) for number in range(5000))
    held = HeldTensors("the graph of losses", "torch.Tensor", 1, 1, 1, RootPath("notebook variable", steps))
    record = ProcessRecord("asked", "now", 1, "", ProcessLevels(1), n_objects=1, tensors=(held,))
    assert ".next_functions[3]  (4,992 more)  .next_functions[4996]" in " ".join(str(ProcessReport(record)).split("\n"))
