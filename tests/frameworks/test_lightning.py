"""Lightning: the callback watches a real fit."""

from __future__ import annotations

import math

import pytest

pl = pytest.importorskip("lightning.pytorch")
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from leaklab.frameworks.lightning import LightningMonitor  # noqa: E402
from leaklab.model.loop import LoopState  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning's own: workers, loggers, a process that forks
    pytest.mark.untraced,
]
LATE = 10**9


class Net(pl.LightningModule):
    def __init__(self, *, leaks=False, dies_at=-1):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)
        self.leaks, self.dies_at = leaks, dies_at
        self.outs = []

    def training_step(self, batch, number):
        if self.global_step == self.dies_at:
            raise KeyError(number)
        loss = self.layer(batch[0]).pow(2).mean()
        if self.leaks:
            self.outs.append(loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(net, watch, *, n_batches=10, **options):
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, **options},
    )
    trainer.fit(net, DataLoader(TensorDataset(torch.randn(4 * n_batches, 16)), batch_size=4))


@pytest.mark.parametrize(
    ("options", "n_steps"),
    [({}, 20), ({"max_epochs": 5, "max_steps": 7}, 7), ({"accumulate_grad_batches": 2}, 20)],
)
def test_a_step_is_a_batch_and_the_trainer_tells_how_many_come(options, n_steps):
    watch = LightningMonitor(first_step=LATE, quiet=True)
    fit(Net(), watch, **options)
    status = watch.monitor.status
    assert (status.step, status.total_steps) == (n_steps, n_steps)


def test_a_fit_without_end_has_no_number_of_steps():
    class Endless:
        global_step, accumulate_grad_batches, estimated_stepping_batches = 0, 1, math.inf
        global_rank, world_size = 1, 2

    watch = LightningMonitor(first_step=LATE, quiet=True)
    watch.on_train_start(Endless(), Net())
    watch.on_train_end(None, None)
    assert watch.monitor.total_steps is None
    assert watch.monitor.name == "rank 1"


def test_a_fit_that_dies_ends_the_watch_with_the_name_of_its_error():
    watch = LightningMonitor(first_step=LATE, quiet=True)
    with pytest.raises(KeyError):
        fit(Net(dies_at=5), watch)
    assert watch.monitor.record.failure == "KeyError"


def test_what_grows_in_the_module_is_named_after_the_module_with_its_line():
    watch = LightningMonitor(first_step=30, overhead=1.0, quiet=True)
    fit(Net(leaks=True), watch, n_batches=1_100, max_epochs=1)
    change = watch.monitor.changes[0]
    assert change.state is LoopState.GROWING
    assert "`pl_module.outs` grows by 1 tensor" in change.words
    assert "test_lightning.py" in change.words
