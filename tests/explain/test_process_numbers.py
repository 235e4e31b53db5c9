"""The numbers of descriptors and processes are read from what objects have, and the objects stay as they were."""

from __future__ import annotations

import gc

import pytest

from leaklab.check.process_leaks import numbers_kept
from leaklab.measure.process_counts import CHILDREN, DESCRIPTORS


class Pipe:
    """Keeps a descriptor and the process behind it."""

    def __init__(self, fd, pid):
        self.read_fd, self.pid, self.count = fd, pid, 70_003


class Reader(Pipe):
    """Fails when it is asked for its process."""

    def __init__(self, fd, pid):
        self.read_fd, self._pid, self.count = fd, pid, 70_003

    @property
    def pid(self):
        raise AssertionError


@pytest.mark.parametrize("kind", [Pipe, Reader])
@pytest.mark.parametrize("looks", [False, True], ids=["inline", "dict"])
def test_numbers_are_read_by_their_names_and_no_dict_is_made(kind, looks):
    pipe = kind(70_001, 70_002)
    if looks:
        assert vars(pipe)
    before = [id(one) for one in gc.get_referents(pipe)]
    wanted = {70_001, 70_002, 70_003}
    assert numbers_kept([pipe], DESCRIPTORS, wanted) == {70_001}
    assert numbers_kept([pipe], CHILDREN, wanted) == {70_002}
    assert [id(one) for one in gc.get_referents(pipe)] == before
