"""sympy computes new expressions in each run; its caches are bounded, here at 20 entries."""

SOURCE = "sympy/sympy#4217"
TRUTH = {
    "leaks": False,
    "cause": "none-bounded",
    "grows": None,
    "holder": None,
    "bytes_per_run": 0,
    "count_per_run": 0,
    "fix": None,
}
SETUP = """
import os
os.environ['SYMPY_CACHE_SIZE'] = '20'
import sympy
x = sympy.Symbol('x')
step = 0
"""
CELL = """
step += 1
value = sympy.diff(sympy.cos(step * x) * sympy.sin(x), x).subs(x, 1)
"""
FIXED_CELL = """
value = None
"""
