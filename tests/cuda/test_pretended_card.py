"""What a check says of memory on a card, on machines without one: tensors of half precision pass for those of a card.

Their bytes are taken off malloc's, and are the level of an accelerator, in blocks of 512 bytes. All else is real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

CHECK = """
    import json, sys, types
    import psutil, torch
    from leaklab.runtime import sizes

    real_heap, lies_on_host = psutil.heap_info, sizes._lies_on_host

    level = [0, 0]  # bytes, and what they take in blocks

    class OnCard(torch.Tensor):
        def __del__(self):
            count(self, -1)

    def count(tensor, sign):
        n_bytes = tensor.numel() * tensor.element_size()
        level[0] += sign * n_bytes
        level[1] += sign * (-(-n_bytes // 512) * 512)

    def on_card(tensor):
        count(tensor, 1)
        return tensor.as_subclass(OnCard)

    def heap_info():
        info = real_heap()
        return types.SimpleNamespace(heap_used=info.heap_used - level[0], mmap_used=info.mmap_used)

    psutil.heap_info = heap_info
    sizes._lies_on_host = lambda tensor: tensor.dtype is not torch.half and lies_on_host(tensor)
    from leaklab.measure import gauges

    def stats_of(index):
        now = {"all": {"current": level[1]}}
        return {"allocated_bytes": now, "reserved_bytes": now}

    gauges._allocator = lambda: gauges._DeviceAllocator(stats_of, None, 1, "cuda")
    import leaklab

    def half(*shape):
        return on_card(torch.ones(shape, dtype=torch.half))

    def cat(*parts):
        with torch._C.DisableTorchFunctionSubclass():
            return on_card(torch.cat(parts, -2))

    losses, batches, past, number = [], [], None, 0
    cache = {"keys": half(8, 64)}

    def keeps_losses():
        losses.append(half())

    def keeps_both():
        losses.append(half(16, 64))
        batches.append(torch.ones(16, 64))

    def concatenates():
        cache["keys"] = cat(cache["keys"], half(64, 64))

    def feeds_back():
        global past
        new = half(2, 8, 64), half(2, 8, 64)
        past = new if past is None else tuple(cat(*pair) for pair in zip(past, new))

    def lengths_vary():
        global number
        number += 1
        cache["keys"] = half((number * 7919) % 97 + 1, 64)

    def begins_anew():
        cache["keys"] = cat(cache["keys"], half(8, 64)) if len(cache["keys"]) < 64 else half(8, 64)

    report = leaklab.leakcheck(globals()[sys.argv[1]], runs=60)
    print(json.dumps({
        "outcome": report.verdict.outcome.value,
        "leaks": {leak.holder: leak.bytes_per_run for leak in report.leaks},
        "explained": {share.memory: share.known_bytes / share.grown_bytes for share in report.check.shares},
        "cures": [cure.outcome.value for leak in report.leaks for cure in leak.cures[:1]],
    }))
"""
CARD = "accelerator memory (torch's allocator)"


def checked(step):
    asked = [sys.executable, "-c", textwrap.dedent(CHECK), step]
    apart = {**os.environ, "LEAKLAB_CHILDREN": "0"}  # where a card is in use, no process can be forked off
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120, env=apart)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("step", "leaks"),
    [
        ("keeps_losses", {"losses": 512}),  # two bytes each, in a block of 512
        ("keeps_both", {"losses": 2048, "batches": 4096}),
        ("concatenates", {"cache['keys']": 8192}),
        ("feeds_back", {"past": 4096}),
    ],
)
def test_all_that_a_card_loses_has_its_holder(step, leaks):
    found = checked(step)
    assert found["leaks"] == {holder: pytest.approx(n_bytes, abs=1024) for holder, n_bytes in leaks.items()}
    assert found["explained"][CARD] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("step", ["lengths_vary", "begins_anew"])
def test_what_comes_and_goes_on_a_card_is_no_leak(step):
    found = checked(step)
    assert (found["outcome"] != "leak", found["leaks"]) == (True, {})
