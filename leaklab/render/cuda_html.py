"""Write a CUDA snapshot, or the comparison of several, as HTML: a fragment for a notebook, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from markupsafe import Markup

from leaklab.model.cuda import BlockMap, FrameNode, SnapshotFacts, SnapshotSeries, StackChange
from leaklab.render import cuda_text
from leaklab.render.cuda_map import SCRIPT, maps_markup
from leaklab.render.cuda_plots import plot_icicle, plot_series, plot_timeline
from leaklab.render.templates import ACCENT, CALM, GOOD, page, render

_LEAST_SHARE = 0.005
_MAX_NODES = 400
_MAX_DEPTH = 40
_N_OPEN = 3  # levels of a tree
_CHANGE_COLOURS = {
    StackChange.NEW: ACCENT, StackChange.GROWN: ACCENT, StackChange.SAME: CALM, StackChange.SHRUNK: GOOD,
    StackChange.GONE: GOOD,
}  # fmt: skip


def render_snapshot(facts: SnapshotFacts) -> str:
    """Return one snapshot as a fragment that survives the sanitizers of notebooks."""
    return str(_snapshot(facts, is_page=False))


def render_snapshot_page(facts: SnapshotFacts, maps: Sequence[BlockMap] = ()) -> str:
    """Return one snapshot as a page of its own, all unfolded, that asks nothing of any server.

    Args:
        facts: What the page says.
        maps: Where the blocks lay, for each device where that is known; only the file itself tells, no record of it.
    """
    title = f"memory snapshot {PurePath(facts.name).name}"
    body = _snapshot(facts, is_page=True, maps=maps)
    return page(title, body, script=SCRIPT if maps else "")


def render_series(series: SnapshotSeries) -> str:
    """Return a comparison as a fragment that survives the sanitizers of notebooks."""
    return str(_series(series, is_page=False))


def render_series_page(series: SnapshotSeries) -> str:
    """Return a comparison as a page of its own, all unfolded, that asks nothing of any server."""
    title = f"{len(series.names)} memory snapshots: {series.verdict.outcome.value}"
    return page(title, _series(series, is_page=True))


def _snapshot(facts: SnapshotFacts, *, is_page: bool, maps: Sequence[BlockMap] = ()) -> Markup:
    peaks = "; ".join(
        cuda_text.moment_words(moment) for moment in cuda_text.telling_moments(facts.moments) if moment.kind == "peak"
    )
    return render(
        "cuda_snapshot.html.j2",
        facts=facts,
        cuda_text=cuda_text,
        timeline=plot_timeline(facts.timelines).png() if facts.timelines else None,
        timeline_alt=f"Memory along the trace. {peaks}",
        maps=maps_markup(maps),
        icicle=plot_icicle(facts.tree).png() if facts.stacks else None,
        tree=tree_markup(facts.tree, is_open=is_page) if facts.stacks else "",
        is_page=is_page,
    )


def _series(series: SnapshotSeries, *, is_page: bool) -> Markup:
    return render(
        "cuda_series.html.j2",
        series=series,
        cuda_text=cuda_text,
        changed=[stack for stack in series.stacks if len(set(stack.live_bytes)) > 1],
        change_colours=_CHANGE_COLOURS,
        plot=plot_series(series).png(),
        icicle=plot_icicle(series.tree).png() if series.tree.children else None,
        tree=tree_markup(series.tree, is_open=is_page) if series.tree.children else "",
        is_page=is_page,
    )


def tree_markup(root: FrameNode, *, is_open: bool) -> Markup:
    """Return the frames that hold at least 0.5 % of the bytes, folded below the third level unless *is_open*."""
    return render("cuda_tree.html.j2", lines=_tree_lines(root, is_open=is_open), total=root.active_bytes)


def _tree_lines(root: FrameNode, *, is_open: bool) -> Iterator[tuple[FrameNode | None, bool | None]]:
    """Yield each frame and whether what is below it is unfolded, None if nothing is; no frame closes the last one.

    Without recursion: a tree may be as deep as the call stacks were.
    """
    least = max(1, root.active_bytes * _LEAST_SHARE)
    waiting: list[tuple[FrameNode | None, int]] = [(root, 0)]
    n_nodes = 0
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            yield None, None
            continue
        n_nodes += 1
        shown = [child for child in node.children if child.active_bytes >= least]
        if not shown or depth >= _MAX_DEPTH or n_nodes + len(waiting) > _MAX_NODES:
            yield node, None
            continue
        yield node, is_open or depth < _N_OPEN
        waiting.append((None, depth))
        waiting += [(child, depth + 1) for child in reversed(shown)]
