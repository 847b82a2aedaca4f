"""Memory that is given back: which, and that nothing in it changes."""

import mmap
import re
import time
from pathlib import Path

import numpy as np
import pytest

from engine.platform.huge_pages import MAPS
from engine.platform.zero_pages import BLOCK, unmap_read, zeros_given_back

pytestmark = pytest.mark.skipif(not MAPS.exists(), reason="the system does not list its memory")
BLOCKS = 32


def resident():
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 / BLOCK


def memory(kept):
    """Blocks of zeros as llama.cpp's cache: written, private; those in ``kept`` end with another byte."""
    size = (BLOCKS + 1) * BLOCK
    fresh = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    fresh = fresh[-fresh.ctypes.data % BLOCK :][: BLOCKS * BLOCK]
    fresh[:] = 0
    for block in kept:
        fresh[(block + 1) * BLOCK - 1] = 7
    return fresh


@pytest.mark.parametrize(
    "kept", [[], [0], [BLOCKS - 1], [3, 4, 9], range(0, BLOCKS, 2), range(BLOCKS)]
)
def test_it_still_applies_blocks_of_zeros_are_given_back_unchanged(kept):
    before = resident()
    with zeros_given_back():
        taken = memory(kept)
        assert resident() - before > BLOCKS - 1
    assert resident() - before == pytest.approx(len(kept), abs=3)
    assert np.flatnonzero(taken).tolist() == [(block + 1) * BLOCK - 1 for block in kept]
    taken[:] = 5
    assert resident() - before > BLOCKS - 1
    assert (taken == 5).all()


LARGE, STEP = 128, 4  # blocks
CLEARS = "llama_kv_cache:        CPU KV buffer size =   256.00 MiB\n"


def cleared(heard, words):
    """The most blocks that were in memory while a fresh cache was cleared, and the cache."""
    size = (LARGE + 1) * BLOCK
    fresh = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    before, most = resident(), 0
    heard(2, words)
    for at in range(0, size, STEP * BLOCK):
        fresh[at : at + STEP * BLOCK] = 0
        time.sleep(0.004)
        most = max(most, resident() - before)
    return most, fresh


def test_it_still_applies_a_cache_is_never_in_memory_as_a_whole_while_it_is_cleared():
    with zeros_given_back() as heard:
        most, fresh = cleared(heard, CLEARS)
        heard(2, "llama_kv_cache: size =  256.00 MiB (  4096 cells)\n")
        assert most < LARGE / 4
        fresh[:] = 5  # nobody gives this back
        time.sleep(0.02)
        assert (fresh == 5).all()
    assert (fresh == 5).all()


@pytest.mark.parametrize("words", ["llama_context: CPU output buffer size = 1 MiB\n", "", "."])
def test_only_a_cache_is_taken_for_one(words):
    with zeros_given_back() as heard:
        most, _ = cleared(heard, words)
    assert most > LARGE - STEP


def test_what_was_written_before_it_is_cleared_is_nobodys_to_give_back():
    with zeros_given_back() as heard:
        written = memory(range(BLOCKS))
        most, _ = cleared(heard, CLEARS)
        heard(2, "the next line")
    assert most < LARGE / 4
    assert written.any()
    assert np.count_nonzero(written) == BLOCKS


def test_what_was_there_before_stays_in_memory():
    taken = memory([])
    before = resident()
    with zeros_given_back():
        pass
    assert resident() - before > -2
    assert not taken.any()


@pytest.mark.parametrize("suffix", [".weights", ".other"])
def test_read_pages_of_named_files_are_unmapped_and_come_back(tmp_path, suffix):
    file = tmp_path / "a.weights"
    file.write_bytes(bytes(range(256)) * (BLOCKS * BLOCK // 256))
    with file.open("rb") as opened:
        held = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        total = sum(held[:: mmap.PAGESIZE])
        before = resident()
        unmap_read(suffix)
        gone = before - resident()
        assert gone > BLOCKS / 2 if suffix == ".weights" else gone < 2
        assert sum(held[:: mmap.PAGESIZE]) == total
        held.close()
