"""Memory that is given back: which, and that nothing in it changes."""

import mmap
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.models.gguf.library import compiled_parts, llama_library
from engine.platform.huge_pages import MAPS
from engine.platform.toolchain import rounds_alike
from engine.platform.zero_pages import BLOCK, unmap_read, zeros_given_back
from tests.bundled import ROOT
from tests.engine.models.gguf.tiny import write

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


CLEARED = """
import re, sys
from pathlib import Path
from engine.models.gguf.library import llama_library
api = llama_library().api
model = api.llama_model_load_from_file(sys.argv[1].encode(), api.llama_model_default_params())
params = api.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch = 1 << 20, 32, 32
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
assert api.llama_init_from_model(model, params)
print(peak() - before)
"""


def test_set_up_compiles_a_llama_cpp_that_leaves_a_new_cache_as_the_system_gave_it(tmp_path):
    """Zeros were written into all of it: half a second and more, and for a moment all that memory."""
    llama_library()
    if not any(map(rounds_alike, compiled_parts())):
        pytest.skip("this llama.cpp was not compiled by set-up")
    file = write(tmp_path / "tiny.gguf")
    command = [sys.executable, "-c", CLEARED, str(file)]
    grown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert int(grown) < 64 * 1024  # KiB, of 256 MiB of keys and values
