"""What the explorer is told of leaks that one line leaves, and of the paths to what a leak keeps."""

from __future__ import annotations

import json
from dataclasses import replace

from samples import history_leak, leaky_check

from leaklab.explorer.payload import MAX_LEAKS, report_data
from leaklab.model import Outcome, RootPath, Status, Step
from leaklab.model.check import Way

LINE, OTHER = "Cell In[1], line 1: store.keep()", "Cell In[1], line 2: other.keep()"


def leak_at(attribute, site=LINE, **facts):
    steps = (
        Step("store", "Store", "", Status.EXPECTED), Step(attribute, "list", "", Status.EXPECTED),
        Step("[3]", "torch.Tensor", "", Status.LEAKED),
    )  # fmt: skip
    holder = f"store{attribute}"
    path = RootPath("notebook variable", steps)
    facts = {"what": "torch.Tensor (8,)", "bytes_per_run": 100.0, "count_per_run": 1.0, **facts}
    return replace(history_leak(), path=path, holder=holder, fingerprint=holder, sites=(site,), **facts)


def data_of(*leaks):
    data = report_data(replace(leaky_check(), leaks=leaks), [])
    assert json.loads(json.dumps(data)) == data
    return data


def test_leaks_of_one_line_and_one_cause_are_one_row_that_counts_them():
    data = data_of(leak_at(".a"), leak_at(".other", OTHER), *(leak_at(f".kept_{i:02}") for i in range(40)))
    (group,) = data["groups"]
    assert (group["words"], group["places"]) == ("41 leaks", [0, *range(2, 42)])
    assert group["row"] == {
        "outcome": "leak", "what": "torch.Tensor (8,)", "holder": LINE, "count_per_run": 41.0,
        "bytes_per_run": 4100.0, "retained": None, "cause": history_leak().cause,
    }  # fmt: skip
    assert [0, "all 41 places through `store`"] in group["paths"]
    assert [1, "40 of 41 through `.kept_#`"] in group["paths"]


def test_what_is_not_proved_is_not_counted_as_leaks():
    verdict = replace(leaky_check().verdict, outcome=Outcome.INCONCLUSIVE)
    (group,) = report_data(replace(leaky_check(), verdict=verdict, leaks=(leak_at(".a"), leak_at(".b"))), [])["groups"]
    assert (group["words"], group["row"]["outcome"]) == ("2 places", "inconclusive")


def test_a_line_with_two_causes_and_leaks_without_a_line_are_not_folded():
    assert data_of(leak_at(".a"), leak_at(".b", cause="hook"))["groups"] == []
    assert data_of(leak_at(".a"), leak_at(".b", OTHER))["groups"] == []
    unknown = [replace(leak_at(name), sites=()) for name in (".a", ".b")]
    assert data_of(*unknown)["groups"] == []


def test_counts_of_different_units_are_not_added():
    (group,) = data_of(leak_at(".a"), leak_at(".b", unit="entries", what="entries of a dict"))["groups"]
    assert group["row"]["count_per_run"] is None
    assert group["row"]["what"] == "torch.Tensor (8,) and 1 kind more"


def test_a_group_counts_also_the_leaks_that_the_list_has_no_room_for():
    data = data_of(*(leak_at(f".kept_{i}") for i in range(MAX_LEAKS + 50)))
    (group,) = data["groups"]
    assert (len(data["items"]), len(group["places"])) == (MAX_LEAKS, MAX_LEAKS)
    assert group["words"] == f"{MAX_LEAKS + 50} leaks"
    assert group["row"]["count_per_run"] == MAX_LEAKS + 50


def test_paths_to_what_a_leak_keeps_are_merged_with_their_counts():
    ways = (Way(("[i]", "['loss']"), "torch.Tensor", 23), Way(("[i]", "['final']"), "torch.Tensor", 1))
    (item, plain) = data_of(leak_at(".a", ways=ways, kept=(2,) * 13), leak_at(".b", OTHER))["items"][:2]
    assert item["ways"] == [
        [0, "all 24 objects through `[i]`"],
        [1, "23 of 24 through `['loss']` (torch.Tensor)"],
        [1, "1 of 24 through `['final']` (torch.Tensor)"],
    ]
    assert plain["ways"] == []
    assert "all paths" not in dict(item["facts"])


def test_texts_of_groups_and_paths_are_cut_and_made_visible():
    bad = "<img>\u202e" + "A" * 100_000
    ways = (Way((bad, bad), bad, 3), Way((bad,), bad, 3))
    data = data_of(*(leak_at(name, bad, ways=ways, what=bad) for name in (".a", ".b")))
    text = json.dumps([data["groups"], data["items"][0]["ways"]])
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert len(text) < 5_000
