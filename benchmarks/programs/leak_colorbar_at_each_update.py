"""A live picture updates its data and adds a colorbar in each run: one more axes per run in the same figure."""

SOURCE = "radiofisica-hgugm/kali_mc#8"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["callback-registry", "open-figures"],
    "grows": "Axes",
    "holder": "fig",
    "holders_ok": ["_axstack", "Figure", "CallbackRegistry", "colorbar"],
    "bytes_per_run": 323700,
    "count_per_run": 1,
    "fix": "make the colorbar once, update it with the picture",
}
SETUP = """
import numpy as np
from matplotlib.figure import Figure
rng = np.random.default_rng(0)
fig = Figure(figsize=(3, 2))
ax = fig.add_subplot()
image = ax.imshow(np.zeros((8, 8)))
bar = None

def update(again=True):
    global bar
    image.set_data(rng.random((8, 8)))
    if again or bar is None:
        bar = fig.colorbar(image, ax=ax)
"""
CELL = """
update()
"""
FIXED_CELL = """
update(again=False)
"""
