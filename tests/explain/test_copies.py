"""Copies of one object are recognised by structure and values, without a line of the user's code being run."""

from __future__ import annotations

import copy

import pytest
import torch
from explain_builders import N_RUNS, view_of

from leaklab.explain.leaks.copies import is_copy, original_of


class Metric:
    def __init__(self, n=100):
        torch.manual_seed(1)
        self.matrix = torch.rand(n)
        self.name = "accuracy"

    def __eq__(self, other):
        raise AssertionError

    __hash__ = None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(20, 20)


def found_in(variables, runs):
    with view_of(variables, runs) as view:
        members = [view.index.vertex_of(id(thing)) for born in runs for thing in born]
        return original_of(view, [vertex for vertex in members if vertex >= 0])


def test_copies_of_a_metric_are_traced_to_the_metric():
    metric = Metric()
    runs = [[copy.deepcopy(metric)] for _ in range(N_RUNS)]
    assert found_in({"metric": metric, "logged": [born[0] for born in runs]}, runs) == "metric"


def test_copies_made_while_the_original_trains_are_still_copies():
    net, runs = Net(), []
    for _ in range(N_RUNS):
        runs.append([copy.deepcopy(net)])
        with torch.no_grad():
            net.fc.weight += 0.01 * torch.randn(20, 20)
    assert found_in({"net": net, "best": [born[0] for born in runs]}, runs) == "net"


def test_models_initialised_anew_are_no_copies():
    net, runs = Net(), [[Net()] for _ in range(N_RUNS)]
    assert found_in({"net": net, "nets": [born[0] for born in runs]}, runs) == ""


def test_entries_of_the_same_list_are_not_each_others_originals():
    metric = Metric()
    runs = [[copy.deepcopy(metric)] for _ in range(N_RUNS)]
    assert found_in({"logged": [metric, *(born[0] for born in runs)]}, runs) == ""


def test_listeners_of_the_same_list_are_not_each_others_originals():
    old = Metric()
    runs = [[made, made.__init__] for made in (copy.deepcopy(old) for _ in range(N_RUNS))]
    assert found_in({"listeners": [old.__init__, *(method for _, method in runs)]}, runs) == ""


def test_what_registers_in_two_tables_is_no_copy_of_the_first_that_did():
    """As an object whose methods are hooks before and behind a layer: the first of them was there before."""
    first = Metric()
    runs = [[made := copy.deepcopy(first), made.__repr__, made.__str__] for _ in range(N_RUNS)]
    before = {0: first.__repr__, **{number: born[1] for number, born in enumerate(runs, 1)}}
    behind = {number: born[2] for number, born in enumerate(runs, 1)}
    behind[0] = first.__str__
    del first
    assert found_in({"before": before, "behind": behind}, runs) == ""


def test_random_numbers_that_are_all_positive_are_no_copies():
    one, other = Metric(), Metric()
    other.matrix = torch.rand(100)
    assert not is_copy(one, other)


def test_one_copy_is_not_a_habit():
    metric = Metric()
    runs = [[copy.deepcopy(metric)], [], []]
    assert found_in({"metric": metric, "kept": [runs[0][0]]}, runs) == ""


def other_shape():
    return Metric(200)


def other_attribute():
    metric = Metric()
    metric.extra = 1
    return metric


def all_zero():
    metric = Metric()
    metric.matrix = torch.zeros(100)
    return metric


@pytest.mark.parametrize("make", [other_shape, other_attribute, all_zero])
def test_another_shape_attribute_or_content_is_no_twin(make):
    assert is_copy(Metric(), Metric())
    assert not is_copy(Metric(), make())


def test_objects_without_telling_tensors_are_no_twins():
    class Plain:
        def __init__(self):
            self.number = 1.0

    assert not is_copy(Plain(), Plain())
