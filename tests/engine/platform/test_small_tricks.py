"""Threads that wait, torch's error for a full device, and what a library's compilers left out."""

import inspect
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.errors import OutOfMemory
from engine.platform.device_memory import out_of_memory_as_ours
from engine.platform.threads import SPINS, one_openblas_thread, sleep_soon
from engine.platform.toolchain import (
    BUILD_FLAGS,
    ORDER,
    ORDER_ARGUMENT,
    OWN_KERNELS,
    attends_alike,
    left_out_by,
    rounds_alike,
    rounds_apart,
    spills,
    tiled_apart,
)
from tests.processes import run_python

# Threads give their cores away soon, unless a person set it otherwise.


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_what_a_person_set_stays(before, after):
    sleep_soon(before)
    assert before == after


def test_it_is_said_before_torch_is_loaded_and_processes_of_the_app_inherit_it(tmp_path):
    """A command that loads nothing heavy has said it, and torch is not there yet."""
    script = (
        "import os, sys; from app.commands import main as cli; code = cli.main(['models', 'list'], None); "
        "assert 'torch' not in sys.modules; print(code, os.environ['GOMP_SPINCOUNT'])"
    )
    unset = {"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": None}
    done = run_python(script, SLIPSTREAM_HOME=str(tmp_path), **unset)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"0 {SPINS}"


@pytest.mark.skipif(sys.platform != "linux", reason="wheels for Linux bring GNU's OpenMP")
def test_it_still_applies_torch_brings_the_openmp_that_reads_the_spin_count():
    (library,) = Path(torch.__file__).parent.glob("lib/libgomp*")
    assert b"GOMP_SPINCOUNT" in library.read_bytes()


def test_it_still_applies_numpy_brings_an_openblas_whose_threads_can_be_set():
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    if not list(folder.glob("*openblas*")):
        pytest.skip("this NumPy was built with another library")
    assert one_openblas_thread()


# Running out of memory.


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...", 20 * 2**20),
        ("Tried to allocate 2.50 GiB.", 5 * 2**29),
        ("Tried to allocate 512 bytes", 512),
        ("out of memory", 0),
    ],
)
def test_the_bytes_come_from_the_message(message, needed):
    with pytest.raises(OutOfMemory) as caught, out_of_memory_as_ours(torch.device("cpu")):
        raise torch.OutOfMemoryError(message)
    assert caught.value.needed == needed


def test_it_still_applies_the_error_has_no_number_of_its_own():
    fields = {name for name, _ in inspect.getmembers(torch.OutOfMemoryError("x"))}
    usual = {name for name, _ in inspect.getmembers(RuntimeError("x"))}
    assert fields - usual <= {"__module__", "__weakref__", "__dict__"}


# The toolchain.

DEBIAN = b"\0GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0"


