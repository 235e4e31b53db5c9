"""How numbers are written, and levels drawn as a few characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.text import draw_levels, format_bytes, format_rate, unit_words


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"), (96, "96 B"), (5.333, "5.33 B"), (37.3, "37 B"), (1000, "1,000 B"),
        (1023, "1,023 B"), (1023.7, "1.00 KiB"), (1024, "1.00 KiB"), (12_345, "12.1 KiB"), (160_768, "157 KiB"),
        (999.6 * 1024, "0.98 MiB"),
        (1.2 * 2**20, "1.20 MiB"), (9.996 * 2**20, "10.0 MiB"), (99.96 * 2**20, "100 MiB"), (16 * 2**30, "16.0 GiB"),
        (3 * 2**60, "3,072 PiB"), (-2048, "-2.00 KiB"),
    ],
)  # fmt: skip
def test_bytes_have_three_digits_and_a_unit(n_bytes, text):
    assert format_bytes(n_bytes) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0"),
        (3, "3"),
        (3.0, "3"),
        (1 / 3, "0.33"),
        (2.5, "2.5"),
        (1200, "1,200"),
        (1234.5, "1,234"),
        (0.004, "0.004"),
        (100, "100"),
    ],
)
def test_rates_have_no_needless_digits(rate, text):
    assert format_rate(rate) == text


@given(st.floats(0, 2**59))
def test_written_bytes_are_true_to_one_in_a_hundred(n_bytes):
    number, unit = format_bytes(n_bytes).replace(",", "").split()
    read = float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    assert read == pytest.approx(n_bytes, rel=0.01, abs=0.5)


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (1, "entries", "1 entry"),
        (1.0, "graph nodes", "1 graph node"),
        (0.999, "objects", "1 object"),
        (0.5, "objects", "0.5 objects"),
        (0, "entries", "0 entries"),
        (2, "entries", "2 entries"),
        (1200, "characters", "1,200 characters"),
    ],
)
def test_one_of_a_unit_is_singular(count, unit, text):
    assert unit_words(count, unit) == text


@pytest.mark.parametrize(
    ("levels", "encoding", "drawn"),
    [
        ([], "utf-8", ""),
        ([5], "utf-8", "▁"),
        ([0, 50, 100], "utf-8", "▁▅█"),
        ([100, 0], "utf-8", "█▁"),
        ([0, 50, 100], "ascii", "_=#"),
        ([0, 100], None, "_#"),
        ([0, 100], "no-such-encoding", "_#"),
        ([1_000_000, 1_001_000, 1_000_000], "utf-8", "▁▁▁"),
        ([0, 0], "utf-8", "▁▁"),
    ],
)
def test_the_least_level_is_the_lowest_sign_and_noise_is_flat(levels, encoding, drawn):
    assert draw_levels(levels, encoding=encoding) == drawn
