"""The first cell of a notebook inserts the project folder into sys.path; each run of the cell inserts it again."""

SOURCE = "pyinvoke/invoke#296"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache", "callback-registry", "library-registry"],
    "grows": "str",
    "holder": "path",
    "holders_ok": ["sys"],
    "bytes_per_run": 77,
    "count_per_run": 1,
    "fix": "insert it only if it is not there",
}
SETUP = """
import os, sys
"""
CELL = """
sys.path.insert(0, os.path.abspath(os.path.join(os.getcwd(), '..', 'src_of_project')))
import json
"""
FIXED_CELL = """
if (folder := os.path.abspath(os.path.join(os.getcwd(), '..', 'src_of_project'))) not in sys.path:
    sys.path.insert(0, folder)
import json
"""
