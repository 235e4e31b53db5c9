"""What trackers of experiments are given: at changes of state, and no more often."""

import gc
import sys
import types
import weakref
from dataclasses import replace

import pytest
from played_monitor import CLEAN, MIB, PlayedMonitor, PlayedReport

from leaklab.metrics import log_to
from leaklab.model.loop import LoopState


def life(tracker):
    """Let a loop run that grows, then leaks, and hand it over."""
    monitor = PlayedMonitor(CLEAN)
    with log_to(tracker, monitor):
        for step in range(1_201, 1_301):
            monitor.status = replace(monitor.status, step=step)
            if step == 1_210:
                monitor.come_to(LoopState.GROWING, step, "history grows by 4 MiB a step")
            if step == 1_220:
                monitor.come_to(LoopState.LEAK, step, "history keeps _one_ tensor a step", is_alarm=True)
    return monitor


class Scalars:
    """The calls that a SummaryWriter gets."""

    def __init__(self):
        self.scalars, self.texts = [], []

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        self.scalars.append((tag, scalar_value, global_step))

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        self.texts.append((tag, text_string, global_step))

    def flush(self):
        pass


def test_a_tracker_is_told_at_changes_of_state_only():
    writer = Scalars()
    life(writer)
    assert {step for _, _, step in writer.scalars} == {1_210, 1_220}
    assert [text for tag, text, _ in writer.texts if tag == "leaklab/change"] == [
        "step 1,210: growing: history grows by 4 MiB a step",
        "step 1,220: leak, alarm: history keeps _one_ tensor a step",
    ]
    assert [step for tag, _, step in writer.texts if tag == "leaklab/report"] == [1_220, 1_300]


def test_what_was_before_is_handed_over_at_once():
    writer, monitor = Scalars(), PlayedMonitor(CLEAN)
    monitor.come_to(LoopState.GROWING, 5, "x grows")
    log_to(writer, monitor)
    assert [step for _, _, step in writer.texts] == [5]


def test_the_users_own_function_is_called_first_and_comes_back():
    writer, monitor, told = Scalars(), PlayedMonitor(CLEAN), []
    monitor.on_change = users = told.append
    with log_to(writer, monitor) as log:
        monitor.come_to(LoopState.GROWING, 5, "x grows")
    assert [change.words for change in told] == ["x grows"]
    assert monitor.on_change is users
    n_texts = len(writer.texts)
    log.finish()
    assert len(writer.texts) == n_texts


def test_every_change_is_handed_over_once_although_the_monitor_drops_some():
    writer, monitor = Scalars(), PlayedMonitor(CLEAN)
    log_to(writer, monitor)
    for step in range(300):
        monitor.come_to(LoopState.GROWING, step, f"place {step} grows")
        if len(monitor.changes) > 200:
            monitor.changes = monitor.changes[:100] + monitor.changes[101:]
    assert [step for _, _, step in writer.texts] == list(range(300))


def test_a_tracker_that_fails_is_told_of_once_and_the_loop_goes_on():
    writer, monitor = Scalars(), PlayedMonitor(CLEAN)
    log = log_to(writer, monitor)
    writer.flush = lambda: 1 / 0
    with pytest.warns(RuntimeWarning, match=r"a tracker did not take what leaklab found: ZeroDivisionError"):
        monitor.come_to(LoopState.GROWING, 5, "x grows")
    monitor.come_to(LoopState.STOPPED, 6, "x has stopped")  # a second warning would be an error
    assert "ZeroDivisionError" in log.problem
    writer.flush = lambda: None
    monitor.come_to(LoopState.GROWING, 7, "x grows again")
    assert log.problem == ""


def test_a_monitor_that_is_gone_is_no_error_and_was_not_held():
    writer, monitor = Scalars(), PlayedMonitor(CLEAN)
    log, reference = log_to(writer, monitor), weakref.ref(monitor)
    del monitor
    gc.collect()
    assert reference() is None
    log.finish()
    assert writer.scalars == []


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_tensorboard_reads_back_what_was_written(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install '.[test]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        life(writer)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("leaklab/kept_bytes")] == [(1_210, 0), (1_220, 0)]
    assert [event.value for event in events.Scalars("leaklab/heap_bytes")] == [900.0 * MIB] * 2
    texts = events.Tensors("leaklab/change/text_summary")
    assert [event.tensor_proto.string_val[0].decode().split(": ")[1] for event in texts] == ["growing", "leak, alarm"]
    (_, report) = events.Tensors("leaklab/report/text_summary")
    assert report.step == 1_300
    assert report.tensor_proto.string_val == [b"    verdict: leak\n    history keeps _one_ tensor"]


class Mlflow(types.ModuleType):
    """The calls that the module ``mlflow`` gets, with the parameters that it has."""

    def __init__(self):
        super().__init__("mlflow")
        self.metrics, self.tags, self.artifacts = [], {}, {}

    def log_metric(self, key, value, step=None, *, synchronous=None, timestamp=None, run_id=None):
        self.metrics.append((key, value, step))

    def set_tag(self, key, value, synchronous=None):
        self.tags[key] = value

    def log_text(self, text, artifact_file, run_id=None):
        self.artifacts[artifact_file] = text


def test_mlflow_gets_metrics_a_tag_and_the_page():
    mlflow = Mlflow()
    life(mlflow)
    assert ("leaklab/growth_bytes_per_step", 0.0, 1_210) in mlflow.metrics
    assert mlflow.tags == {"leaklab.state": "leak"}
    assert mlflow.artifacts["leaklab/changes.txt"].count("\n") == 2
    assert mlflow.artifacts["leaklab/report.html"] == PlayedReport().to_html()


class Wandb:
    """The calls that a run of Weights & Biases gets."""

    def __init__(self):
        self.rows, self.summary = [], {}

    def log(self, data, step=None, commit=None):
        self.rows.append((data, step, commit))

    def define_metric(self, name):
        pass


def test_wandb_gets_figures_beside_the_users_own_and_the_page(monkeypatch):
    package = types.ModuleType("wandb")
    package.Html = lambda data, inject=True: ("page", data.read(), inject)
    monkeypatch.setitem(sys.modules, "wandb", package)
    run = Wandb()
    life(run)
    assert {(step, commit) for _, step, commit in run.rows} == {(None, False)}  # no step of our own is made
    assert [data["leaklab/step"] for data, _, _ in run.rows if "leaklab/step" in data] == [1_210, 1_220]
    assert run.rows[-1][0] == {"leaklab/report": ("page", PlayedReport().to_html(), False)}
    assert run.summary == {"leaklab/state": "leak"}


class Client:
    def log_metric(self, run_id, key, value): ...
    def set_tag(self, run_id, key, value): ...
    def log_text(self, run_id, text, artifact_file): ...


@pytest.mark.parametrize(("tracker", "words"), [(Client(), "not a client"), (object(), "not 'object'"), (print, "not")])
def test_what_is_no_tracker_is_refused_in_one_sentence(tracker, words):
    with pytest.raises(TypeError, match=rf"^log_to takes [^\n]*{words}[^\n]*$"):
        log_to(tracker, PlayedMonitor())
