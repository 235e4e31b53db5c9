"""`leaklab.leakcheck`: what it takes, what it refuses, whom it names."""

from __future__ import annotations

import functools
import gc
import itertools
import pkgutil
import sys
import threading
import time
import weakref

import pytest
import torch

import leaklab
from leaklab.model import Outcome

pytestmark = pytest.mark.untraced

HISTORY: list[object] = []
SHORT = {"runs": 16, "sites": False}
"""Where it is only asked who holds what is left."""


def leak_into_global() -> None:
    HISTORY.append([0.0] * 1000)


@pytest.fixture(autouse=True)
def empty_history():
    HISTORY.clear()
    yield
    HISTORY.clear()


def test_a_leak_into_a_global_is_named_as_the_function_would_write_it():
    report = leaklab.leakcheck(leak_into_global)
    assert report.leaked
    assert report.leaks[0].holder == "HISTORY"
    assert str(report.verdict).startswith("leak: ")


def test_a_leak_into_a_local_of_the_calling_function_is_told_in_words():
    history: list[object] = []
    report = leaklab.leakcheck(lambda: history.append([0.0] * 1000), **SHORT)
    assert report.leaked
    assert "history" in report.leaks[0].holder
    assert "test_a_leak_into_a_local_of_the_calling_function" in str(report.leaks[0].path)


class Step:
    def __init__(self):
        self.seen = []

    def run(self):
        self.seen.append([0.0] * 1000)


def stepping():
    kept = []

    def step():
        kept.append([0.0] * 1000)

    return step


@pytest.mark.parametrize(
    ("make", "holder"),
    [
        (stepping, "closure variable 'kept'"),
        (lambda: Step().run, ".seen"),
        (lambda: functools.partial(Step.run, Step()), ".seen"),
    ],
)
def test_what_only_the_checked_function_holds_is_found_from_there(make, holder):
    (leak,) = leaklab.leakcheck(make(), **SHORT).leaks
    assert leak.path.root == "what is checked"
    assert holder in str(leak.path)


def test_a_clean_function_is_clean():
    assert str(leaklab.leakcheck(lambda: None).verdict).startswith("clean")


def test_the_numbers_of_runs_are_those_asked_for():
    calls = iter(range(100))
    report = leaklab.leakcheck(lambda: next(calls), runs=6, warmup=3)
    assert report.verdict.n_runs == 6
    assert next(calls) == 9


def test_the_name_is_in_the_record():
    assert leaklab.leakcheck(lambda: None, runs=5, name="step").check.settings.name == "step"


class Trainer:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def step(self) -> None:
        self.seen.append([0.0] * 1000)

    def __call__(self) -> None:
        self.step()


TRAINER = Trainer()


@pytest.mark.parametrize(
    "function", [TRAINER.step, TRAINER, functools.partial(Trainer.step, TRAINER)], ids=["method", "callable", "partial"]
)
def test_the_globals_of_methods_callables_and_partials_are_searched(function):
    TRAINER.seen.clear()
    report = leaklab.leakcheck(function, **SHORT)
    assert report.leaks[0].holder == "TRAINER.seen"


def test_a_namespace_may_be_given():
    names = {"mine": []}
    report = leaklab.leakcheck(lambda: names["mine"].append([0.0] * 1000), namespace=names, **SHORT)
    assert report.leaks[0].holder == "mine"


@pytest.mark.parametrize(
    ("function", "words"), [(3, "not int"), (None, "not NoneType"), ("step()", "not str"), ([print], "not list")]
)
def test_what_cannot_be_called_is_refused(function, words):
    with pytest.raises(TypeError, match=f"leakcheck needs a function to call, {words}"):
        leaklab.leakcheck(function)


async def coroutine() -> None: ...


class AwaitedCall:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), AwaitedCall(), AwaitedCall().__call__],
    ids=["function", "partial", "callable", "method"],
)
def test_a_coroutine_function_is_refused_with_what_to_write(function):
    with pytest.raises(TypeError, match=r"lambda: asyncio\.run\(work\(\)\)"):
        leaklab.leakcheck(function)


def generator():
    yield 1


