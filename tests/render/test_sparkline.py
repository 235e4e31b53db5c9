"""Levels drawn as a few characters."""

from __future__ import annotations

import pytest

from leaklab.render.sparkline import draw_levels


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
