"""A helper makes a figure for each report, saves it and leaves it to pyplot."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "cycle-garbage", "callback-registry"],
    "grows": "Figure",
    "holder": "pylab",
    "bytes_per_run": 77839,
    "count_per_run": 1,
    "fix": "plt.close(figure)",
}
SETUP = """
import io
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.rcParams["figure.max_open_warning"] = 0

def report(values):
    figure, axes = plt.subplots()
    axes.plot(values)
    return len(figure.axes)
"""
CELL = """
n = report([1, 2, 3])
"""
FIXED_SETUP = """
import io
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.rcParams["figure.max_open_warning"] = 0

def report(values):
    figure, axes = plt.subplots()
    axes.plot(values)
    n = len(figure.axes)
    plt.close(figure)
    return n
"""
FIXED_CELL = """
n = report([1, 2, 3])
"""