async def async_generator():
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator, functools.partial(generator)])
def test_a_generator_function_is_refused_since_a_call_runs_nothing(function):
    with pytest.raises(TypeError, match="runs none of its code"):
        leaklab.leakcheck(function)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("runs", 7.5, "runs must be a whole number, not float"),
        ("runs", "7", "runs must be a whole number, not str"),
        ("warmup", None, "warmup must be a whole number, not NoneType"),
        ("seconds", "60", "seconds must be a number of seconds, not str"),
        ("name", 3, "name must be a str, not int"),
        ("namespace", [], "namespace must be a dict of variables, not list"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named_before_anything_runs(argument, value, message):
    calls: list[int] = []
    with pytest.raises(TypeError, match=message):
        leaklab.leakcheck(lambda: calls.append(1), **{argument: value})
    assert calls == []


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("runs", 4, "at least 5 to tell a leak from a warm-up, not 4"),
        ("warmup", -1, "must be 0 or more, not -1"),
        ("seconds", 0, "positive number of seconds, not 0"),
        ("seconds", float("nan"), "positive number of seconds, not nan"),
    ],
)
def test_settings_that_allow_no_verdict_are_refused(argument, value, message):
    with pytest.raises(ValueError, match=message):
        leaklab.leakcheck(lambda: None, **{argument: value})


def interrupted_in(monkeypatch: pytest.MonkeyPatch, place: str, at_call: int = 1) -> leaklab.LeakReport:
    """Check what leaks, where an interrupt comes in our own work, and return the report that is raised with it."""
    kept: list[torch.Tensor] = []
    module, _, name = place.rpartition(".")
    own, calls = pkgutil.resolve_name(place), itertools.count(1)

    def pressed(*args: object, **kwargs: object) -> object:
        if next(calls) == at_call:
            raise KeyboardInterrupt  # as the handler of the signal does, which a job in the background ignores
        return own(*args, **kwargs)

    monkeypatch.setattr(pkgutil.resolve_name(module), name, pressed)
    before = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.gettrace(), threading.active_count()
    with pytest.raises(KeyboardInterrupt) as caught:
        leaklab.leakcheck(lambda: (kept.append(torch.ones(1000)), time.sleep(0.05)), namespace={"kept": kept}, runs=24)
    assert before == (
        gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.gettrace(), threading.active_count()
    )  # fmt: skip
    report: leaklab.LeakReport = caught.value.leaklab_report  # type: ignore[attr-defined]
    return report


@pytest.mark.parametrize(
    ("place", "at_call", "why"),
    [
        ("leaklab.check.pipeline.Measurement.finish_run", 17, "KeyboardInterrupt in the count after run 16"),
        ("leaklab.check.line_search.LineWriter", 1, ""),
        ("leaklab.check.pipeline.find_cures", 1, ""),
    ],
)
def test_an_interrupt_between_two_runs_loses_nothing_that_was_found(monkeypatch, place, at_call, why):
    report = interrupted_in(monkeypatch, place, at_call)
    assert [leak.holder for leak in report.leaks] == ["kept"], str(report)
    assert report.check.failure == why


def test_an_interrupt_while_holders_are_looked_for_says_what_piled_up(monkeypatch):
    report = interrupted_in(monkeypatch, "leaklab.check.explaining.borrow_heap")
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert report.check.failure == "KeyboardInterrupt in the search for holders"
    assert "1 tensor more every run, and it is open what keeps it" in report.verdict.reason


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, StopIteration, SystemExit, GeneratorExit])
def test_what_the_function_raises_is_raised_and_carries_the_partial_report(kind):
    calls: list[int] = []

    def fails_in_its_fourth_call() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise kind

    with pytest.raises(kind) as caught:
        leaklab.leakcheck(fails_in_its_fourth_call)
    report = caught.value.leaklab_report
    assert report.check.failure == f"{kind.__name__} in run 3"
    assert report.verdict.n_runs == 2  # the run that failed is not counted
    assert [entry.name for entry in caught.traceback][-1] == "fails_in_its_fourth_call"
    assert "drive" not in [entry.name for entry in caught.traceback]


class SealedError(ValueError):
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        msg = "no attributes here"
        raise AttributeError(msg)


def test_an_exception_that_takes_no_attribute_is_raised_all_the_same():
    def fails() -> None:
        raise SealedError

    with pytest.raises(SealedError):
        leaklab.leakcheck(fails)


class Big:
    pass


def test_a_failed_function_keeps_nothing_once_its_error_is_gone():
    refs: list[weakref.ref[Big]] = []

    def fails() -> None:
        big = Big()
        refs.append(weakref.ref(big))
        raise ValueError

    gc.disable()  # the frames go by themselves: nothing of leaklab ties them into a cycle
    try:
        try:
            leaklab.leakcheck(fails)
        except ValueError:
            assert refs[0]() is not None
        assert refs[0]() is None
    finally:
        gc.enable()


def test_a_decorated_function_is_followed_to_its_own_globals():
    @functools.wraps(leak_into_global)
    def decorated() -> None:
        leak_into_global()

    assert leaklab.leakcheck(decorated, **SHORT).leaks[0].holder == "HISTORY"


