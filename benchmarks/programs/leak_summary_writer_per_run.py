"""A re-run cell makes a SummaryWriter in a new folder and never closes the last one.

A thread, a queue and an open file each.
"""

SOURCE = "lanpa/tensorboardX#108"
TRUTH = {
    "leaks": True,
    "cause": "thread-or-worker-kept",
    "causes_ok": ["global-cache"],
    "grows": "Thread",
    "holder": "_AsyncWriterThread",
    "holders_ok": ["writer", "EventFileWriter", "thread"],
    "bytes_per_run": 12400,
    "count_per_run": 1,
    "fix": "writer.close(), or a with block",
}
SETUP = """
import pathlib, tempfile
from torch.utils.tensorboard import SummaryWriter
root = pathlib.Path(tempfile.mkdtemp())
n_runs = 0
"""
CELL = """
n_runs += 1
writer = SummaryWriter(str(root / ('run%d' % n_runs)))
writer.add_scalar('loss', 0.5, 1)
"""
FIXED_CELL = """
n_runs += 1
writer = SummaryWriter(str(root / ('run%d' % n_runs)))
writer.add_scalar('loss', 0.5, 1)
writer.close()
"""
