"""Holders of libraries are named with what lets go of them; a user's own of the same shape are not."""

from __future__ import annotations

import pytest

from leaklab.heap.known_holders import KNOWN_HOLDERS, NATIVE_CACHES, known_holder, remark_on, with_known_holders
from leaklab.heap.shortest_paths import Start
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
        (path_of("module '_warnings'", ("_warnings.filters", "list")), 0, "warnings.catch_warnings()"),
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


def test_a_holder_that_only_its_root_tells_is_the_first_step_of_the_path():
    path = path_of("module 'matplotlib._pylab_helpers'", ("Gcf.figs", "dict"), ("[1]", "Manager"), (".x", "list"))
    assert known_holder(path)[0] == 0
    assert (
        with_known_holders(path).steps[0].note
        == "known holder: pyplot's list of open figures; plt.close('all') lets go"
    )


@pytest.mark.parametrize(
    ("start", "path", "words"),
    [
        (None, path_of("x", ("Out", "dict")), ""),
        (
            Start(0, "last exception", "sys.last_value", 40),
            path_of("last exception", ("sys.last_value", "ValueError"), (".args", "tuple")),
            "sys.last_exc = sys.last_value = sys.last_traceback = None lets go",
        ),
        (
            Start(0, "notebook variable", "", 40, is_variable=True),
            path_of(
                "notebook variable", ("get_ipython", "method"), (".InteractiveTB", "VerboseTB"), (".tb", "traceback")
            ),
            "running another cell, then %reset -f out, lets go",
        ),
        (Start(0, "thread 'Thread-1'", "", 8), path_of("thread 'Thread-1'", ("local 'x'", "list")), "it goes when the"),
        (
            Start(0, "module 'numpy'", "numpy", 16, is_library=True),
            path_of("module 'numpy'", ("numpy.cache", "dict")),
            "a library holds it for itself: module 'numpy'",
        ),
        (Start(0, "notebook variable", "", 0, is_variable=True), path_of("notebook variable", ("kept", "list")), ""),
    ],
)
def test_remarks_ask_the_same_table_before_they_speak_of_the_root(start, path, words):
    remark = remark_on(start, path)
    assert words in remark
    assert bool(remark) == bool(words)


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
