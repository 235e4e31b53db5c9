"""What all plots look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT = "#333333", "#d9d9d9"
"""Of the words, and of the lines behind the data."""


def calm(axes: Axes) -> None:
    """Leave nothing on the axes that does not carry data."""
    axes.set_facecolor("white")
    axes.tick_params(colors=INK, labelsize=8, length=3)
    axes.grid(visible=True, axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
