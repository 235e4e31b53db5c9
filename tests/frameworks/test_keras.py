"""Keras 3 on torch: the callback watches a real fit."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
np = pytest.importorskip("numpy")

from leaklab.frameworks.keras import KerasMonitor  # noqa: E402
from leaklab.model.loop import LoopState  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.untraced]  # the package's own
LATE = 10**9


def network():
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def fit(model, watch, n_batches, *others):
    data = np.zeros((4 * n_batches, 8), "float32")
    model.fit(data, data[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[watch, *others])


def test_a_step_is_a_batch_and_keras_tells_how_many_come():
    watch = KerasMonitor(first_step=LATE, quiet=True)
    fit(network(), watch, 5)
    status = watch.monitor.status
    assert (status.step, status.total_steps) == (10, 10)


def test_a_fit_that_dies_ends_the_watch_of_the_with_block():
    def die(*_, **__):
        raise KeyError

    other = keras.callbacks.LambdaCallback(on_train_batch_begin=die)
    with pytest.raises(KeyError), KerasMonitor(first_step=LATE, quiet=True) as watch:
        fit(network(), watch, 5, other)
    assert watch.monitor.record.failure == "KeyError"


def test_what_a_callback_keeps_of_the_model_is_found():
    model = network()
    model.seen = []
    other = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: model.seen.append(np.zeros(100)))
    watch = KerasMonitor(first_step=30, overhead=1.0, quiet=True)
    fit(model, watch, 600, other)
    change = watch.monitor.changes[0]
    assert change.state is LoopState.GROWING
    assert "model.seen" in change.words
