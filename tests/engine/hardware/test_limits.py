"""Fixture file trees of other machines: what a process may use of them."""

from pathlib import Path

import pytest

from engine.hardware.limits import parse_nvidia, ram
from engine.platform.cores import few_threads, parse_cgroup, usable_cores
from engine.platform.instructions import instruction_sets

MEMINFO = "MemTotal:       16000000 kB\nMemFree:  1000000 kB\nMemAvailable:   12000000 kB\n"
KIB = 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = "sys/fs/cgroup/memory/memory"
V2 = "sys/fs/cgroup/user"
GROUPS = {
    "no control group": ({}, 16_000_000 * KIB, 12_000_000 * KIB, "the machine"),
    "the tightest group of version 2, its cache counted as free": (
        {
            "proc/self/cgroup": "0::/user/job\n",
            f"{V2}/job/memory.max": "max\n",
            f"{V2}/memory.max": "4000000000\n",
            f"{V2}/memory.current": "3000000000\n",
            f"{V2}/memory.stat": "anon 9\ninactive_file 500000000\n",
        },
        4_000_000_000, 1_500_000_000, "memory.max",
    ),
    "a container with version 1, which sees its own group as the mount": (
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpuset:/\n",
            f"{V1}.limit_in_bytes": "2000000000\n",
            f"{V1}.usage_in_bytes": "800000000\n",
            f"{V1}.stat": "inactive_file 1\ntotal_inactive_file 300\n",
        },
        2_000_000_000, 1_200_000_300, "memory",
    ),
    "a container with version 1, whose outer group is smaller": (
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n",
            f"{V1}.limit_in_bytes": "9223372036854771712\n",
            f"{V1}.usage_in_bytes": "800000000\n",
            f"{V1}.stat": "cache 5\nhierarchical_memory_limit 3000000000\n",
        },
        3_000_000_000, 2_200_000_000, "memory",
    ),
    "a group that is slowed down before it is full": (
        {
            "proc/self/cgroup": "0::/user\n",
            f"{V2}/memory.max": "8000000000\n",
            f"{V2}/memory.high": "3000000000\n",
            f"{V2}/memory.current": "1000000000\n",
        },
        3_000_000_000, 2_000_000_000, "memory.high",
    ),
    "a group without a limit": (
        {
            "proc/self/cgroup": "4:memory:/\n",
            f"{V1}.limit_in_bytes": "9223372036854771712\n",
            f"{V1}.usage_in_bytes": "5\n",
        },
        16_000_000 * KIB, 12_000_000 * KIB, "the machine",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "total", "available", "limit"), GROUPS.values(), ids=GROUPS)
def test_memory_is_what_the_control_groups_leave(
    tmp_path: Path, files: dict[str, str], total: int, available: int, limit: str
) -> None:
    found = ram(write(tmp_path, files))
    assert (found.total, found.available) == (total, available)
    assert limit in found.limit


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "75000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            0.75,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.25,
        ),
    ],
)
def test_a_quota_counts_as_a_share_of_usable_cores(
    tmp_path: Path, files: dict[str, str], share: float
) -> None:
    assert usable_cores(write(tmp_path, files)) == share


def test_no_quota_leaves_the_affinity(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    assert usable_cores(write(tmp_path, files)) >= 1


def test_instruction_sets_of_both_makers_of_processors(tmp_path: Path) -> None:
    x86 = write(tmp_path / "x", {"proc/cpuinfo": "flags\t\t: fpu avx avx2 fma avx512_bf16\n"})
    arm = write(tmp_path / "a", {"proc/cpuinfo": "Features\t: fp asimd bf16\n"})
    assert instruction_sets(x86) == ("avx2", "fma", "avx512_bf16")
    assert instruction_sets(arm) == ("asimd", "bf16")
    assert instruction_sets(tmp_path / "nowhere") == ()


def test_a_path_with_a_colon_stays_whole() -> None:
    assert parse_cgroup("0::/a:b\n1:name=systemd:/\n") == {"": "/a:b", "name=systemd": "/"}


def test_the_drivers_table_with_a_comma_in_a_name_and_a_device_in_trouble() -> None:
    text = "NVIDIA A, B, 9000, 10000\nNVIDIA C, [N/A], 10\nno devices\n"
    (gpu,) = parse_nvidia(text)
    assert (gpu.name, gpu.free, gpu.total) == ("NVIDIA A, B", 9000 << 20, 10000 << 20)


@pytest.mark.parametrize("written", ["", "0", "-1", "many", "2 threads", "999999"])
def test_a_number_of_threads_that_is_none_is_not_left_to_libraries(written):
    """They reported it on the terminal and took every core of the machine."""
    environ = {"OMP_NUM_THREADS": written}
    few_threads(environ)
    assert environ.get("OMP_NUM_THREADS", "1").isdecimal()
    assert environ.get("OMP_NUM_THREADS") != written


@pytest.mark.parametrize("written", ["1", " 2 ", "4,2", "64"])
def test_a_persons_number_of_threads_stays(written):
    environ = {"OMP_NUM_THREADS": written}
    few_threads(environ)
    assert environ == {"OMP_NUM_THREADS": written}
