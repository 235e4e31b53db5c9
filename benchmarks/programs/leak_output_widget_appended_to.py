"""Progress texts are appended to one Output widget: its tuple of outputs is made anew with one entry more each time."""

SOURCE = "jupyter-widgets/ipywidgets#2385"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["notebook-history", "global-cache", "callback-registry"],
    "grows": "dict",
    "holder": "outputs",
    "holders_ok": ["panel", "_trait_values"],
    "bytes_per_run": 4300,
    "count_per_run": 1,
    "fix": "panel.outputs = () before the next text",
}
SETUP = """
import ipywidgets as widgets, random
random.seed(0)
panel = widgets.Output()

def show(clear=False):
    if clear:
        panel.outputs = ()
    panel.append_stdout(''.join(random.choices('abcdefgh', k=4000)))
"""
CELL = """
show()
"""
FIXED_CELL = """
show(clear=True)
"""
