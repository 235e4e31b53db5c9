"""Holders of libraries are named with what lets go of them; a user's own of the same shape are not."""

from __future__ import annotations

import pytest

from leaklab.explain.known_holders import KNOWN_HOLDERS, NATIVE_CACHES, known_holder, with_known_holders
from leaklab.model import RootPath, Status, Step


def path_of(root, *steps):
    return RootPath(root, tuple(Step(reference, kind, "", Status.EXPECTED) for reference, kind in steps))


@pytest.mark.parametrize(
    ("path", "position", "release"),
    [
        (
            path_of("module 'torch._dynamo.eval_frame'", ("torch._dynamo.eval_frame.cache", "dict")),
            0,
            "_dynamo.reset()",
        ),
        (path_of("notebook variable", ("Out", "dict"), ("[7]", "torch.Tensor")), 0, "%reset -f out"),
        (path_of("last exception", ("sys.last_value", "ValueError"), (".args", "tuple")), 0, "sys.last_value"),
        (path_of("notebook variable", ("ap", "torchmetrics.AUROC"), (".preds", "list")), 0, "metric.reset()"),
        (path_of("module 'x'", ("x.f", "functools._lru_cache_wrapper"), ("cached result", "list")), 0, "cache_clear()"),
        (
            path_of("notebook variable", ("acc", "accelerate.accelerator.Accelerator"), ("._models", "list")),
            1,
            "accelerator.free_memory()",
        ),
        (path_of("x", ("w", "torch.utils.tensorboard.writer.SummaryWriter"), ("._q", "list")), 0, "writer.close()"),
        (path_of("running function f", ("e", "_pytest._code.code.ExceptionInfo")), 0, "clear_frames"),
    ],
)
def test_a_known_holder_is_named_at_its_step_with_its_release(path, position, release):
    assert known_holder(path)[0] == position
    noted = with_known_holders(path)
    assert release in noted.steps[position].note
    assert [step.note for i, step in enumerate(noted.steps) if i != position] == [""] * (len(path.steps) - 1)


@pytest.mark.parametrize(
    "path",
    [
        path_of("notebook variable", ("zoo", "Zoo"), ("._models", "list")),
        path_of("notebook variable", ("box", "Box"), (".Out", "dict")),
        path_of("notebook variable", ("history", "list"), ("[3]", "torch.Tensor")),
        path_of("notebook variable", ("page", "Page"), (".model_card", "dict")),
    ],
)
def test_a_users_own_holder_of_the_same_shape_is_not_named(path):
    assert known_holder(path) is None
    assert with_known_holders(path) == path


def test_of_several_the_one_nearest_to_the_leak_speaks():
    path = path_of("x", ("Out", "dict"), ("[7]", "torchmetrics.AUROC"), (".preds", "list"))
    assert known_holder(path)[0] == 1


def test_a_note_that_is_there_already_stays():
    step = Step("Out", "dict", "", Status.EXPECTED, "said before")
    path = RootPath("notebook variable", (step,))
    assert with_known_holders(path) == path


def test_every_entry_can_match_something_and_says_how_it_lets_go():
    for known in KNOWN_HOLDERS:
        assert known.reference or known.kind or known.root
        assert known.words.endswith("lets go")
    assert all(cache.name and cache.sign and cache.release for cache in NATIVE_CACHES)
