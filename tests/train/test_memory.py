"""Training keeps the memory of a step; in processes of their own, since the C library's settings are the process's."""

import subprocess
import sys

import pytest

from sfcnn.train.memory import _glibc, keeping_memory

PAGES = 100 * 2**20 // 4096
SCRIPT = """
import resource
import torch
from sfcnn.train.memory import keeping_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(100 * 2**20, dtype=torch.uint8).fill_(1)  # 100 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

def in_heap(size):  # whether a block, larger than all that was freed before, is taken from the heap and would be kept
    block = torch.empty(size, dtype=torch.uint8)
    heap = next(line for line in open("/proc/self/maps") if line.endswith("[heap]\\n"))
    start, end = (int(address, 16) for address in heap.split()[0].split("-"))
    return start <= block.data_ptr() < end

pages()
before = resident()
with keeping_memory():
    pages()  # aligned blocks do not fit where one of the same size was freed, until a few lie side by side
    kept = pages()
    inside = in_heap(2**30)
print(kept, resident() - before, int(inside), int(in_heap(3 * 2**30)))
"""

needs_glibc = pytest.mark.skipif(_glibc() is None, reason="the C library is not glibc")


@needs_glibc
def test_memory_is_kept_within_and_returned_after() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    kept, remaining, inside, after = map(int, process.stdout.split())
    assert kept < 3 * PAGES  # of ten blocks, whose pages would all be new
    assert remaining < PAGES / 4
    assert (inside, after) == (1, 0)


@needs_glibc
def test_errors_pass_through() -> None:
    with pytest.raises(KeyError, match="lost"), keeping_memory():
        raise KeyError("lost")


def test_it_does_nothing_without_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with keeping_memory():
        assert _glibc() is None
