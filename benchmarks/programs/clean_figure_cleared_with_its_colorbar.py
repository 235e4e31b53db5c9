"""One figure is cleared and drawn again with a picture and a colorbar in each run."""

SOURCE = "Clay-foundation/model#158"
TRUTH = {
    "leaks": False,
    "cause": "none-replaced",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import io, numpy as np
from matplotlib.figure import Figure
rng = np.random.default_rng(0)
fig = Figure(figsize=(2, 2))
"""
CELL = """
fig.clear()
ax = fig.add_subplot()
fig.colorbar(ax.imshow(rng.random((8, 8))), ax=ax)
picture = io.BytesIO()
fig.savefig(picture)
"""
FIXED_CELL = """
fig.clear()
"""
