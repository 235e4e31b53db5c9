"""Put what a graph keeps into the sentences that text and HTML share."""

from __future__ import annotations

from leaklab.model.retention import KeptTensor, Retention, Sharing
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

_NAME_LIMIT = 60
_MAX_NAMED = 3


def counted(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def at_least(retention: Retention) -> str:
    """Return the words before a figure that may be larger."""
    return "" if retention.is_complete else "at least "


def headline(retention: Retention) -> str:
    """Return what the graphs keep, in one sentence."""
    keep = "keeps" if retention.n_nodes == 1 else "keep"
    return (
        f"{shorten(retention.name, _NAME_LIMIT)}: {at_least(retention)}{counted(retention.n_nodes, 'node')} {keep} "
        f"{format_bytes(retention.saved_bytes)} in {counted(retention.n_saved, 'saved tensor')}"
    )


def details(retention: Retention) -> list[str]:
    """Return how those bytes divide, and what has become of the saved tensors; only what applies."""
    lines = []
    if retention.saved_bytes:
        shares = [f"{format_bytes(retention.graph_bytes)} by the graph alone"]
        if retention.leaf_bytes:
            shares.append(f"{format_bytes(retention.leaf_bytes)} shared with parameters or other leaves")
        if retention.variable_bytes:
            shares.append(f"{format_bytes(retention.variable_bytes)} shared with variables")
        lines.append("; ".join(shares))
    if retention.unsaved_leaf_bytes:
        lines.append(f"beside that, leaves of {format_bytes(retention.unsaved_leaf_bytes)} that no operation saved")
    if retention.n_freed:
        rest = "what is left there is the skeleton" if retention.n_saved else "what is left is the skeleton"
        lines.append(f"{counted(retention.n_freed, 'saved tensor')} freed by a backward pass: {rest}")
    if retention.n_packed:
        were = "was" if retention.n_packed == 1 else "were"
        lines.append(f"{counted(retention.n_packed, 'saved tensor')} {were} packed by hooks, and not unpacked to look")
    if retention.n_roots > 1:
        named = ", ".join(shorten(root, _NAME_LIMIT) for root in retention.roots[:_MAX_NAMED])
        more = f" and {retention.n_roots - _MAX_NAMED:,} more" if retention.n_roots > _MAX_NAMED else ""
        lines.append(f"{retention.n_roots:,} tensors with a graph: {named}{more}")
    return lines


def tensor_words(row: KeptTensor) -> str:
    """Return ``10,000 x torch.Tensor (64, 128) float32 cpu``."""
    times = f"{row.count:,} x " if row.count > 1 else ""
    kind = row.kind.removeprefix("torch.")
    return f"{times}{kind} {row.shape} {row.dtype} {row.device}"


def size_words(row: KeptTensor) -> str:
    """Return the bytes of a row, ``unknown`` where torch cannot tell."""
    return "unknown" if row.n_bytes is None else format_bytes(row.n_bytes)


def sharing_words(row: KeptTensor) -> str:
    """Return who else holds the memory of a row; empty for nobody."""
    if row.sharing is Sharing.GRAPH:
        return ""
    if row.shared_with:
        return f"memory of {row.shared_with}, nothing extra"
    return "memory of a leaf" if row.sharing is Sharing.LEAF else "memory of a variable"
