"""transformers: the callback watches a real training."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
torch = pytest.importorskip("torch")

from leaklab.frameworks.transformers import TransformersMonitor  # noqa: E402
from leaklab.model.loop import LoopState  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.untraced]  # the package's own
LATE = 10**9


class Net(torch.nn.Module):
    def __init__(self, *, leaks=False, dies=False):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)
        self.leaks, self.dies = leaks, dies
        self.outs = []

    def forward(self, x, labels=None):
        if self.dies:
            raise KeyError
        loss = self.layer(x).pow(2).mean()
        if self.leaks:
            self.outs.append(loss)
        return {"loss": loss}


def train(net, watch, folder, n_steps=20):
    options = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=n_steps,
        per_device_train_batch_size=4,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        log_level="error",
    )
    data = [{"x": torch.randn(16)} for _ in range(200)]
    transformers.Trainer(model=net, args=options, train_dataset=data, callbacks=[watch]).train()


def test_a_step_is_an_update_and_the_trainer_tells_how_many_come(tmp_path):
    watch = TransformersMonitor(first_step=LATE, quiet=True)
    train(Net(), watch, tmp_path)
    status = watch.monitor.status
    assert (status.step, status.total_steps) == (20, 20)


def test_a_training_that_dies_ends_the_watch_of_the_with_block(tmp_path):
    with pytest.raises(KeyError), TransformersMonitor(first_step=LATE, quiet=True) as watch:
        train(Net(dies=True), watch, tmp_path)
    assert watch.monitor.record.failure == "KeyError"


def test_what_grows_in_the_model_is_named_after_the_trainer_and_its_log_is_a_note(tmp_path):
    watch = TransformersMonitor(first_step=30, overhead=1.0, quiet=True)
    train(Net(leaks=True), watch, tmp_path, 1_100)
    change = watch.monitor.changes[0]
    assert change.state is LoopState.GROWING
    assert "`trainer.model.outs` grows by 1 tensor" in change.words
    assert "test_transformers.py" in change.words
    assert len({change.fingerprint for change in watch.monitor.changes}) == 1
