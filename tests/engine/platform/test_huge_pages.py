"""Huge pages: what moves, what stays, and that nothing in memory changes by it."""

import mmap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.platform import huge_pages
from engine.platform.huge_pages import (
    block_bytes,
    enlarge,
    full_blocks,
    in_huge_pages,
    switched_off,
    without,
)

MIB = 1 << 20
ALWAYS = block_bytes() > 0 and "[always]" in (huge_pages.SYSTEM / "enabled").read_text()
needs_blocks = pytest.mark.skipif(block_bytes() == 0, reason="no huge pages here, or none wanted")
not_always = pytest.mark.skipif(ALWAYS, reason="here all memory is in huge pages from the start")


def huge_bytes(array):
    """Of the mappings that hold ``array``, bytes in huge pages by the kernel's own account."""
    first, last, found, inside = array.ctypes.data, array.ctypes.data + array.nbytes, 0, False
    for line in (huge_pages.MAPS.parent / "smaps").read_text().splitlines():
        head, *rest = line.split()
        if head[-1] != ":":
            start, end = (int(place, 16) for place in head.split("-"))
            inside = start < last and first < end
        elif inside and head == "AnonHugePages:":
            found += int(rest[0]) << 10
    return found


def filled(size):
    """Memory for which no large pages were requested, as in NumPy, written once."""
    fresh = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    fresh[:] = np.arange(size, dtype=np.uint32).astype(np.uint8)
    return fresh


def unchanged(taken):
    return np.array_equal(taken, np.arange(taken.nbytes, dtype=np.uint32).astype(np.uint8))


@needs_blocks
def test_it_still_applies_what_is_loaded_moves_to_huge_pages_unchanged():
    with in_huge_pages():
        taken = filled(64 * MIB)
    assert huge_bytes(taken) >= 56 * MIB
    assert unchanged(taken)


@needs_blocks
def test_what_was_there_before_stays_as_it_was():
    before = filled(64 * MIB)
    was = huge_bytes(before)
    with in_huge_pages():
        pass
    assert huge_bytes(before) == was


@needs_blocks
@not_always
def test_unused_memory_is_not_taken():
    def resident():
        pages = int((huge_pages.MAPS.parent / "statm").read_text().split()[1])
        return pages * mmap.PAGESIZE

    with in_huge_pages():
        own = mmap.mmap(-1, 64 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        own[:: 4 * MIB] = bytes(16)  # the rest was never written: it takes no memory
        before = resident()
    assert resident() - before < 8 * MIB


@needs_blocks
@not_always
def test_time_that_is_up_leaves_everything_in_its_place():
    with in_huge_pages(seconds=0.0):
        taken = filled(64 * MIB)
    assert huge_bytes(taken) == 0


@needs_blocks
@pytest.mark.parametrize(("name", "value"), [("COLLAPSE", 9999), ("SYSTEM", Path("/nowhere"))])
def test_a_system_that_refuses_or_has_none_is_left_alone(monkeypatch, name, value):
    monkeypatch.setattr(huge_pages, name, value)  # 9999 is unknown to every kernel
    with in_huge_pages():
        taken = filled(8 * MIB)
    assert unchanged(taken)


@pytest.mark.parametrize(
    ("said", "found"),
    [("always [madvise] never", 2 * MIB), ("always madvise [never]", 0), (None, 0)],
)
def test_who_wants_none_or_has_none_gets_none(monkeypatch, tmp_path, said, found):
    if said is not None:
        (tmp_path / "enabled").write_text(said + "\n")
        (tmp_path / "hpage_pmd_size").write_text(f"{2 * MIB}\n")
    monkeypatch.setattr(huge_pages, "SYSTEM", tmp_path)
    assert block_bytes() == found
    assert switched_off() == (said is not None and found == 0)


def test_what_is_refused_is_not_counted():
    spans = [(0, 3 * huge_pages.STRIDE), (4 * huge_pages.STRIDE, 4 * huge_pages.STRIDE + 2 * MIB)]
    asked = []

    def move(start, length):
        asked.append((start, length))
        return start != huge_pages.STRIDE

    assert enlarge(iter(spans), move, 60.0) == 2 * huge_pages.STRIDE + 2 * MIB
    assert sum(length for _, length in asked) == 3 * huge_pages.STRIDE + 2 * MIB


@given(st.lists(st.integers(0, 60), unique=True), st.integers(0, 30), st.integers(1, 30))
def test_without_is_a_difference_of_sets(edges, start, length):
    ends = sorted(edges)
    others = list(pairwise(ends))[::2]
    taken = {at for a, b in others for at in range(a, b)}
    left = list(without((start, start + length), others))
    assert {at for a, b in left for at in range(a, b)} == set(range(start, start + length)) - taken
    assert all(a < b for a, b in left)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 7))
def test_full_blocks_are_aligned_and_used_as_a_whole(used, first):
    """Pages of 1, blocks of 4."""
    found = {at for a, b in full_blocks(first, np.array(used, bool), 4, 1) for at in range(a, b)}
    wanted = {
        at
        for block in range(0, first + len(used) + 4, 4)
        if all(0 <= at - first < len(used) and used[at - first] for at in range(block, block + 4))
        for at in range(block, block + 4)
    }
    assert found == wanted


def test_a_mapped_file_whose_name_is_no_text_is_passed_over(tmp_path, monkeypatch):
    """A GGUF file called in Latin-1 stopped the engine while it loaded."""
    maps = tmp_path / "maps"
    maps.write_bytes(
        b"10000-20000 r--p 00000000 00:01 7  /m/l\xe9.gguf\n20000-30000 rw-p 00000000 00:00 0\n"
    )
    monkeypatch.setattr(huge_pages, "MAPS", maps)
    assert list(huge_pages.private_memory()) == [(0x20000, 0x30000)]
