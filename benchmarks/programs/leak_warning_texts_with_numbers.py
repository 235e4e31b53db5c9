"""A helper module warns with a number in the text: its __warningregistry__ gains an entry per text."""

SOURCE = "python/cpython#97557"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "callback-registry"],
    "grows": "tuple",
    "holder": "__warningregistry__",
    "holders_ok": ["solver_steps"],
    "bytes_per_run": 560,
    "count_per_run": 3,
    "fix": "warn with a constant text, tell the number elsewhere",
}
SETUP = """
import importlib, pathlib, sys, tempfile, warnings
folder = tempfile.mkdtemp()
pathlib.Path(folder, 'solver_steps.py').write_text(
    'import warnings\\n'
    'n_steps = 0\\n'
    'def step(tell_number=True):\\n'
    '    global n_steps\\n'
    '    n_steps += 1\\n'
    '    where = "step %d" % n_steps if tell_number else "a step"\\n'
    '    warnings.warn("no convergence in " + where, RuntimeWarning)\\n'
    '    return n_steps * 0.5\\n')
sys.path.insert(0, folder)
import solver_steps
warnings.filterwarnings('default', category=RuntimeWarning)
warnings.showwarning = lambda *args, **kwargs: None
"""
CELL = """
value = sum(solver_steps.step() for _ in range(3))
"""
FIXED_CELL = """
value = sum(solver_steps.step(tell_number=False) for _ in range(3))
"""
