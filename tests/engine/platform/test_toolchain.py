"""Which compilers left AMX's set-up out, read off the library that they made."""

import pytest

from engine.platform.toolchain import BUILD_FLAGS, MARK, ORDER, left_out_by, spills

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


def test_what_orders_the_instructions_leaves_its_mark() -> None:
    text = ORDER.read_text()
    assert "--param=sched-pressure-algorithm=2 -frecord-gcc-switches" in text
