"""Keras' way of a history: a list of floats per metric; a log of numbers, no leak."""

SOURCE = "none: a pattern that is reported often"
TRUTH = {
    "leaks": False,
    "cause": "none",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import random
random.seed(0)
history = {'loss': [], 'accuracy': []}
"""
CELL = """
history['loss'].append(random.random())
history['accuracy'].append(random.random())
"""
FIXED_CELL = """
history['loss'].append(random.random())
"""