@pytest.mark.parametrize(
    ("library", "compiler"),
    [
        (DEBIAN, "GCC 12.2"),
        (b"GCC: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "GCC 11.4"),
        (b"GCC: (GNU) 13.2.1 20240316 (Red Hat 13.2.1-7)", "GCC 13.2"),
        (b"GCC: (GNU) 10.3.0", "GCC 10.3"),
        (b"GCC: (GNU) 11.5.0", ""),
        (b"GCC: (GNU) 12.4.0", ""),
        (b"GCC: (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", ""),
        (b"GCC: (GNU) 14.1.0", ""),
        (b"GCC: (GNU) 15.2.0", ""),
        (DEBIAN + b"clang version 19.1.0", ""),
        (b"clang version 19.1.0", ""),
        (b"", ""),
        (DEBIAN + b"GCC: (GNU) 14.2.0", ""),
        (DEBIAN + BUILD_FLAGS.encode(), ""),  # the flags leave their mark
    ],
)
def test_what_a_library_says_of_its_compilers(library: bytes, compiler: str) -> None:
    assert left_out_by(library) == compiler


KERNEL = b"\0ggml_gemm_q4_K_8x8_q8_K\0"


@pytest.mark.parametrize(
    ("library", "slow"),
    [
        (DEBIAN + KERNEL, True),
        (b"GCC: (GNU) 15.2.0" + KERNEL, True),
        (DEBIAN, False),
        (KERNEL, False),
        (b"clang version 19.1.0" + DEBIAN + KERNEL, False),
        (DEBIAN + KERNEL + b"-fsched-pressure --param=sched-pressure-algorithm=2", False),
    ],
)
def test_whether_the_kernels_of_a_library_spill(library: bytes, slow: bool) -> None:
    assert spills(library) is slow


def test_a_library_tells_whether_its_kernels_round_alike():
    mark = b"slipstream: one row of K-quants rounds as eight do"
    assert rounds_apart(KERNEL)
    assert not rounds_apart(KERNEL + mark)
    assert not rounds_apart(DEBIAN)
    assert [rounds_alike(one) for one in (KERNEL, KERNEL + mark, DEBIAN)] == [False, True, False]


@pytest.mark.parametrize(
    ("types", "changed", "apart"),
    [
        ({"f32", "q4_k", "q6_k"}, True, False),
        ({"f32", "q4_k", "q6_k"}, False, True),
        ({"q5_k", "q3_k"}, True, True),
        ({"iq4_xs"}, True, True),
        ({"f32", "iq4_nl", "q4_0", "q8_0", "bf16"}, False, False),
    ],
)
def test_tiled_kernels_are_left_where_they_round_alike(types, changed, apart):
    assert tiled_apart(types, changed=changed) is apart


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64")
    or not (shutil.which("cmake") and shutil.which("g++")),
    reason="flags are for GCC on x86",
)
def test_it_still_applies_a_build_of_ggml_reads_the_flags(tmp_path):
    kernel = tmp_path / "src/ggml-cpu/arch/x86/repack.cpp"
    kernel.parent.mkdir(parents=True)
    for file in (kernel, tmp_path / "src/other.cpp"):
        file.write_text("void f() {}\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(ggml CXX)\nadd_subdirectory(src)\n"
    )
    (tmp_path / "src/CMakeLists.txt").write_text(
        f"add_library(ggml-cpu STATIC {kernel} other.cpp)\n"
    )
    options = [ORDER_ARGUMENT, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_CXX_COMPILER=g++"]
    command = ["cmake", *options, "-S", tmp_path, "-B", tmp_path / "build"]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads((tmp_path / "build/compile_commands.json").read_text())
    flags = {one["file"].rsplit("/", 1)[1]: one["command"] for one in found}
    assert "--param=sched-pressure-algorithm=2 -frecord-gcc-switches" in flags["repack.cpp"]
    assert "sched-pressure" not in flags["other.cpp"]


def test_a_build_of_ggml_changes_where_its_kernels_round(tmp_path):
    """Of a source that it does not know it changes nothing."""
    root, states = tmp_path / "ggml", tmp_path / "src/models"
    kernels, products = root / "src/ggml-cpu/arch/x86", root / "src/ggml-cpu/llamafile"
    for folder in (kernels, products, states):
        folder.mkdir(parents=True)
    script = ORDER.read_text()
    texts = dict(re.findall(r"set\((\w+)_before \[=\[\n(.*?)\]=\]\)", script, re.DOTALL))
    (kernels / "repack.cpp").write_text(texts.pop("repack"))
    parts = [texts.pop(name) for name in ("single", "kernels", "narrow", "call")]
    (products / "sgemm.cpp").write_text("".join(parts))
    (states / "delta-net-base.cpp").write_text(texts.pop("planes"))
    (products.parent / "ops.cpp").write_text(texts.pop("flash") + texts.pop("way"))
    (products.parents[1] / "ggml-backend.cpp").write_text(texts.pop("clear"))
    (kernels / "quants.c").write_text("".join(texts.values()))
    command = ["cmake", f"-DCMAKE_CURRENT_SOURCE_DIR={root}", "-P", ORDER]
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    changed = (kernels / "quants.c").read_bytes()
    assert changed.count(b"acc = slipstream_add(") == 3
    assert not rounds_apart(KERNEL + changed)
    multiplied = (products / "sgemm.cpp").read_text()
    rows, attention = (kernel.read_text() for kernel in OWN_KERNELS)
    assert rows in multiplied
    attended = (products.parent / "ops.cpp").read_text()
    assert attention in attended
    assert "if (slipstream::attended(params, dst))" in attended
    assert attends_alike(attention.encode())
    assert "slipstream_given_back" in (products.parents[1] / "ggml-backend.cpp").read_text()
    assert "return m % 4 == 0 && one_row(m);" in multiplied
    assert "slipstream_written + 1" in (states / "delta-net-base.cpp").read_text()
    (kernels / "quants.c").write_text(texts["helper"])
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    assert (kernels / "quants.c").read_text() == texts["helper"]
