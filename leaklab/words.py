"""Write numbers as people read them: bytes with a unit, rates without needless digits."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(n_bytes: float) -> str:
    """Write *n_bytes* with three digits and a binary unit: ``96 B``, ``1.20 MiB``, ``157 KiB``."""
    sign, size = "-" if n_bytes < 0 else "", abs(n_bytes)
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1 and (unit > 0 or size >= 1023.5):  # noqa: PLR2004 - no fourth digit after rounding
        size /= 1024
        unit += 1
    if unit == 0:
        return f"{sign}{format_rate(size if size < 10 else round(size))} B"  # noqa: PLR2004
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0  # noqa: PLR2004
    return f"{sign}{size:,.{decimals}f} {UNITS[unit]}"


_IRREGULAR = {"entries": "entry"}


def unit_words(count: float, unit: str) -> str:
    """Write ``1 entry``, ``0.5 objects``, ``2 graph nodes``: *count* with *unit*, which is given for many."""
    shown = format_rate(count)
    return f"{shown} {_IRREGULAR.get(unit, unit.removesuffix('s')) if shown == '1' else unit}"


def format_rate(per_run: float) -> str:
    """Write a rate with at most two decimals where it needs any: ``3``, ``0.33``, ``2.5``, ``1,200``."""
    if 0 < abs(per_run) < 0.01:  # noqa: PLR2004
        return f"{per_run:.1g}"
    decimals = 2 if abs(per_run) < 99.995 else 0  # noqa: PLR2004
    text = f"{per_run:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
