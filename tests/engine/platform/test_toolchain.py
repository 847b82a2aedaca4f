"""Which compilers left AMX's set-up out, read off the library that they made."""

import json
import platform
import shutil
import subprocess

import pytest

from engine.platform.toolchain import BUILD_FLAGS, MARK, ORDER_ARGUMENT, left_out_by, spills

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
        (DEBIAN + BUILD_FLAGS.encode(), ""),
    ],
)
def test_what_a_library_says_of_its_compilers(library: bytes, compiler: str) -> None:
    assert left_out_by(library) == compiler


def test_the_flags_leave_their_mark() -> None:
    assert MARK.decode() in BUILD_FLAGS.split()
    assert "-frecord-gcc-switches" in BUILD_FLAGS.split()


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