def test_a_leak_raises_where_it_is_asked_to_and_carries_the_report():
    with pytest.raises(leaklab.LeakFound, match=r"^leak: ") as caught:
        leaklab.leakcheck(leak_into_global, runs=6, sites=False, fail_on_leak=True)
    assert caught.value.leaklab_report.leaked
    assert not leaklab.leakcheck(lambda: None, runs=6, fail_on_leak=True).leaked


def test_the_setup_is_run_once_before_everything():
    calls = []
    leaklab.leakcheck(lambda: calls.append(1), runs=5, sites=False, setup=lambda: calls.append("setup"))
    assert calls[0] == "setup"
    assert calls.count("setup") == 1


def test_a_setup_that_would_run_nothing_is_refused():
    with pytest.raises(TypeError, match="leakcheck calls a plain function"):
        leaklab.leakcheck(print, setup=coroutine)


def test_a_report_can_be_redacted_and_leave_out_summaries():
    keys = {"a secret": []}
    grow = lambda: keys["a secret"].append([1.0] * 50)  # noqa: E731
    hidden = leaklab.leakcheck(grow, runs=6, sites=False, namespace={"keys": keys}, redact=True)
    assert hidden.leaked
    assert "a secret" not in hidden.to_json()
    assert leaklab.leakcheck(lambda: None, runs=5, summaries=False).check.settings.summaries is False


def test_a_leak_that_is_smaller_than_asked_for_is_told_but_does_not_count():
    names: dict[str, list[int]] = {}

    def add_name() -> None:
        names[f"name {len(names)}"] = [len(names)]

    options = {"runs": 8, "sites": False, "namespace": {"names": names}}
    before = leaklab.leakcheck(add_name, **options)
    assert before.leaked
    report = leaklab.leakcheck(add_name, **options, min_bytes=4096, fail_on_leak=True)
    assert not report.leaked
    assert "1 leak is left aside, smaller than --min-bytes 4.00 KiB" in report.verdict.reason
    assert "smaller than --min-bytes 4.00 KiB: `names` grows by" in "\n".join(report.notes)
    assert [leak.fingerprint for leak in report.record.noted] == [leak.fingerprint for leak in before.leaks]
    assert leaklab.LeakReport.from_json(report.to_json()).record.settings.min_bytes == 4096
    change = before.compare(report)
    assert not change.fixed
    assert "left aside, not fixed" in str(change)

    rows: list[object] = []
    both = leaklab.leakcheck(lambda: (add_name(), rows.append([0.0] * 1000)), **options, min_bytes=4096)
    assert [leak.unit for leak in both.leaks] == ["objects"]
    assert "1 leak is left aside" in both.verdict.reason


def test_settings_take_the_place_of_the_options_they_hold():
    settings = leaklab.Settings(max_runs=6, n_warmups=0, name="as before", sites=False)
    report = leaklab.leakcheck(lambda: None, settings=settings)
    assert report.check.settings == settings
    with pytest.raises(TypeError, match="settings holds runs, warmup, seconds, name"):
        leaklab.leakcheck(lambda: None, settings=settings, runs=7)


class Registered:
    """Registers each of its instances in a table that nobody empties."""

    table: dict[str, object] = {}

    def __init__(self) -> None:
        Registered.table[f"{len(self.table)} {id(self)}"] = self


def test_a_leak_that_is_known_is_neither_followed_nor_explained_again():
    full = leaklab.leakcheck(Registered, cure=False)
    again = leaklab.leakcheck(Registered, known=[leak.fingerprint for leak in full.leaks])
    assert [leak.fingerprint for leak in again.leaks] == [leak.fingerprint for leak in full.leaks]
    assert again.leaks[0].count_per_run == full.leaks[0].count_per_run == 1
    assert len(again.record.runs) <= 24 < len(full.record.runs)
    assert "these leaks are known: neither their lines nor a change were looked for again" in str(again)
    assert not again.leaks[0].cures


def test_a_new_leak_beside_a_known_one_is_explained():
    known = {leak.fingerprint for leak in leaklab.leakcheck(Registered, cure=False).leaks}

    def both() -> None:
        Registered()
        HISTORY.append([0.0] * 1000)

    report = leaklab.leakcheck(both, known=known)
    assert {leak.holder for leak in report.leaks} == {"HISTORY", "Registered.table"}
    assert "these leaks are known" not in str(report)
    new = next(leak for leak in report.leaks if leak.fingerprint not in known)
    assert any("HISTORY.append" in site for site in new.sites)


def test_what_is_known_must_be_fingerprints_not_one():
    with pytest.raises(TypeError, match="known must be a set of fingerprints, not str"):
        leaklab.leakcheck(Registered, known="6c8ccacf4471")
    with pytest.raises(ValueError, match="known and group exclude each other"):
        leaklab.leakcheck(Registered, known=["6c8ccacf4471"], group=True)
