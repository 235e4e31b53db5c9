"""Real training loops, half of them with a leak: what `benchmarks/loops.py` judges the monitor by."""
