from __future__ import annotations

import pytest
import samples

from leaklab.reports.tables import container_table, leak_table, leaks_csv, object_table, run_table, tensor_table

TABLES = (object_table, tensor_table, container_table, run_table, leak_table)


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_the_columns_and_types_of_a_full_one(table):
    full, empty = table(samples.leaky_check(cuda=True)), table(samples.empty_check())
    assert len(full) > 0
    assert len(empty) == 0
    assert list(full.dtypes.items()) == list(empty.dtypes.items())
    assert full.index.name == empty.index.name


@pytest.mark.parametrize("table", TABLES)
def test_hostile_text_does_not_stop_a_table(table):
    assert len(table(samples.hostile_check()).to_string()) > 0


def test_objects_are_found_by_their_type():
    row = object_table(samples.leaky_check()).loc["torch.Tensor"]
    assert row["bytes_per_run"] == 32_772.0
    assert row["n_kept"] == 24
    assert row["kept_by_run"] == "2 2 2 2 2 2 2 2 2 2 2 2"
    assert row["outcome"] == "leak"


def test_tensors_show_shape_and_device():
    row = tensor_table(samples.leaky_check()).iloc[0]
    assert (row["shape"], row["dtype"], row["device"], bool(row["has_graph"])) == ("(64, 128)", "float32", "cpu", True)


def test_containers_are_found_by_their_holder():
    row = container_table(samples.leaky_check()).loc["trainer.history"]
    assert (row["first_length"], row["last_length"], row["unit"]) == (1, 13, "entries")
    assert (row["lengths"], row["at_runs"]) == ("1 7 13", "0 6 12")


def test_a_level_that_was_not_measured_is_missing_and_not_zero():
    table = run_table(samples.leaky_check(cuda=False))
    assert table["accelerator_bytes"].isna().all()
    assert str(table.dtypes["heap_bytes"]) == "Int64"  # bytes stay whole numbers beside missing ones
    assert table.loc[12, "heap_bytes"] == 64 * samples.MIB + 36 * 10_924


def test_leaks_are_numbered_from_one():
    table = leak_table(samples.leaky_check())
    assert list(table.index) == [1, 2]
    assert table.loc[2, "cause"] == "hook-left"
    assert table["retained_bytes"].isna().tolist() == [False, True]


def test_csv_has_a_line_for_each_leak_below_its_header():
    lines = leaks_csv(samples.only(samples.hook_leak())).splitlines()
    assert lines[0] == (
        "leak,what,cause,holder,bytes_per_run,count_per_run,unit,retained_bytes,kept_by_run,path,sites,advice,fingerprint"
    )
    assert lines[1].startswith("1,function remember,hook-left,model.layer1._forward_hooks,208,1.0,objects,,1 1 1")
    assert len(lines) == 2


def test_csv_of_a_clean_check_is_the_header():
    assert leaks_csv(samples.clean_check()).count("\n") == 1
