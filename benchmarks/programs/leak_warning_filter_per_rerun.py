"""A re-run cell defines its own warning class anew and silences it.

Warnings.filters gains an entry, and keeps the class.
"""

SOURCE = "JarryShaw/PyPCAPKit#364"
TRUTH = {
    "leaks": True,
    "cause": "callback-registry",
    "causes_ok": ["container-growth", "global-cache", "hook-left", "library-registry"],
    "grows": "tuple",
    "holder": "filters",
    "holders_ok": ["warnings"],
    "bytes_per_run": 1580,
    "count_per_run": 1,
    "fix": "with warnings.catch_warnings() around the job, or define the class once",
}
SETUP = """
import warnings

def run_job(category, number):
    warnings.warn('slow path in job %d' % number, category)
    return number * 2
"""
CELL = """
class SlowPath(UserWarning):
    pass

warnings.simplefilter('ignore', SlowPath)
size = run_job(SlowPath, 3)
"""
FIXED_CELL = """
class SlowPath(UserWarning):
    pass

with warnings.catch_warnings():
    warnings.simplefilter('ignore', SlowPath)
    size = run_job(SlowPath, 3)
"""
