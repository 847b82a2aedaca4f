"""Claims side by side: real processes, each with cores of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.bench.papers import parallel as side_by_side
from app.bench.papers.harness import Harness
from app.bench.papers.parallel import divided, each_shown, seats
from app.bench.prompt_files import load_prompts
from app.settings import load_settings

PACKAGE = "tests.app.bench.papers"
own_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system gives no process cores of its own"
)


@pytest.fixture
def told():
    return []


@pytest.fixture
def instrument(told):
    return Harness(load_settings(), "pocket", load_prompts(None, 1), told.append)


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (7, 2), (8, 2), (16, 4), (18, 4)])
def test_two_claims_at_once_and_more_where_each_has_four_cores(monkeypatch, cores, expected):
    monkeypatch.setattr(side_by_side, "usable_threads", lambda: cores)
    assert seats() == (expected if sys.platform == "linux" else 1)


def test_one_claim_after_the_other_where_no_process_can_have_cores_of_its_own(monkeypatch):
    monkeypatch.setattr(side_by_side, "usable_threads", lambda: 64)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert seats() == 1


def test_threads_of_one_physical_core_stay_in_one_share(tmp_path):
    """Core n and n + 4 are two threads of one, as on many servers."""
    for core in range(8):
        place = tmp_path / f"cpu{core}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text("0\n")
        (place / "core_id").write_text(f"{core % 4}\n")
    assert divided(range(8), 2, tmp_path) == [(0, 4, 1, 5), (2, 6, 3, 7)]
    assert divided(range(7), 3, tmp_path) == [(0, 4), (1, 5), (2, 6)]


def test_shares_are_equal_where_nothing_is_known_of_the_cores(tmp_path):
    assert divided((5, 1, 9, 3, 7), 2, tmp_path) == [(1, 3), (5, 7)]


@own_cores
def test_each_runs_in_a_process_with_cores_of_its_own(instrument, told, monkeypatch):
    here = sorted(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("one core cannot be divided")
    monkeypatch.setattr(side_by_side, "seats", lambda: 2)
    rows = list(each_shown(["claim_of_cores"] * 4, instrument, PACKAGE))
    assert len(rows) == 4
    places = {frozenset(name for name, _ in row.figures if name != "threads") for row in rows}
    assert all(len(place) == len(here) // 2 for place in places)
    assert not frozenset.intersection(*places) or len(places) == 1
    assert {dict(row.figures)["threads"] for row in rows} == {len(here) // 2}
    assert not any(row.says.startswith(f"process {os.getpid()}.") for row in rows)
    assert told == ["claim_of_cores: looking"] * 4
    assert sorted(os.sched_getaffinity(0)) == here


@pytest.mark.parametrize("at_once", [2, 1])
def test_a_claim_that_breaks_is_a_row_with_the_reason_and_the_others_are_shown(
    instrument, monkeypatch, caplog, at_once
):
    if at_once > 1 and (
        not hasattr(os, "sched_getaffinity") or at_once > len(os.sched_getaffinity(0))
    ):
        pytest.skip("one core cannot be divided")
    monkeypatch.setattr(side_by_side, "seats", lambda: at_once)
    names = ["claim_that_breaks", "claim_that_dies", "claim_of_cores"]
    rows = {
        row.claim: row for row in each_shown(names[:: 2 if at_once > 1 else 1], instrument, PACKAGE)
    }
    broken = rows["claim_that_breaks"]
    assert (broken.holds, broken.says) == (
        False,
        "cannot be shown: in the lane plain: out of memory",
    )
    assert rows["Cores"].holds
    if at_once == 1:
        assert rows["claim_that_dies"].says == "cannot be shown: ValueError: a bug"
        assert "the claim claim_that_dies broke" in caplog.text


# --- the end of a bench that a person ends --------------------------------------------------------

BENCH = """
import sys
from app.bench.papers import parallel
from app.bench.papers.harness import Harness
from app.bench.prompt_files import load_prompts
from app.settings import load_settings
if __name__ == "__main__":
    parallel.seats = lambda: 2
    instrument = Harness(load_settings(), sys.argv[1], load_prompts(None, 1), lambda said: None)
    list(parallel.each_shown(["claim_that_waits"] * 2, instrument, "tests.app.bench.papers"))
"""
BEGUN, GONE = 60.0, 20.0  # seconds


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def alive(process):
    try:
        state = Path(f"/proc/{process}/status").read_text()
    except OSError:  # it is no more
        return False
    return "State:\tZ" not in state


@pytest.mark.skipif(
    not Path("/proc/self/status").exists() or len(os.sched_getaffinity(0)) < 2,
    reason="reads Linux's list of processes, and needs two cores",
)
def test_workers_end_when_a_bench_is_ended(tmp_path):
    script, folder = tmp_path / "bench.py", tmp_path / "workers"
    script.write_text(BENCH, encoding="utf-8")
    folder.mkdir()
    bench = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])},
    )
    try:
        assert until(lambda: len(list(folder.iterdir())) == 2, BEGUN)
        workers = [int(file.name) for file in folder.iterdir()]
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(GONE) == -signal.SIGTERM
        assert until(lambda: not any(map(alive, workers)), GONE)
    finally:
        bench.kill()
        bench.wait()
