"""Write the figures of the measured runs as rows of the report."""

from __future__ import annotations

from leaklab.check.explained import Explained
from leaklab.collect.measurement import Measurement
from leaklab.model import Run


def run_rows(measurement: Measurement, explained: Explained) -> tuple[Run, ...]:
    """Return the figures of every measured run."""
    rows = []
    for number in range(1, measurement.n_runs + 1):
        figures = measurement.meters.row(number)
        rows.append(
            Run(
                number=number,
                seconds=float(figures["seconds"] or 0.0),
                n_born=int(figures["born"] or 0),
                n_kept=explained.kept[number - 1],
                n_tensors_kept=explained.tensors_kept[number - 1],
                tensor_bytes_kept=explained.tensor_bytes_kept[number - 1],
                heap_bytes=_whole(figures["heap"]),
                python_blocks=_whole(figures["blocks"]),
                accelerator_bytes=_whole(figures["accelerator"]),
                rss_bytes=int(figures["rss"] or 0),
            )
        )
    return tuple(rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
