"""Fixture file trees of other machines: what a process may use of them."""

from pathlib import Path

import pytest

from engine.hardware.limits import cores, instruction_sets, parse_cgroup, parse_nvidia, ram

MEMINFO = "MemTotal:       16000000 kB\nMemFree:  1000000 kB\nMemAvailable:   12000000 kB\n"
KIB = 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_memory_without_a_control_group_is_the_machines(tmp_path: Path) -> None:
    found = ram(write(tmp_path, {}))
    assert (found.total, found.available) == (16000000 * KIB, 12000000 * KIB)


def test_the_tightest_group_of_version_2_limits_with_its_cache_counted_as_free(
    tmp_path: Path,
) -> None:
    found = ram(
        write(
            tmp_path,
            {
                "proc/self/cgroup": "0::/user/job\n",
                "sys/fs/cgroup/user/job/memory.max": "max\n",
                "sys/fs/cgroup/user/memory.max": "4000000000\n",
                "sys/fs/cgroup/user/memory.current": "3000000000\n",
                "sys/fs/cgroup/user/memory.stat": "anon 9\ninactive_file 500000000\n",
            },
        )
    )
    assert (found.total, found.available) == (4_000_000_000, 1_500_000_000)
    assert "memory.max" in found.limit


def test_a_container_with_version_1_sees_its_own_group_as_the_mount(tmp_path: Path) -> None:
    found = ram(
        write(
            tmp_path,
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n3:cpuset:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "800000000\n",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
            },
        )
    )
    assert (found.total, found.available) == (2_000_000_000, 1_200_000_300)


def test_a_group_without_limit_changes_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
    }
    assert ram(write(tmp_path, files)).limit == "the machine"


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5),
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
def test_a_quota_counts_as_a_share_of_cores(
    tmp_path: Path, files: dict[str, str], share: float
) -> None:
    assert cores(write(tmp_path, files)) == share


def test_no_quota_leaves_the_affinity(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    assert cores(write(tmp_path, files)) >= 1


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
