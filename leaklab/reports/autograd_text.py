"""Write what a graph keeps as plain text, at most 100 columns wide, in sentences that its page shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leaklab.model.autograd import AutogradRecord, GraphPart, KeptTensor, Sharing
from leaklab.text import SHOWN_LIMIT, clipped, columns, format_bytes, shorten, unit_words, wrap

_N_ROWS = 10
_NUMBERS = "{:>9}{:>9}{:>9}{:>12}{:>12}"
_N_NUMBER_COLUMNS = 51
_NAME_LIMIT = 60
_MAX_NAMED = 3


def at_least(retention: AutogradRecord) -> str:
    """Return the words before a figure that may be larger."""
    return "" if retention.is_complete else "at least "


def headline(retention: AutogradRecord) -> str:
    """Return what the graphs keep, in one sentence."""
    keep = "keeps" if retention.n_nodes == 1 else "keep"
    saved = f"{format_bytes(retention.saved_bytes)} in {unit_words(retention.n_saved, 'saved tensors')}"
    return (
        f"{shorten(retention.name, _NAME_LIMIT)}: {at_least(retention)}{unit_words(retention.n_nodes, 'nodes')} {keep} "
        f"{saved}{_of_nodes(retention)}"
    )


def _of_nodes(retention: AutogradRecord) -> str:
    if not retention.node_bytes:
        return ""
    take, themselves = ("takes", "itself") if retention.n_nodes == 1 else ("take", "themselves")
    return f", and {take} about {format_bytes(retention.node_bytes)} {themselves}"


def details(retention: AutogradRecord) -> list[str]:
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
        rest = "only the nodes are left there" if retention.n_saved else "only the nodes are left"
        lines.append(f"{unit_words(retention.n_freed, 'saved tensors')} freed by a backward pass: {rest}")
    if retention.n_packed:
        were = "was" if retention.n_packed == 1 else "were"
        lines.append(
            f"{unit_words(retention.n_packed, 'saved tensors')} {were} packed by hooks, and not unpacked to look"
        )
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


def render_retention(retention: AutogradRecord) -> str:
    """Return the whole record as lines of at most 100 columns, the sum first."""
    retention = clipped(retention, SHOWN_LIMIT)
    blocks = [list(_head(retention)), list(_parts("By operation", retention.operations))]
    blocks += [list(_parts("By forward line", retention.lines)), list(_tensors(retention.tensors))]
    blocks.append([line for note in retention.notes for line in wrap(note, "  - ", "    ")])
    if blocks[-1]:
        blocks[-1].insert(0, "Notes")
    blocks.append([", ".join(f"{name} {version}" for name, version in retention.environment)])
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def _head(retention: AutogradRecord) -> Iterator[str]:
    yield from wrap(headline(retention), "GRAPH  ", " " * 7)
    for line in details(retention):
        yield from wrap(line, " " * 7, " " * 9)


def _parts(title: str, parts: Sequence[GraphPart]) -> Iterator[str]:
    """Yield a table of parts; what only one part saves and nobody else holds is its own."""
    if not parts:
        return
    yield title.ljust(columns() - _N_NUMBER_COLUMNS) + _NUMBERS.format("nodes", "saved", "freed", "bytes", "its own")
    width = columns() - _N_NUMBER_COLUMNS - 3
    for part in parts[:_N_ROWS]:
        numbers = (f"{part.n_nodes:,}", f"{part.n_saved:,}", f"{part.n_freed:,}")
        sizes = (format_bytes(part.n_bytes), format_bytes(part.own_bytes))
        yield f"  {shorten(part.name, width):<{width + 1}}" + _NUMBERS.format(*numbers, *sizes)
    if len(parts) > _N_ROWS:
        yield f"  ... {len(parts) - _N_ROWS:,} more"


def _tensors(rows: Sequence[KeptTensor]) -> Iterator[str]:
    if not rows:
        return
    yield "Saved tensors, largest first"
    for row in rows[:_N_ROWS]:
        yield from wrap(tensor_words(row), f"{size_words(row):>12}  ", " " * 14)
        origin = f"saved by {', '.join(row.saved_by)}" + (" (packed)" if row.is_packed else "")
        for line in filter(None, (origin, sharing_words(row), *row.lines[:1])):
            yield from wrap(shorten(line, 2 * columns()), " " * 14, " " * 16)
    if len(rows) > _N_ROWS:
        yield f"  ... {len(rows) - _N_ROWS:,} more in report.tensors"
