"""Temporary files of an exporter are kept open until the end."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "descriptor-left",
    "causes_ok": ["container-growth"],
    "grows": "tempfile._TemporaryFileWrapper",
    "holder": "files",
    "bytes_per_run": 4223,
    "count_per_run": 1,
    "fix": "close them when the export is read",
}
SETUP = """
import tempfile

class Exporter:
    def __init__(self):
        self.files = []

    def export(self, data):
        file = tempfile.NamedTemporaryFile()
        file.write(data)
        file.flush()
        self.files.append(file)
        return file.name

exporter = Exporter()
"""
CELL = """
size = len(open(exporter.export(b"x" * 3000), "rb").read())
"""
FIXED_CELL = """
size = len(open(exporter.export(b"x" * 3000), "rb").read())
exporter.files.pop().close()
"""
